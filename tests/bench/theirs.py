"""Quantize once with llm-compressor or AutoAWQ, in an environment that holds it: `PYTHON theirs.py SPEC`.

Imports nothing of Lathe. The specification is JSON: `tool`, `model` and `output` (folders), `batches` of token ids
(lists of equally long lists), `threads`, `steps` (AWQ's grid points), and `attention` and `mlp`, each with `method`
(rtn, awq, gptq, awq+gptq) and `weights` (arguments of compressed-tensors, such as group_size and symmetric).
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import footprint
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

ATTENTION, MLP = r"re:.*self_attn\.[qkvo]_proj$", r"re:.*mlp\.(gate|up|down)_proj$"
# What AWQ scales: the layer that gives the scale, and those that take it. Under grouped-query attention v and o
# differ in width, and llm-compressor leaves that pair out by itself.
SCALED = {
    "attention": (("re:.*input_layernorm$", ["q", "k", "v"]), (r"re:.*v_proj$", ["o"])),
    "mlp": (("re:.*post_attention_layernorm$", ["gate", "up"]), (r"re:.*up_proj$", ["down"])),
}


def llmcompressor(spec: dict[str, Any], tool: SimpleNamespace) -> None:
    """A checkpoint in the layout pack-quantized. The order of the modifiers is the one that works: first AWQ's
    scales, then plain rounding, then GPTQ."""
    methods = {part: spec[part]["method"] for part in ("attention", "mlp")}
    mappings = [
        tool.AWQMapping(source, [f"re:.*{name}_proj$" for name in readers])
        for part, method in methods.items()
        if "awq" in method
        for source, readers in SCALED[part]
    ]
    recipe = [tool.AWQModifier(mappings=mappings, n_grid=spec["steps"])] if mappings else []
    for modifier, wanted in ((tool.QuantizationModifier, False), (tool.GPTQModifier, True)):
        groups = {
            part: {"targets": [target], "weights": spec[part]["weights"]}
            for part, target in (("attention", ATTENTION), ("mlp", MLP))
            if ("gptq" in methods[part]) == wanted
        }
        if groups:
            recipe.append(modifier(config_groups=groups))
    if not torch.cuda.is_available():  # pinning memory asks for an accelerator
        tool.IntermediatesCache.pin_memory = lambda self, index: None
    model = AutoModelForCausalLM.from_pretrained(spec["model"], dtype=getattr(torch, spec["dtype"]))
    batches = [{"input_ids": torch.tensor(batch)} for batch in spec["batches"]]
    for batch in batches:
        batch["attention_mask"] = torch.ones_like(batch["input_ids"])
    loader = torch.utils.data.DataLoader(batches, batch_size=None)
    tool.oneshot(
        model=model, dataset=loader, recipe=recipe, pipeline="sequential",
        num_calibration_samples=sum(len(batch) for batch in spec["batches"]),
        propagate_error=spec.get("propagate_error", True),
    )  # fmt: skip
    model.save_pretrained(spec["output"], save_compressed=True)


def autoawq(spec: dict[str, Any], tool: SimpleNamespace) -> dict[str, Any]:
    """The weights that its checkpoint would hold, written out plainly, and the bits that its layout takes for each.

    It joins the samples and cuts them anew at the longest one's length, in one batch.
    """
    weights, samples = spec["mlp"]["weights"], [sample for batch in spec["batches"] for sample in batch]
    longest = max(map(len, samples))
    wrapped = tool.AutoAWQForCausalLM.from_pretrained(spec["model"], torch_dtype=getattr(torch, spec["dtype"]))
    config = {
        "zero_point": not weights["symmetric"], "q_group_size": weights["group_size"], "w_bit": weights["num_bits"],
        "version": "GEMM",
    }  # fmt: skip
    wrapped.quantize(
        AutoTokenizer.from_pretrained(spec["model"]), quant_config=config, calib_data=samples,
        max_calib_samples=len(samples), max_calib_seq_len=longest,
    )  # fmt: skip
    state, stored, count = wrapped.model.state_dict(), 0, 0
    for name, module in wrapped.model.named_modules():
        if hasattr(module, "qweight"):
            parts = [module.qweight, module.qzeros, module.scales]
            codes, zeros, scales = (part.cpu() for part in parts)
            plain = tool.dequantize_gemm(codes, zeros, scales.float(), module.w_bit, module.group_size)
            stored += sum(part.nbytes for part in parts)
            count += plain.numel()
            state = {key: value for key, value in state.items() if not key.startswith(f"{name}.")}
            state[f"{name}.weight"] = plain.T.contiguous().float()
    source = AutoModelForCausalLM.from_pretrained(spec["model"], dtype=torch.float32)
    source.save_pretrained(spec["output"], state_dict=state)
    return {"bits": 8 * stored / count}


def imported(name: str) -> SimpleNamespace:
    """Everything that a tool is called by, so that the import counts neither as time nor as memory."""
    if name == "autoawq":
        from awq import AutoAWQForCausalLM
        from awq.utils.packing_utils import dequantize_gemm

        return SimpleNamespace(AutoAWQForCausalLM=AutoAWQForCausalLM, dequantize_gemm=dequantize_gemm)
    from llmcompressor import oneshot
    from llmcompressor.modifiers.gptq import GPTQModifier
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from llmcompressor.modifiers.transform.awq import AWQMapping, AWQModifier
    from llmcompressor.pipelines.cache import IntermediatesCache

    return SimpleNamespace(
        oneshot=oneshot, GPTQModifier=GPTQModifier, QuantizationModifier=QuantizationModifier, AWQMapping=AWQMapping,
        AWQModifier=AWQModifier, IntermediatesCache=IntermediatesCache,
    )  # fmt: skip


def main(spec: dict[str, Any]) -> None:
    torch.set_num_threads(spec["threads"])
    tool = imported(spec["tool"])
    with footprint.measured() as told:
        told |= globals()[spec["tool"]](spec, tool) or {}
        AutoTokenizer.from_pretrained(spec["model"]).save_pretrained(spec["output"])
        told["tokens"] = sum(len(sample) for batch in spec["batches"] for sample in batch)
        names = (spec["tool"], "torch", "transformers", "compressed-tensors")
        told["versions"] = {name: version(name) for name in names}


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
