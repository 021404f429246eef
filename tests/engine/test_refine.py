"""Refinement against plain searches on small matrices."""

from dataclasses import replace

import pytest
import torch

from workbench.quantization import refine, rounding
from workbench.quantization.moments import output_error
from workbench.quantization.rounding import nearest, rounded
from workbench.recipe import Choice

BF16 = torch.bfloat16
CHOICES = [
    Choice(method="gptq", group_size=16 * 2, symmetric=True),
    Choice(method="awq+gptq", group_size=32, symmetric=False),
    Choice(method="gptq", group_size=-1),
    Choice(method="gptq", bits=2, group_size=32, symmetric=False),
]


@pytest.fixture
def problem():
    torch.manual_seed(0)
    X = torch.randn(512, 96) @ torch.randn(96, 96) * 0.1
    X[:, ::17] *= 8
    return torch.randn(24, 96), X.T @ X / len(X)


def error_of(result, weight, H):
    return output_error(weight - result.grid.values(result.integers), H)


@pytest.mark.parametrize("choice", CHOICES)
def test_refined_is_better_than_gptq_and_fits_the_grid(problem, choice):
    weight, H = problem
    choice = replace(choice, clip=False)  # the search for ranges has starts of its own
    before = rounded(weight, H, choice, BF16)
    after = rounded(weight, H, replace(choice, refine=True), BF16)
    assert after.unrefined == pytest.approx(error_of(before, weight, H))
    assert error_of(after, weight, H) < 0.99 * after.unrefined
    assert torch.equal(after.grid.scale, after.grid.scale.to(BF16).float())
    assert torch.equal(after.grid.zero, before.grid.zero)
    assert after.integers.dtype == torch.int8
    assert after.integers.min() >= after.grid.low and after.integers.max() <= after.grid.high


@pytest.mark.parametrize("choice", CHOICES)
def test_every_row_starts_from_the_grid_that_gptq_does_best_on(problem, choice, monkeypatch):
    weight, H = problem
    choice = replace(choice, damping=1e-6)

    def by_row(result):
        wrong = weight - result.grid.values(result.integers)
        return (wrong @ H * wrong).sum(1)

    each = []
    for share in rounding.SHARES:
        with monkeypatch.context() as change:
            change.setattr(rounding, "SHARES", (share,))
            change.setattr(refine, "refined", lambda weight, H, integers, grid, stored: (integers, grid))
            each.append(by_row(rounded(weight, H, replace(choice, refine=True), BF16)))
    monkeypatch.setattr(refine, "refined", lambda weight, H, integers, grid, stored: (integers, grid))
    best = by_row(rounded(weight, H, replace(choice, refine=True), BF16))
    assert torch.allclose(best, torch.stack(each).amin(0), rtol=1e-3)
    assert len(torch.stack(each).argmin(0).unique()) > 1


@pytest.mark.parametrize("choice", CHOICES)
def test_scales_are_the_least_squares_solution(problem, choice, monkeypatch):
    weight, H = problem
    result = nearest(weight, choice, BF16)
    monkeypatch.setattr(refine, "TRUST", 0.0)
    found = refine.fitted(weight, H, result.integers, result.grid, torch.float32)
    root = torch.linalg.cholesky(H.double() + 1e-9 * torch.eye(len(H)))
    size = result.grid.group_size
    steps = result.integers.double().unflatten(1, (-1, size)) - result.grid.zero[..., None].double()
    for row in range(len(weight)):
        each = torch.block_diag(*steps[row]) @ root  # what each group adds to the row's output
        right = torch.linalg.lstsq(each.T, (weight[row].double() @ root)[:, None]).solution[:, 0]
        assert torch.allclose(found.scale[row].double(), right, rtol=2e-3)


def test_few_rows_at_a_time_give_the_same_scales(problem, monkeypatch):
    weight, H = problem
    result = nearest(weight, CHOICES[0], BF16)
    together = refine.fitted(weight, H, result.integers, result.grid, BF16).scale
    monkeypatch.setattr(refine, "BYTES", 4 * (3 * 3 + 96) * 5)
    assert torch.equal(refine.fitted(weight, H, result.integers, result.grid, BF16).scale, together)


@pytest.mark.parametrize("block", [128, 7])
def test_a_descent_takes_the_best_value_of_every_column_in_turn(problem, block, monkeypatch):
    weight, H = problem
    monkeypatch.setattr(refine, "BLOCK", block)
    result = nearest(weight, CHOICES[1], BF16)
    order = torch.argsort(torch.diagonal(H), descending=True)
    found = refine.descended(weight, H, result.integers, result.grid, order)
    integers = result.integers.clone()
    for column in order.tolist():
        errors = []
        for value in range(result.grid.low, result.grid.high + 1):
            integers[:, column] = value
            wrong = weight - result.grid.values(integers)
            errors.append((wrong @ H * wrong).sum(1))
        integers[:, column] = torch.stack(errors).argmin(0) + result.grid.low
    assert (found == integers).float().mean() > 0.999  # float32 may turn a tie


def test_what_cannot_be_better_stays(problem):
    weight, H = problem
    result = rounded(weight, H, CHOICES[0], BF16)
    exact = result.grid.values(result.integers)
    integers, found = refine.refined(exact, H, result.integers, result.grid, BF16)
    assert integers is result.integers and found is result.grid


def test_dead_inputs_and_zero_rows(problem):
    weight, H = problem
    H[5], H[:, 5], weight[3], weight[4, :32] = 0, 0, 0, 0
    before = rounded(weight, H, CHOICES[0], BF16)
    after = rounded(weight, H, replace(CHOICES[0], refine=True), BF16)
    assert torch.isfinite(after.grid.scale).all() and (after.grid.scale != 0).all()
    assert not after.grid.values(after.integers)[3].any()
    assert error_of(after, weight, H) <= error_of(before, weight, H)
