"""Grid, GPTQ, AWQ and folding on small matrices."""

import pytest
import torch
from torch import nn

from workbench.quantization import awq, gptq, grid, moments, packing, precision, rounding
from workbench.quantization.graph import repeated
from workbench.quantization.moments import Moments, output_error
from workbench.quantization.rounding import nearest, rounded
from workbench.recipe import Choice

BF16 = torch.bfloat16
SYMMETRIC = Choice(method="gptq", group_size=32, symmetric=True)
ASYMMETRIC = Choice(method="awq", group_size=32, symmetric=False)


@pytest.fixture
def loud():
    """Weights and correlated inputs of which a few channels are far louder than the rest."""
    torch.manual_seed(0)
    X = torch.randn(2048, 64) @ torch.randn(64, 64) * 0.1
    X[:, ::17] *= 20
    moments = Moments(64, torch.device("cpu"))
    moments.add(X)
    return torch.randn(48, 64), moments.matrix, X


def error_of(result, weight, H):
    return output_error(weight - result.grid.values(result.integers), H)


@pytest.mark.parametrize("choice", [SYMMETRIC, ASYMMETRIC, Choice(method="rtn", bits=8, group_size=-1)])
def test_what_is_packed_is_what_is_read(choice):
    weight = torch.randn(48, 64)
    result = nearest(weight, choice, BF16)
    packed = packing.pack(result.integers, result.grid, choice, BF16)
    read = packing.unpack(packed, packing.scheme_of(choice, ["x"]))
    assert torch.equal(read, result.grid.values(result.integers))
    assert torch.equal(packing.unpack_block({f"q.{k}": v for k, v in packed.items()})["q.weight"], read)
    step = (1 << choice.bits) - 1
    assert (weight - read).abs().max() < weight.abs().max() * 2.1 / step


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [2, 3, 4])
@pytest.mark.parametrize("columns", [8, 24, 32, 64, 96])
def test_the_width_is_seen_in_the_words_where_their_number_does_not_tell(columns, bits, symmetric):
    """24 columns take three words at 3 bits and at 4, and eight take one at 2, 3 and 4."""
    choice = Choice(method="rtn", bits=bits, group_size=-1, symmetric=symmetric)
    result = nearest(torch.randn(16, columns), choice, BF16)
    packed = packing.pack(result.integers, result.grid, choice, BF16)
    read = packing.unpack_block({f"q.{part}": tensor for part, tensor in packed.items()})["q.weight"]
    assert torch.equal(read, result.grid.values(result.integers))


@pytest.mark.parametrize("choice", [SYMMETRIC, ASYMMETRIC])
def test_columns_grouped_out_of_order_are_read_each_with_its_group(choice):
    """As llm-compressor and GPTQ tools write them with the activation order "group"; Lathe itself never does."""
    weight, order = torch.randn(48, 64), torch.randperm(64)
    result = nearest(weight[:, order], choice, BF16)
    back, groups = torch.argsort(order), torch.arange(64, dtype=torch.int32) // choice.group_size
    packed = packing.pack(result.integers[:, back], result.grid, choice, BF16) | {"weight_g_idx": groups[back]}
    read = packing.unpack_block({f"q.{part}": tensor for part, tensor in packed.items()})["q.weight"]
    assert torch.equal(read, result.grid.values(result.integers)[:, back])


@pytest.mark.parametrize("choice", [SYMMETRIC, ASYMMETRIC])
def test_a_group_of_zeros_stays_zero(choice):
    weight = torch.randn(4, 64)
    weight[1] = 0
    weight[2, :32] = 0
    found = grid.fit(weight, choice, BF16)
    assert torch.isfinite(found.scale).all() and (found.scale > 0).all()
    values = found.values(found.integers(weight))
    assert not values[1].any() and not values[2, :32].any()


def test_scales_have_the_values_that_are_stored():
    scale = grid.fit(torch.randn(8, 64), ASYMMETRIC, BF16).scale
    assert torch.equal(scale, scale.to(BF16).float())


