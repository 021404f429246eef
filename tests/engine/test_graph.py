"""What a run of a block shows: shared inputs, norms that may take scales, rows that feed columns."""

import pytest
import torch
from family_models import SETTINGS, write_family
from quantization_models import write_model

from workbench.quantization import graph, streams
from workbench.quantization.blocks import Skeleton

PAIRS = {
    "phi3": {"o_proj": "qkv_proj", "down_proj": "gate_up_proj"},
    "gemma2": {"o_proj": "v_proj", "down_proj": "up_proj"},
    "glm4": {"o_proj": "v_proj", "down_proj": "gate_up_proj"},
    "deepseek_v2": {"o_proj": "kv_b_proj", "down_proj": "up_proj"},
    "mixtral": {"o_proj": "v_proj"},
    "qwen2_moe": {"o_proj": "v_proj", "down_proj": "up_proj"},
}
NORMS = {
    "phi3": ["input_layernorm", "post_attention_layernorm"],
    "gemma2": ["input_layernorm", "pre_feedforward_layernorm"],
    "glm4": ["input_layernorm", "post_attention_layernorm"],
    "deepseek_v2": [
        "input_layernorm", "self_attn.q_a_layernorm", "self_attn.kv_a_layernorm", "post_attention_layernorm",
    ],  # the first block has no experts
    "mixtral": ["input_layernorm"],
    "qwen2_moe": ["input_layernorm"],  # the router reads the second norm too
}  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("family", PAIRS)
def test_a_block_shows_how_its_layers_hang_together(tmp_path, family):
    skeleton = Skeleton(write_family(tmp_path / "m", family), torch.device("cpu"))
    block = skeleton.load(0)
    tokens = torch.randn(1, 16, 64)
    known = graph.learn(block, lambda: skeleton.run(block, tokens))
    found = {feed.reader.rpartition(".")[2]: feed.source.rpartition(".")[2] for feed in known.feeds}
    assert found == PAIRS[family]
    assert [stage.norm for stage in known.stages if stage.norm] == NORMS[family]


def test_a_norm_that_adds_one_is_known(tmp_path):
    for family, added in (("gemma2", 1.0), ("gemma3_text", 1.0), ("glm4", 0.0), ("mixtral", 0.0)):
        skeleton = Skeleton(write_family(tmp_path / family, family), torch.device("cpu"))
        norm = skeleton.load(0).input_layernorm
        before = norm.weight.clone()
        assert graph.offset(norm) == added and torch.equal(norm.weight, before)


def test_every_family_has_its_settings():
    assert set(PAIRS) <= set(SETTINGS)


@pytest.mark.parametrize(
    ("family", "right"),
    [
        ("llama", {"self_attn.o_proj": "post_attention_layernorm", "mlp.down_proj": streams.LEAVING}),
        ("gemma2", {"self_attn.o_proj": "post_attention_layernorm", "mlp.down_proj": "post_feedforward_layernorm"}),
        ("cohere", {"self_attn.o_proj": streams.LEAVING, "mlp.down_proj": streams.LEAVING}),
    ],
)
def test_where_an_output_stands_in_the_stream(tmp_path, family, right):
    write = write_model if family == "llama" else write_family
    skeleton = Skeleton(write(tmp_path / "m", family), torch.device("cpu"))
    block = skeleton.load(0)
    tokens = torch.randn(1, 16, 64)
    linears = [path for path, module in block.named_modules() if isinstance(module, torch.nn.Linear)]
    assert streams.points(block, linears, lambda: skeleton.run(block, tokens)) == right
