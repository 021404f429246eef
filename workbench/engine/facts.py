"""What the engine's interpreter offers: vLLM's version, the flags it knows, the device it is built for."""

import json
from dataclasses import dataclass
from pathlib import Path

from workbench import process
from workbench.engine import probe
from workbench.errors import WorkbenchError


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """`python` is the interpreter; `cpu` whether its vLLM computes on the CPU; `plugin` whether ours is found there.

    `openmp` is the path of Intel's OpenMP library, without which n-gram speculation on the CPU is four times slower.
    `methods` are the quantization methods it loads, plugins included; empty where that is not known. `amx` says whether
    the processor has matrix tiles. `drafting` are the methods and keys of its speculative config, empty where it is not
    known; `suffix` says whether the package for suffix decoding is there, `ray` whether Ray is, `nixl` and
    `router` whether those for prefill and decode apart are. `tool_parsers` are the
    readers of tool calls, empty where they are not known.
    """

    python: str
    version: str
    torch: str | None
    cpu: bool
    flags: frozenset[str]
    plugin: bool
    openmp: str | None
    methods: frozenset[str] = frozenset()
    amx: bool = False
    drafting: frozenset[str] = frozenset()
    suffix: bool = False
    ray: bool = False
    tool_parsers: frozenset[str] = frozenset()
    nixl: bool = False
    router: bool = False


async def ask(python: str) -> EngineFacts:
    """The facts of this interpreter, in a tenth of a second; a sentence when it holds no vLLM."""
    lines: list[str] = []
    try:
        # -P and not -I: it must find what the engine will find, what PYTHONPATH names and the user's own packages too.
        await process.run([python, "-P", probe.__file__], log=None, on_line=lines.append, merge_stderr=True)
        found = json.loads(lines[-1])
    except (process.ProcessEnded, ValueError, IndexError) as error:
        raise WorkbenchError(
            "{python} could not be asked what it holds.", "Choose a Python of 3.11 or newer in the settings.",
            python=python,
        ) from error  # fmt: skip
    if found["version"] is None:
        raise WorkbenchError(
            "vLLM is not installed in {python}.", "Install it there: {command}",
            python=python, command=f"{python} -m pip install vllm==0.32.0",
        )  # fmt: skip
    for name in ("flags", "methods", "drafting", "tool_parsers"):
        found[name] = frozenset(found.get(name, ()))
    found["python"] = python
    return EngineFacts(**found)


def source_root() -> Path:
    """The folder that holds `workbench`, for an interpreter in which it is not installed."""
    return Path(__file__).parents[2]