def test_moments_do_not_depend_on_the_batches(loud):
    _, together, X = loud
    alone = Moments(64, torch.device("cpu"))
    for row in X:
        alone.add(row[None])
    assert torch.allclose(alone.matrix, together, rtol=1e-4, atol=1e-4 * together.abs().max().item())
    assert torch.allclose(together, X.T @ X / len(X), rtol=1e-4, atol=1e-4)


def test_moments_can_be_looked_at_in_between(monkeypatch, loud):
    monkeypatch.setattr("workbench.quantization.moments.STRIP", 24)  # the last strip is narrower
    _, together, X = loud
    moments = Moments(64, torch.device("cpu"))
    for part in X.split(300):
        moments.add(part)
        assert torch.equal(moments.matrix, moments.matrix.T)
    assert torch.allclose(moments.matrix, together, rtol=1e-4, atol=1e-4 * together.abs().max().item())


@pytest.mark.parametrize("choice", [SYMMETRIC, ASYMMETRIC])
def test_searches_look_at_what_the_integers_stand_for(monkeypatch, loud, choice):
    weight, H, _ = loud
    shrink = grid.shrinks(weight, H, choice, BF16)
    found = grid.fit(weight, choice, BF16, shrink, turned=True)
    assert torch.equal(found.nearest(weight), found.values(found.integers(weight)))
    monkeypatch.setattr(grid, "PIECE", 5 * 64)
    assert torch.equal(grid.shrinks(weight, H, choice, BF16), shrink) and (shrink < 1).any()


@pytest.mark.parametrize("size", [5, 256, 700])
def test_a_triangle_is_inverted_in_its_place(size):
    torch.manual_seed(0)
    lower = torch.randn(size, size, dtype=torch.float64).tril_() / size**0.5
    lower.diagonal().abs_().add_(1)
    inverse = lower.float()
    gptq._invert(inverse)
    assert torch.allclose(inverse.double() @ lower, torch.eye(size, dtype=torch.float64), atol=1e-5)


def test_output_error_is_that_of_the_outputs(loud):
    weight, H, X = loud
    wrong = 0.01 * weight
    assert output_error(wrong, H) == pytest.approx((X @ wrong.T).square().sum(-1).mean().item(), rel=1e-3)


def test_range_search_and_gptq_each_lower_the_error(loud):
    weight, H, _ = loud
    plain = error_of(nearest(weight, SYMMETRIC, BF16), weight, H)
    clipped = error_of(rounded(weight, H, Choice(method="awq", group_size=32, clip=True), BF16), weight, H)
    solved = error_of(rounded(weight, H, Choice(method="gptq", group_size=32, clip=False), BF16), weight, H)
    both = error_of(rounded(weight, H, SYMMETRIC, BF16), weight, H)
    assert clipped < plain and solved < 0.7 * plain and both < solved


