"""AWQ's scales alone change nothing that the model says (H11 b, H12)."""

import pytest
import torch
from quantization_models import TEXT, byte_tokenizer, write_model
from transformers import AutoModelForCausalLM

from workbench.quantization import awq
from workbench.quantization.graph import repeated

BF16 = torch.bfloat16


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("llama", {"attention_bias": True, "tie_word_embeddings": True}),
        ("llama", {"num_attention_heads": 8}),  # each value head is read by four
        ("qwen2", {}),
        ("qwen3", {}),
    ],
)
def test_a_folded_model_gives_the_logits_of_its_source(tmp_path, family, settings):
    source = write_model(tmp_path / "m", family, BF16, **settings)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).requires_grad_(False)
    prompts = [torch.tensor([byte_tokenizer()(TEXT)["input_ids"][at : at + 30]]) for at in range(0, 50, 10)]
    before = [model(prompt).logits for prompt in prompts]
    torch.manual_seed(1)
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        repeat = attention.o_proj.in_features // attention.v_proj.out_features
        readers = [attention.q_proj, attention.k_proj, attention.v_proj]
        awq.fold_norm(layer.input_layernorm, readers, scale(64), BF16)
        awq.fold_norm(layer.post_attention_layernorm, [mlp.gate_proj, mlp.up_proj], scale(64), BF16)
        rows = repeated(attention.v_proj.out_features, repeat, 32)
        values = scale(attention.v_proj.out_features)[rows]
        used = awq.fold_rows(attention.v_proj, attention.o_proj, values, rows, BF16)
        assert used.max() > 2 and used.min() < 0.5
        awq.fold_rows(mlp.up_proj, mlp.down_proj, scale(128), torch.arange(128), BF16)
        for name in ("input_layernorm", "post_attention_layernorm"):
            kept = getattr(layer, name).weight
            assert torch.equal(kept, kept.to(BF16).float())
    for prompt, right in zip(prompts, before, strict=True):
        assert right.std() > 0.3
        assert (model(prompt).logits - right).abs().max() < 1e-3


def scale(size):
    return torch.exp(torch.randn(size))
