"""Refuses an engine whose context cannot fit, before its weights are loaded for minutes."""

from workbench import json_file, memory
from workbench.catalog.capacity import Device, devices
from workbench.catalog.folder import inspect
from workbench.engine import memory_kept
from workbench.engine.facts import EngineFacts
from workbench.engine.fit import fit, has_fixed_cache, shorter_context
from workbench.engine.profile import Profile
from workbench.errors import WorkbenchError

# Further arguments that change what a token takes or how much room there is.
SIZING = ("--max-model-len", "--kv-cache", "--num-gpu-blocks", "--hf-overrides", "--cpu-offload", "--config")
# Parts of names in a configuration whose layers do not keep every token.
FORGETTING = ("mamba", "ssm", "linear_attn", "linear_num", "attention_chunk", "conv", "block_type", "compress")


def device_of(facts: EngineFacts, shown: str = "") -> Device | None:
    """The device that this engine computes on, the first that CUDA shows it; None where there is none of its kind.

    `shown` are the numbers of those GPUs, with commas; empty: those that our own environment names, else all.
    """
    found = [each for each in devices() if each.kind == ("cpu" if facts.cpu else "gpu")]
    return next((found[index] for index in (*memory.seen(shown), 0) if index < len(found)), None)


def check(profile: Profile, interpreter: str, device: Device) -> None:
    """Raise a WorkbenchError, with `max_length` among its values, where not one conversation of the context fits.

    Only where that is certain: a cache of fixed size, or one that would not do with all that the weights leave.
    """
    try:
        model = inspect(profile.model)
    except WorkbenchError:  # vLLM may still read it
        return
    if profile.devices > 1 or forgets(profile) or any(part.startswith(SIZING) for part in profile.extra):
        return
    found = fit(model, profile, device, memory_kept.recall(profile, interpreter, device))
    length = shorter_context(found)
    most = found.available - found.weights - found.draft
    if length is None or not (has_fixed_cache(profile, device) or (found.kv_bytes or 0) > most):
        return
    raise WorkbenchError(
        found.sentence.template, "Serve it with {max_length} tokens, or give the KV cache more room.",
        **found.sentence.values, max_length=length,
    )  # fmt: skip


def forgets(profile: Profile) -> bool:
    """Whether some layers look back only so far, or keep a state in place of tokens: a token then takes less."""
    try:
        config = json_file.read(profile.model / "config.json")
        texts = [config, config.get("text_config") or {}]
        return any(map(_forgets, texts))
    except (OSError, ValueError, AttributeError, TypeError):
        return True


def _forgets(config: dict) -> bool:
    if any(part in name for name in config for part in FORGETTING):
        return True
    if any(kind != "full_attention" for kind in config.get("layer_types") or ()):
        return True
    return bool(config.get("sliding_window")) and config.get("use_sliding_window") is not False
