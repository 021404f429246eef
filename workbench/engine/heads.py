"""Drafting heads: which method a folder was trained for, and what it expects of its target.

Read from the head's own config.json, with the names of its tensors as the witness where an old config says nothing.
The rules are those of vLLM 0.32's sources (config/speculative.py, model_executor/models/registry.py).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from workbench.catalog.config import first_text, read_config, text_part, whole
from workbench.catalog.model import Model
from workbench.engine.speculation import Speculation

# Speculators' own names for what vLLM calls otherwise.
_SPECULATORS = {"eagle": "eagle", "eagle3": "eagle3", "peagle": "eagle3", "mtp": "mtp", "dflash": "dflash",
                "dflash2": "dflash", "dspark": "dspark"}  # fmt: skip
# Models whose checkpoints hold layers for MTP that vLLM can run: by model_type, or by the start of the architecture.
_MTP_TYPES = re.compile(
    r"(deepseek_v3|deepseek_v32|deepseek_v4|glm_moe_dsa|glm4_moe|glm4_moe_lite|glm_ocr|glm5_next|pangu_ultra_moe"
    r"|kimi_k3|mimo|mimo_v2\w*|ernie4_5_moe|nemotron_h\w*|qwen3_next|qwen4_exp\w*|qwen3_5\w*|bailing_hybrid"
    r"|exaone_moe|exaone4_5\w*|longcat_flash|step3p5|step3p7|hy_v3|hy_v4|dots3_note|minimax_m3\w*|inkling\w*)"
)
# Where a head says how wide its target is, if it is not as wide itself.
_TARGET_WIDTHS = {"eagle3": ("target_hidden_size",), "mtp": ("backbone_hidden_size",)}
_DEPTHS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
_MTP_PART = re.compile(r"(^|[._])(mtp|nextn)")
_BLOCK = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_MEDUSA_BLOCK = re.compile(r"^(?:medusa_heads\.)?(?:blocks\.)?(\d+)\.")

# vLLM decides by these parts of the path before it looks into the folder, for all but the methods it was told first.
_PATH_PARTS = {"eagle-": "eagle", "eagle3": "eagle3", "dflash": "dflash", "dspark": "dspark"}


@dataclass(frozen=True, slots=True)
class Head:
    """`hidden` is the width of the target's states that it reads, `vocab` the size of the vocabulary it shares with it.

    `most` is the number of tokens that it has layers for, `depth` what the number of tokens must be a multiple of once
    it is larger; None where there is no such limit. `width` is its own, `usual` the number of tokens its makers
    name. `layers` are those of the target that it was trained on, empty where it does not say.
    """

    method: str
    hidden: int | None = None
    vocab: int | None = None
    width: int | None = None
    most: int | None = None
    depth: int | None = None
    usual: int | None = None
    parallel: bool = False
    layers: tuple[int, ...] = ()

    def reads(self, depth: int) -> tuple[int, ...]:
        """The layers of a target of `depth` whose outputs it is fed; vLLM's own choice where it says none."""
        if self.method != "eagle3":
            return ()
        return self.layers or (2, depth // 2, depth - 3)


def read(model: Model) -> Head | None:
    """What kind of head the folder holds; None for a model that can write text by itself."""
    if model.format == "gguf":
        return None
    config = read_config(model.folder)
    if speculator := config.get("speculators_model_type"):
        return _speculator(str(speculator), config)
    text = text_part(config)
    method = _method(model, config, text)
    if method is None:
        return None
    width = whole(text, "hidden_size")
    hidden = whole(text, *_TARGET_WIDTHS.get(method, ()), "hidden_size")
    most = _medusa_heads(model) if method == "medusa" else None
    vocab = whole(text, "vocab_size")
    if method == "medusa":  # old ones do not say it; their last layers do, the only ones higher than wide
        vocab = max((each.shape[0] for each in model.tensors if len(each.shape) == 2 and each.shape[0] != width),
                    default=vocab)  # fmt: skip
    depth = whole(text, *_DEPTHS) if method == "mtp" else None
    return Head(method, hidden, vocab, width, most, depth, layers=_layers(config))


def own_layers(target: Model) -> Head | None:
    """The target's own layers for MTP; None where it has none, or its checkpoint was stripped of them."""
    if target.format == "gguf":
        return None
    config = read_config(target.folder)
    text = text_part(config)
    kinds = {str(part.get("model_type", "")) for part in (config, text)}
    depth = whole(text, *_DEPTHS)
    if not depth or not any(_MTP_TYPES.fullmatch(kind) for kind in kinds):
        return None
    held = any(_MTP_PART.search(each.name) or _block(each.name) >= (target.layers or 0) for each in target.tensors)
    return Head("mtp", target.hidden, target.vocab, target.hidden, depth=depth) if held else None


def mistaken(path: str, method: str) -> tuple[str, str] | None:
    """The part of the path by which vLLM would take the folder for another method's, and that method."""
    if method in _PATH_PARTS.values():
        return None
    return next(((part, other) for part, other in _PATH_PARTS.items() if part in path.lower()), None)


def settled(chosen: Speculation, head: Head | None) -> Speculation:
    """The choice with the method that the folder is made for, whatever was chosen."""
    method = head.method if head else "draft_model"
    return replace(chosen, method=method, parallel=bool(head and head.parallel))


def _method(model: Model, config: Mapping[str, Any], text: Mapping[str, Any]) -> str | None:
    names = {first_text(config.get("architectures")), first_text(text.get("architectures"))}
    kind = str(config.get("model_type", ""))
    if any(re.search(r"Eagle3|^P-?[Ee]agle", name) for name in names):
        return "eagle3"
    if any(name.startswith("Eagle") and not name.startswith("Eagle2_5") for name in names):
        return "eagle"
    if kind == "medusa" or "MedusaModel" in names or any("medusa" in key for key in config):
        return "medusa"
    if kind.endswith("_mtp") or any(re.search(r"MTP(Model)?$", name) for name in names) or "assistant" in kind:
        return "mtp"
    for method in ("dflash", "dspark", "mlp_speculator"):
        if method == kind or any(method.replace("_", "") in name.lower() for name in names):
            return method
    return _by_tensors(model)


def _by_tensors(model: Model) -> str | None:
    """Old EAGLE heads call themselves a Llama of one layer; what mixes state and embedding gives them away."""
    joint = next((each for each in model.tensors if each.name in ("fc.weight", "model.fc.weight")), None)
    if joint is None or len(joint.shape) != 2:
        return None
    return "eagle3" if joint.shape[1] > 2 * joint.shape[0] else "eagle"


def _medusa_heads(model: Model) -> int:
    return len({found[1] for each in model.tensors if (found := _MEDUSA_BLOCK.match(each.name))})


def _speculator(kind: str, config: Mapping[str, Any]) -> Head:
    """The format of the speculators library: the layer's config lies inside, the target is named beside it."""
    layer = config.get("transformer_layer_config")
    layer = layer if isinstance(layer, dict) else {}
    width = whole(layer, "hidden_size")
    target = whole(dict(config), "target_hidden_size") or width
    proposals = (config.get("speculators_config") or {}).get("proposal_methods") or [{}]
    usual = proposals[0].get("speculative_tokens") if isinstance(proposals[0], dict) else None
    method = _SPECULATORS.get(kind, kind)
    vocab = whole(layer, "vocab_size")
    return Head(method, target, vocab, width, usual=usual, parallel=kind == "peagle", layers=_layers(config))


def _layers(config: Mapping[str, Any]) -> tuple[int, ...]:
    inner = config.get("eagle_config")
    listed = (inner if isinstance(inner, dict) else config).get("eagle_aux_hidden_state_layer_ids")
    return tuple(listed) if isinstance(listed, list) and all(type(each) is int for each in listed) else ()


def _block(name: str) -> int:
    found = _BLOCK.search(name)
    return int(found[1]) if found else -1