def test_gptq_follows_the_plain_formula():
    """Against the textbook: one column at a time, the whole inverse updated by elimination."""
    torch.manual_seed(1)
    X = torch.randn(512, 160, dtype=torch.float64) @ torch.randn(160, 160, dtype=torch.float64)
    H = X.T @ X / 512
    W = torch.randn(24, 160)
    found = grid.fit(W, SYMMETRIC, BF16)
    integers, damping = gptq.round_columns(W, H.float(), found, 0.01, static_order=False)
    inverse = torch.linalg.inv(H + 0.01 * H.diagonal().mean() * torch.eye(160, dtype=torch.float64))
    left = W.double().clone()
    wanted = torch.zeros_like(integers)
    for column in range(160):
        scale = found.scale[:, column // 32].double()
        q = (left[:, column] / scale).round().clamp(-8, 7)
        wanted[:, column] = q.to(torch.int8)
        err = (left[:, column] - q * scale) / inverse[column, column]
        left -= err[:, None] * inverse[column]
        inverse = inverse - inverse[:, column : column + 1] * inverse[column : column + 1] / inverse[column, column]
    assert damping == 0.01
    assert (integers == wanted).float().mean() > 0.995  # float32 against float64 may tip a tie


@pytest.mark.parametrize("choice", [SYMMETRIC, ASYMMETRIC])
@pytest.mark.parametrize("static", [True, False])
def test_a_rows_error_adds_up_from_what_its_columns_leave(loud, choice, static):
    weight, H, _ = loud
    found = grid.fit(weight, choice, BF16, turned=True)
    integers, errors = gptq.round_with(weight, gptq.factor(H, 0.01, static), found)
    wrong = (weight - found.values(integers)).double()
    damped = H.double() + 0.01 * torch.diagonal(H).mean() * torch.eye(64)
    assert torch.allclose(errors.double(), (wrong @ damped * wrong).sum(1), rtol=1e-3)


def test_static_order_is_stored_in_place_and_no_worse(loud):
    weight, H, _ = loud
    in_order, _ = gptq.round_columns(weight, H, grid.fit(weight, SYMMETRIC, BF16), 0.01, static_order=False)
    static, _ = gptq.round_columns(weight, H, grid.fit(weight, SYMMETRIC, BF16), 0.01, static_order=True)
    found = grid.fit(weight, SYMMETRIC, BF16)
    assert (static - found.integers(weight)).abs().max() <= 8  # a permuted result would be off everywhere
    errors = [output_error(weight - found.values(each), H) for each in (static, in_order)]
    assert errors[0] <= 1.05 * errors[1]


def test_damping_rises_in_bounded_steps_and_then_gives_up():
    H = torch.eye(64)
    H[0, 1] = H[1, 0] = 1.2  # not positive definite until the damping exceeds 0.2
    found = grid.fit(torch.randn(4, 64), SYMMETRIC, BF16)
    _, damping = gptq.round_columns(torch.randn(4, 64), H, found, 0.01, static_order=True)
    assert damping == pytest.approx(1.0)
    H[0, 1] = H[1, 0] = 1e6
    assert gptq.round_columns(torch.randn(4, 64), H, found, 0.01, static_order=True) is None
    assert rounded(torch.randn(4, 64), H, SYMMETRIC, BF16).fallback == "rtn"


def test_dead_inputs_do_no_harm(loud):
    weight, _, X = loud
    X[:, 3] = 0
    H = X.T @ X / len(X)
    result = rounded(weight, H, SYMMETRIC, BF16)
    assert not result.fallback and torch.isfinite(result.grid.values(result.integers)).all()
    scale = awq.search_scale([weight], H, ASYMMETRIC, BF16)
    assert torch.isfinite(scale).all() and (scale > 0).all()
    assert torch.equal(awq.search_scale([weight], torch.zeros(64, 64), ASYMMETRIC, BF16), torch.ones(64))


def test_candidates_that_are_scored_together_give_the_same_scale(loud, monkeypatch):
    weight, H, _ = loud
    together = awq.search_scale([weight[:20], weight[20:]], H, ASYMMETRIC, BF16)
    monkeypatch.setattr(awq, "TOGETHER", 0)
    assert torch.equal(awq.search_scale([weight[:20], weight[20:]], H, ASYMMETRIC, BF16), together)
    assert not torch.equal(together, torch.ones_like(together))


def test_awq_scale_lowers_the_error(loud):
    weight, H, _ = loud
    scale = awq.search_scale([weight], H, ASYMMETRIC, BF16)
    enlarged = weight * scale
    result = nearest(enlarged, ASYMMETRIC, BF16)
    scaled = output_error((enlarged - result.grid.values(result.integers)) / scale, H)
    assert scaled < 0.8 * error_of(nearest(weight, ASYMMETRIC, BF16), weight, H)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_folding_into_a_16_bit_norm_is_exact(dtype):
    torch.manual_seed(0)
    norm = nn.RMSNorm(64).requires_grad_(False)
    norm.weight.uniform_(0.1, 2).copy_(norm.weight.to(dtype).float())
    norm.weight[5] = 0
    linear = nn.Linear(64, 16).requires_grad_(False)
    x = torch.randn(10, 64)
    before = linear(norm(x))
    used = awq.fold_norm(norm, [linear], torch.rand(64) * 4 + 0.1, dtype)
    assert torch.equal(norm.weight, norm.weight.to(dtype).float())
    assert (used > 0).all() and used.max() > 2
    assert torch.allclose(linear(norm(x)), before, atol=1e-5)


@pytest.mark.parametrize("bias", [False, True])
def test_folding_values_under_grouped_query_attention_is_exact(bias):
    torch.manual_seed(0)
    kv, repeat, head = 2, 3, 8
    v, o = nn.Linear(32, kv * head, bias=bias), nn.Linear(kv * repeat * head, 32, bias=False)
    v.requires_grad_(False), o.requires_grad_(False)
    if bias:
        v.bias.copy_(v.bias.bfloat16().float())
    x = torch.randn(10, 32)

    def output():
        values = v(x).view(-1, kv, 1, head).expand(-1, kv, repeat, head)  # as attention repeats its value heads
        return o(values.reshape(len(x), -1))

    before = output()
    loud = torch.randn(400, kv * repeat * head) * torch.linspace(0.1, 9, kv * repeat * head)
    choice = Choice(method="awq", group_size=-1, symmetric=False)
    rows = repeated(kv * head, repeat, head)
    scale = awq.search_scale([o.weight], loud.T @ loud / 400, choice, BF16, rows)
    assert torch.allclose(scale.view(kv, repeat, head)[:, 0], scale.view(kv, repeat, head)[:, 2])
    used = awq.fold_rows(v, o, scale**8, rows, BF16)
    assert used.max() / used.min() > 1.5
    assert torch.allclose(output(), before, atol=1e-5)
    if bias:
        assert torch.equal(v.bias, v.bias.bfloat16().float())


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_a_turned_grid_reaches_farther_where_the_group_does(bits):
    choice = Choice(bits=bits, group_size=32)
    weight = torch.rand(40, 64).sub_(0.5)
    weight[::2, 5], weight[1::2, 5] = 1.0, -1.0
    found = grid.fit(weight, choice, BF16, turned=True)
    assert (found.scale[::2, 0] < 0).all() and (found.scale[1::2, 0] > 0).all()
    farthest = found.values(torch.full(weight.shape, found.low, dtype=torch.int8))[:, 5]
    assert torch.equal(farthest.sign(), weight[:, 5].sign()) and (farthest.abs() >= 1).all()
    assert list(found.levels()) == sorted(found.levels())
    packed = packing.pack(found.integers(weight), found, choice, BF16)
    assert torch.equal(packing.unpack(packed, packing.scheme_of(choice, [])), found.nearest(weight))
    assert found.clipped(weight) == 0


def test_turning_symmetric_grids_lowers_the_error(loud, monkeypatch):
    weight, H, _ = loud
    turned = error_of(rounded(weight, H, SYMMETRIC, BF16), weight, H)
    plain = grid.fit
    for module in (grid, rounding):
        monkeypatch.setattr(module, "fit", lambda *given, turned=False: plain(*given))
    assert turned < 0.97 * error_of(rounded(weight, H, SYMMETRIC, BF16), weight, H)


def test_plain_rounding_turns_nothing():
    assert (nearest(torch.randn(40, 64), SYMMETRIC, BF16).grid.scale > 0).all()


@pytest.mark.parametrize("size", [64, 192, 200, 1700])
def test_errors_by_strips_are_those_of_the_whole_product(size):
    torch.manual_seed(0)
    X, wrong = torch.randn(300, size), torch.randn(2, 5, size)
    H = X.T @ X / 300
    right = ((wrong.double() @ H.double()) * wrong.double()).sum(-1)
    assert torch.allclose(moments.errors(wrong, H).double(), right, rtol=1e-4)
    assert output_error(wrong[0], H) == pytest.approx(right[0].sum().item(), rel=1e-4)


def test_a_models_code_runs_in_16_bit_only_where_the_processor_does(monkeypatch):
    linear, x = nn.Linear(64, 64).requires_grad_(False), torch.randn(3, 64)
    assert precision.through(linear, x).dtype == torch.float32
    for can, dtype in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr(precision, "multiplies_bfloat16", lambda can=can: can)
        with precision.as_served():
            assert precision.through(linear, x).dtype == dtype
            assert torch.allclose(precision.through(linear, x).float(), linear(x), atol=0.03)
            assert linear(x).dtype == torch.float32
    assert precision.through(linear, x).dtype == torch.float32
