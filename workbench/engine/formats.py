"""Which quantized checkpoints the installed engine can serve, and why not the others.

The limits are those of vLLM 0.32's sources; where the engine is older, only its own list of methods is asked.
"""

import re
from dataclasses import dataclass
from typing import Any

from workbench.catalog import quantized
from workbench.catalog.quantized import METHODS, Quantized
from workbench.catalog.schemes import FLOAT, INT, Scheme
from workbench.engine.facts import EngineFacts
from workbench.engine.probe import PLUGINS
from workbench.engine.profile import Profile
from workbench.errors import WorkbenchError
from workbench.words import Sentence

READ = (0, 32)  # the version whose sources the limits below were read in
GROUPS = (-1, 32, 64, 128)
# How vLLM's list calls what a checkpoint names otherwise.
_ALIASES = {"auto-round": "inc", "gptq": "auto_gptq", "awq": "auto_awq"}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the engine cannot serve a checkpoint, and what to do instead."""

    sentence: Sentence
    hint: Sentence


def check(profile: Profile, facts: EngineFacts) -> None:
    """Raise a WorkbenchError when this engine refuses the weights of the profile's model."""
    stored = quantized.of_folder(profile.model)
    if stored and (refused := refusal(stored, facts)):
        values = refused.sentence.values | refused.hint.values
        raise WorkbenchError(refused.sentence.template, refused.hint.template, **values)


def refusal(stored: Quantized, facts: EngineFacts) -> Refusal | None:
    """Why these weights cannot be served; None where nothing is known against it."""
    name, values = METHODS.get(stored.method, stored.method), {"version": facts.version}
    if stored.method == "gguf":
        return Refusal(
            Sentence("Lathe does not serve GGUF files: vLLM has no kernels of its own for them."),
            Sentence("Choose the safetensors repository of the same model."),
        )
    if not stored.source:
        return Refusal(
            Sentence("The weights look like {method}, but no file says how they are quantized.", {"method": name}),
            Sentence("Copy config.json or quantize_config.json from where the model came from."),
        )
    if facts.methods and not {stored.method, _ALIASES.get(stored.method)} & facts.methods:
        return _unknown(stored.method, name, facts)
    if _version(facts.version) < READ:
        return None
    for scheme in stored.schemes:
        refused = _scheme(stored, scheme, facts)
        if refused:
            return Refusal(Sentence(refused.sentence.template, refused.sentence.values | values), refused.hint)
    return None


def _unknown(method: str, name: str, facts: EngineFacts) -> Refusal:
    values: dict[str, Any] = {"version": facts.version, "method": name}
    told = Sentence("vLLM {version} does not load weights quantized with {method}.", values)
    if plugin := PLUGINS.get(method):
        command = f"{facts.python} -m pip install {plugin}"
        return Refusal(told, Sentence("Install vLLM's plugin for it: {command}", {"command": command}))
    return Refusal(told, Sentence("Quantize the original model here."))


def _scheme(stored: Quantized, scheme: Scheme, facts: EngineFacts) -> Refusal | None:
    values = {"bits": scheme.bits, "size": scheme.group_size}
    again = Sentence("Quantize the original model here.")
    if scheme.order:
        return Refusal(
            Sentence("vLLM {version} no longer loads weights in activation order with groups (desc_act)."), again
        )
    if stored.method == "awq" and scheme.bits not in (4, None):
        return Refusal(Sentence("vLLM {version} loads AWQ weights of 4 bits only; these have {bits}.", values), again)
    if stored.method == "gptq":
        if scheme.bits not in (4, 8, None):
            return Refusal(
                Sentence("vLLM {version} loads GPTQ weights of 4 or 8 bits; these have {bits}.", values), again
            )
        if scheme.symmetric is False:
            return Refusal(Sentence("vLLM {version} loads symmetric GPTQ weights only; these have zero points."), again)
        if scheme.group_size not in (*GROUPS, None):
            return Refusal(
                Sentence("vLLM {version} loads GPTQ groups of 32, 64, 128 or whole rows; these have {size}.", values),
                again,
            )
    if stored.gaps and scheme.bits and 32 % scheme.bits:
        return Refusal(
            Sentence(
                "vLLM {version} reads {bits}-bit weights only where they run on from word to word; "
                "these leave bits over in each.",
                values,
            ),
            Sentence("Quantize the original model here."),
        )
    return _on_cpu(stored, scheme, facts, values) if facts.cpu else None


def _on_cpu(stored: Quantized, scheme: Scheme, facts: EngineFacts, values: dict[str, Any]) -> Refusal | None:
    """What has kernels on GPUs only (the Humming package has those of odd widths and of 2 bits).

    Our own kernel adds 2, 3 and 8 bits to compressed-tensors, not to the other formats.
    """
    again = Sentence("Serve it on a GPU, or quantize the original model here.")
    tiles = facts.amx and scheme.bits == 8  # the only products with floats that vLLM has for a CPU
    if scheme.number == FLOAT and stored.method != "bitsandbytes" and not tiles:
        return Refusal(
            Sentence("This processor cannot compute with {bits}-bit floats in vLLM {version}.", values), again
        )
    if scheme.number == INT and not scheme.activations:
        if stored.method == "gptq" and scheme.bits == 8:
            return Refusal(Sentence("On a CPU vLLM {version} loads GPTQ weights of 4 bits only."), again)
        if stored.method == "compressed-tensors" and scheme.bits not in (2, 3, 4, 8, None):
            return Refusal(
                Sentence("On a CPU vLLM {version} loads weights of 2, 3, 4 or 8 bits; these have {bits}.", values),
                again,
            )
    return None


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])
