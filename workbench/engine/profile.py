"""What the user chose for one engine."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from workbench.engine.speculation import Speculation
from workbench.errors import WorkbenchError
from workbench.events import Failed
from workbench.option import check_closed, label_of, option

DTYPES = ("auto", "bfloat16", "float16", "float32")
KV_DTYPES = ("auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2")
RUNNING = ("auto", "eager", "graphs", "compile")
SCHEDULING = ("fcfs", "priority")
EXECUTORS = ("auto", "mp", "ray")
# What Ray takes for a cluster: its port at some machine, by its client's protocol or not, or one that it finds itself.
RAY_ADDRESS = re.compile(r"auto|local|(ray://)?[^\s/:@]+:\d{1,5}")


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter, requested as a model of this name."""

    name: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Profile:
    """One engine. None leaves the choice to the engine; `port` 0 takes a free one.

    `context` in tokens; `memory_share` of the whole GPU, 0 to 1; `kv_gib` fixes the KV cache's size in GiB;
    `block_size` in tokens; `batched_tokens` is the most that one step computes; `extra` are further arguments of the
    engine, each one element. `running` is how the model's code runs: "graphs" replays CUDA graphs of uncompiled code,
    "compile" compiles it first; "auto" compiles on a GPU and not on a CPU. An empty `attention` is the engine's choice.
    `tensor_parallel` devices share each layer, `pipeline_parallel` groups of those share the layers among them, and
    `data_parallel` such engines answer behind one address. An empty `ray_address` lets Ray look.
    `long_prefill` is the most that one step computes of any one prompt, so that short ones pass a long one.
    A `tool_parser` reads the calls of tools in the model's answers; without one a model calls none by itself.
    """

    model: Path
    name: str = option("", "Served name")
    dtype: str = option("auto", "Computing type", *DTYPES)
    context: int | None = option(None, "Context length")
    memory_share: float | None = option(None, "Share of the GPU memory")
    kv_gib: float | None = option(None, "KV cache (GiB)")
    max_sequences: int | None = option(None, "Sequences at once")
    block_size: int | None = option(None, "Tokens a block")
    speculation: Speculation | None = option(None, "Speculation")
    port: int = option(0, "Port")
    extra: tuple[str, ...] = option((), "Further arguments")
    kv_dtype: str = option("auto", "KV cache type", *KV_DTYPES)
    batched_tokens: int | None = option(None, "Tokens a step")
    prefix_cache: bool | None = option(None, "Prefix cache", None, True, False)
    scheduling: str = option("fcfs", "Scheduling", *SCHEDULING)
    running: str = option("auto", "Running", *RUNNING)
    attention: str = option("", "Attention backend")
    adapters: tuple[Adapter, ...] = option((), "LoRA adapters")
    chat_template: Path | None = option(None, "Chat template")
    tensor_parallel: int = option(1, "Tensor parallel")
    pipeline_parallel: int = option(1, "Pipeline parallel")
    data_parallel: int = option(1, "Data parallel")
    executor: str = option("auto", "Executor", *EXECUTORS)
    ray_address: str = option("", "Ray address")
    tool_parser: str = option("", "Tool call parser")
    long_prefill: int | None = option(None, "Tokens a step of one prompt")

    def __post_init__(self) -> None:
        check_closed(self)
        for name in ("context", "kv_gib", "max_sequences", "block_size", "batched_tokens", "long_prefill"):
            if (value := getattr(self, name)) is not None and value <= 0:
                raise WorkbenchError(
                    "{label} cannot be {value}.", "Choose more than 0, or leave it empty.",
                    label=label_of(self, name), value=value,
                )  # fmt: skip
        if self.memory_share is not None and not 0 < self.memory_share <= 1:
            raise WorkbenchError(
                "{value} is no share of the GPU memory.", "Choose a number between 0 and 1.", value=self.memory_share
            )
        for name in ("tensor_parallel", "pipeline_parallel", "data_parallel"):
            if (value := getattr(self, name)) < 1:
                raise WorkbenchError(
                    "{label} cannot be {value}.", "Choose 1 or more.", label=label_of(self, name), value=value
                )
        if self.ray_address and self.executor != "ray":
            raise WorkbenchError(
                "A Ray address is of use to the Ray executor only.", "Choose that executor, or leave the address empty."
            )
        if self.ray_address and not RAY_ADDRESS.fullmatch(self.ray_address):
            raise WorkbenchError(
                "{address} is no Ray address.", "Write machine:6379, ray://machine:10001 or auto.",
                address=self.ray_address,
            )  # fmt: skip
        if not 0 <= self.port <= 65535:
            raise WorkbenchError("{port} is no port.", "Choose 1024 to 65535, or 0 for a free one.", port=self.port)
        names = [self.served_name, *(adapter.name for adapter in self.adapters)]
        if twice := next((name for name in names if names.count(name) > 1 or not name), None):
            raise WorkbenchError(
                "Two models would be called {name}.", "Give each adapter a name of its own.", name=twice
            )

    @property
    def devices(self) -> int:
        """How many devices it computes on, each with a process of its own."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def served_name(self) -> str:
        """The name that requests use; the folder's when none was chosen."""
        return self.name or self.model.name


def shorter(profile: Profile, failed: Failed) -> Profile | None:
    """The same engine with the context that the refusal said would fit; None when it said none."""
    length = failed.values.get("max_length")
    return replace(profile, context=length) if length else None


def absolute(profile: Profile) -> Profile:
    """The same engine, whatever folder its command is given in."""
    drafting = profile.speculation
    if drafting and drafting.draft:
        drafting = replace(drafting, draft=drafting.draft.absolute())
    return replace(
        profile,
        model=profile.model.absolute(),
        speculation=drafting,
        adapters=tuple(replace(each, folder=each.folder.absolute()) for each in profile.adapters),
        chat_template=profile.chat_template and profile.chat_template.absolute(),
    )
