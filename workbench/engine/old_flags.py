"""A vLLM command of any year, pasted in, as a profile of today, with a note on each flag that changed.

What an option is called today is in command.py; here is only what options were called, and what became of them.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workbench.engine.command import FLAGS, OURS
from workbench.engine.facts import EngineFacts
from workbench.engine.lora import read_adapter
from workbench.engine.profile import KV_DTYPES, Adapter, Profile
from workbench.engine.speculation import Speculation
from workbench.errors import WorkbenchError
from workbench.words import Sentence

# Flags that never changed, and those whose name alone did.
NAMES = {flag: name for name, flag in FLAGS.items() if name not in ("running", "speculation", "adapters", "kv_gib")} | {
    "--dtype": "dtype", "--scheduler-policy": "scheduling", "--port": "port",
}  # fmt: skip
# What became of flags that are gone. None: the engine does it by itself.
GONE = {
    "--enable-prefill-preemption": Sentence(
        "{flag} is gone: prefill runs in chunks beside decoding by itself. Limit a step with Tokens a step, or choose "
        "priority scheduling."
    ),
    "--use-v2-block-manager": None,
    "--num-scheduler-steps": None,
    "--multi-step-stream-outputs": None,
    "--disable-async-output-proc": None,
    "--engine-use-ray": None,
    "--disable-frontend-multiprocessing": None,
    "--enable-reasoning": None,
    "--disable-log-requests": None,
    "--swap-space": Sentence("{flag} is gone: a sequence that does not fit is computed again, not swapped out."),
    "--preemption-mode": Sentence("{flag} is gone: a sequence that does not fit is computed again, not swapped out."),
    "--device": Sentence("{flag} is gone: each build of vLLM is for one kind of device."),
    "--spec-decoding-acceptance-method": Sentence("{flag} is gone: vLLM keeps the model's own distribution exactly."),
    "--typical-acceptance-sampler-posterior-threshold": Sentence(
        "{flag} is gone: vLLM keeps the model's own distribution exactly."
    ),
    "--quantization-param-path": Sentence("{flag} is gone: scales for an FP8 cache come from the checkpoint."),
    "--worker-use-ray": Sentence("{flag} is gone: write --distributed-executor-backend ray."),
    "--guided-decoding-backend": Sentence("{flag} is gone: write --structured-outputs-config."),
    "--rope-scaling": Sentence("{flag} is gone: write --hf-overrides."),
    "--rope-theta": Sentence("{flag} is gone: write --hf-overrides."),
}
LEFT_OUT = {
    "--host": Sentence("{flag} is left out: Lathe's engines listen on this machine only."),
    "--api-key": Sentence("{flag} is left out: each start makes a new key."),
}
DRAFTING = {
    "--speculative-model": "model", "--spec-model": "model",
    "--num-speculative-tokens": "tokens", "--spec-tokens": "tokens",
    "--ngram-prompt-lookup-max": "lookup_max", "--ngram-prompt-lookup-min": "lookup_min",
    "--speculative-disable-by-batch-size": "limit",
}  # fmt: skip
SWITCHES = {"--enable-prefix-caching": True, "--no-enable-prefix-caching": False}
SHORT = {
    "-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size", "-dp": "--data-parallel-size",
    "-q": "--quantization", "-sc": "--speculative-config", "-cc": "--compilation-config",
}  # fmt: skip
RENAMED = {
    "kv_dtype": {"fp16": "float16", "half": "float16", "bf16": "bfloat16"},
    "dtype": {"half": "float16", "float": "float32"},
    "executor": {"uni": "auto"},
}
IN_MODEL = {"awq", "awq_marlin", "gptq", "gptq_marlin", "marlin", "compressed-tensors"}  # the config says so itself
IMAGE = "vllm/vllm-openai"


@dataclass
class Translation:
    """The profile, and what there is to say about the flags, in their order. `flag` of a note is the one pasted."""

    profile: Profile
    notes: list[tuple[str, Sentence]] = field(default_factory=list)


def translate(text: str, facts: EngineFacts) -> Translation:
    """The profile that `text` means. Raises WorkbenchError where it is no command or names no model."""
    words = _words(text)
    return _Reader(words, facts).run()


def _words(text: str) -> list[str]:
    try:
        words = shlex.split(re.sub(r"\\\s*\n", " ", text.strip().removeprefix("$ ")), comments=True)
    except ValueError as error:
        raise WorkbenchError(
            "The command cannot be read: {reason}", "Close every quotation mark.", reason=str(error)
        ) from error
    return words


class _Reader:
    """Goes through the words once: what stands before the first flag, then each flag with its values."""

    def __init__(self, words: list[str], facts: EngineFacts):
        self.facts = facts
        image = next((at for at, word in enumerate(words) if word.startswith(IMAGE)), None)
        if image is not None:  # what stands before it is for the container's program
            words = ["serve", *words[image + 1 :]]
        first = next((at for at, word in enumerate(words) if _is_flag(word)), len(words))
        self.before, self.words = words[:first], words[first:]
        self.chosen: dict[str, Any] = {}
        self.drafting: dict[str, str] = {}
        self.extra: list[str] = []
        self.notes: list[tuple[str, Sentence]] = []

    def run(self) -> Translation:
        self._variables()
        model = self._model()
        for flag, values in self._flags():
            if flag == "--model":
                model = values[0] if values else model
            else:
                self._take(flag, values)
        if not model:
            raise WorkbenchError("The command names no model.", "Paste it whole, with the model's folder.")
        speculation = self._speculation()
        profile = Profile(Path(model).expanduser(), speculation=speculation, extra=tuple(self.extra))
        return Translation(replace(profile, **self.chosen), self.notes)

    def _variables(self) -> None:
        for word in self.before:
            name, is_set, value = word.partition("=")
            if name == "VLLM_ATTENTION_BACKEND" and is_set:
                self.chosen["attention"] = value
                self._note(name, Sentence("{flag} is now a choice of the profile.", {"flag": name}))
            elif is_set and name.isidentifier():
                self._note(name, Sentence("{flag} is left out: set it where Lathe is started.", {"flag": name}))

    def _model(self) -> str:
        """What follows `serve`, if anything does."""
        if "serve" in self.before[:-1]:
            return self.before[self.before.index("serve") + 1]
        return ""

    def _flags(self) -> Iterator[tuple[str, list[str]]]:
        at = 0
        while at < len(self.words):
            flag, joined, value = self.words[at].partition("=")
            at += 1
            values = [value] if joined else []
            while not joined and at < len(self.words) and not _is_flag(self.words[at]):
                values.append(self.words[at])
                at += 1
            yield SHORT.get(flag, flag.replace("_", "-")), values

    def _take(self, flag: str, values: list[str]) -> None:
        if flag in DRAFTING:
            self.drafting[DRAFTING[flag]] = values[0] if values else ""
            self._note(flag, Sentence("{flag} is now part of the speculation.", {"flag": flag}))
        elif flag in SWITCHES:
            self.chosen["prefix_cache"] = SWITCHES[flag]
        elif flag == "--enforce-eager":
            self.chosen["running"] = "eager"
        elif flag == "--served-model-name":
            self.chosen["name"] = values[0] if values else ""
        elif flag == "--lora-modules":
            self.chosen["adapters"] = tuple(_adapter(value) for value in values)
        elif flag in ("--enable-lora", "--max-loras", "--max-lora-rank", "--enable-auto-tool-choice"):
            pass  # follows from the adapters, and from the parser of tool calls
        elif flag == "--quantization" and values and values[0] in IN_MODEL:
            self._note(flag, Sentence("{flag} is left out: vLLM reads it from the model.", {"flag": flag}))
        elif flag in NAMES:
            self._field(flag, values)
        elif flag in LEFT_OUT or flag in GONE or flag in OURS:
            told = LEFT_OUT.get(flag) or GONE.get(flag) or Sentence("{flag} is gone: vLLM does it by itself.")
            self._note(flag, Sentence(told.template, {"flag": flag}))
        elif flag in self.facts.flags or "--" + flag.removeprefix("--no-") in self.facts.flags:
            self.extra += [flag, *values]
        else:
            told = Sentence(
                "vLLM {version} does not know {flag}; it is left out.", {"version": self.facts.version, "flag": flag}
            )
            self._note(flag, told)

    def _field(self, flag: str, values: list[str]) -> None:
        name = NAMES[flag]
        if not values:
            raise WorkbenchError("{flag} has no value.", "Paste the command whole.", flag=flag)
        value = _READ[name](flag, values[0]) if name in _READ else RENAMED.get(name, {}).get(values[0], values[0])
        if name == "kv_dtype" and value not in KV_DTYPES:
            value = "auto"
        if value != values[0] and name in RENAMED:
            told = Sentence("{flag} {old} is called {new} today.", {"flag": flag, "old": values[0], "new": value})
            self._note(flag, told)
        if flag == "--scheduler-policy":
            self._note(flag, Sentence("{flag} is called {new} today.", {"flag": flag, "new": FLAGS[name]}))
        self.chosen[name] = value

    def _speculation(self) -> Speculation | None:
        told = self.drafting
        if not told:
            return None
        numbers: dict[str, Any] = {
            name: int(_number(flag, told[name]))
            for flag, name in DRAFTING.items()
            if name in told and name not in ("model", "limit")
        }
        tokens = numbers.get("tokens", Speculation().tokens)
        if limit := told.get("limit"):
            numbers["steps"] = ((int(_number("--speculative-disable-by-batch-size", limit)), tokens),)
        if told.get("model") == "[ngram]":
            numbers["lookup_min"] = min(numbers.get("lookup_min", 1), numbers.get("lookup_max", 4))
            return Speculation("ngram", **numbers)
        if not told.get("model"):
            raise WorkbenchError(
                "The draft model is missing.", "Choose the folder of a small model of the same family."
            )
        for name in ("lookup_max", "lookup_min"):
            numbers.pop(name, None)
        return Speculation("draft_model", draft=Path(told["model"]).expanduser(), **numbers)

    def _note(self, flag: str, sentence: Sentence) -> None:
        self.notes.append((flag, sentence))


def _whole(flag: str, text: str) -> int:
    return int(_number(flag, text))


def _is_flag(word: str) -> bool:
    return word.startswith("--") or word.partition("=")[0] in SHORT


def _number(flag: str, text: str) -> float:
    """As vLLM reads it: 32k is 32,000, and 32K 32,768."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgG]?)", text)
    if not found:
        raise WorkbenchError("{flag} {value} is no number.", "Correct it, or leave it out.", flag=flag, value=text)
    scale = {"": 1, "k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30}[found[2]]
    return float(found[1]) * scale


def _adapter(text: str) -> Adapter:
    if text.startswith("{"):
        try:
            told = json.loads(text)
            return Adapter(told["name"], Path(told["path"]))
        except (ValueError, LookupError, TypeError) as error:
            raise WorkbenchError("{text} names no LoRA adapter.", "Write it as name=folder.", text=text[:60]) from error
    return read_adapter(text)


_READ: dict[str, Callable[[str, str], Any]] = dict.fromkeys(
    (
        "context", "max_sequences", "block_size", "batched_tokens", "port", "tensor_parallel", "pipeline_parallel",
        "data_parallel", "long_prefill",
    ),
    _whole,
)  # fmt: skip
_READ |= {"memory_share": _number, "chat_template": lambda flag, text: Path(text).expanduser()}
