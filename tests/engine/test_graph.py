"""What a run of a block shows: shared inputs, norms that may take scales, rows that feed columns."""

import pytest
import torch
from family_models import SETTINGS, write_family

from workbench.quantization import graph
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
