"""What the user chose for one engine."""

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

    def __post_init__(self) -> None:
        check_closed(self)
        for name in ("context", "kv_gib", "max_sequences", "block_size", "batched_tokens"):
            if (value := getattr(self, name)) is not None and value <= 0:
                raise WorkbenchError(
                    "{label} cannot be {value}.", "Choose more than 0, or leave it empty.",
                    label=label_of(self, name), value=value,
                )  # fmt: skip
        if self.memory_share is not None and not 0 < self.memory_share <= 1:
            raise WorkbenchError(
                "{value} is no share of the GPU memory.", "Choose a number between 0 and 1.", value=self.memory_share
            )
        if not 0 <= self.port <= 65535:
            raise WorkbenchError("{port} is no port.", "Choose 1024 to 65535, or 0 for a free one.", port=self.port)
        names = [self.served_name, *(adapter.name for adapter in self.adapters)]
        if twice := next((name for name in names if names.count(name) > 1 or not name), None):
            raise WorkbenchError(
                "Two models would be called {name}.", "Give each adapter a name of its own.", name=twice
            )

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
