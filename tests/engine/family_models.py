"""Tiny random models of many families, for quantization by structure."""

from pathlib import Path

import torch
from quantization_models import write_model

MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
DEEPSEEK = {
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "n_group": 1, "topk_group": 1,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "kv_lora_rank": 32, "q_lora_rank": 64, "qk_rope_head_dim": 32,
    "qk_nope_head_dim": 32, "v_head_dim": 32, "num_key_value_heads": 4, "head_dim": 32,
}  # fmt: skip
# The sizes of latent attention that vLLM takes on a CPU, and DeepSeek's own way to longer contexts: without it vLLM
# 0.32 turns the queries wrongly there (its kernel takes three dimensions for something else).
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 256,
        "beta_fast": 32, "beta_slow": 1, "mscale": 0.7, "mscale_all_dim": 0.7}  # fmt: skip
LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "head_dim": 64, "rope_parameters": YARN}
GEMMA = {"query_pre_attn_scalar": 32, "sliding_window": 16}
SETTINGS = {
    "phi3": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0}},
    "gemma": {"hidden_activation": "gelu_pytorch_tanh"},
    "gemma2": GEMMA,
    "gemma3_text": GEMMA | {"layer_types": ["sliding_attention", "full_attention"]},
    "glm4": {"attention_bias": True},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": MOE | {"shared_expert_intermediate_size": 64},
    "qwen3_moe": MOE,
    "deepseek_v2": DEEPSEEK,
    "deepseek_v3": DEEPSEEK | {"topk_method": "noaux_tc", "scoring_func": "sigmoid"},
    "glm4_moe": DEEPSEEK | {"num_key_value_heads": 2},
    "cohere": {"logit_scale": 0.5},  # attention and MLP side by side behind one norm
}


def write_family(folder: Path, family: str, dtype: torch.dtype = torch.bfloat16, change=None, **settings) -> Path:
    """F-TINY in the words of another family."""
    return write_model(folder, family, dtype, change, **SETTINGS[family] | settings)
