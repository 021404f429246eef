"""`lathe serve`: an engine by its options or by a kept profile, started, kept, or written in another form."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from workbench import cli_apart, cli_ledger, settings, terminal
from workbench.admission import Ask
from workbench.cli_engine import Context, DraftTokens, drafting_of, servable
from workbench.cli_watch import Figures
from workbench.engine.lora import read_adapter
from workbench.engine.profile import Profile
from workbench.engine.separation import Separation
from workbench.engine_events import EngineReady
from workbench.errors import WorkbenchError
from workbench.events import Event
from workbench.interrupt import run_until_done
from workbench.words import say

Name = Annotated[str | None, typer.Option("--name", help="The model name that requests use.")]
Dtype = Annotated[str | None, typer.Option(help="Computing type: auto, bfloat16, float16 or float32.")]
MemoryShare = Annotated[float | None, typer.Option(help="Share of the GPU memory, 0 to 1.")]
MaxSequences = Annotated[int | None, typer.Option(help="Sequences at once.")]
BlockSize = Annotated[int | None, typer.Option(help="Tokens in a block of the KV cache.")]
KvDtype = Annotated[str | None, typer.Option("--kv-dtype", help="Of the KV cache: auto, float16, bfloat16 or fp8.")]
BatchedTokens = Annotated[int | None, typer.Option(help="The most tokens that one step computes.")]
LongPrefill = Annotated[int | None, typer.Option(help="The most tokens that one step computes of any one prompt.")]
PrefixCache = Annotated[bool | None, typer.Option("--prefix-cache/--no-prefix-cache", help="Reuse common beginnings.")]
Scheduling = Annotated[str | None, typer.Option(help="fcfs or priority.")]
Running = Annotated[str | None, typer.Option("--run", help="auto, eager, graphs or compile.")]
Attention = Annotated[str | None, typer.Option(help="Attention backend, such as FLASH_ATTN.")]
Lora = Annotated[list[str] | None, typer.Option("--lora", metavar="NAME=FOLDER", help="A LoRA adapter; repeatable.")]
Template = Annotated[Path | None, typer.Option("--chat-template", help="A Jinja file in place of the model's own.")]
TensorParallel = Annotated[int | None, typer.Option(help="Devices that share each layer.")]
PipelineParallel = Annotated[int | None, typer.Option(help="Stages that share the layers among them.")]
DataParallel = Annotated[int | None, typer.Option(help="Such engines behind one address.")]
Executor = Annotated[str | None, typer.Option(help="auto, mp for processes here, or ray.")]
RayAddress = Annotated[str | None, typer.Option(help="Of a Ray cluster, such as machine:6379 or auto.")]
ToolParser = Annotated[str | None, typer.Option(help="Let the model call tools, its calls read by this parser.")]
Speculate = Annotated[
    str | None,
    typer.Option(help="off, ngram, suffix, mtp for the model's own layers, or the folder of a draft or a head."),
]
DraftSteps = Annotated[
    str, typer.Option("--draft-tokens-by-load", help="Such as 4:4,16:1: up to 4 sequences 4 tokens, beyond 16 none.")
]
DraftSampling = Annotated[str, typer.Option(help="How a draft chooses its tokens: greedy or probabilistic.")]
MixedVocabulary = Annotated[
    bool,
    typer.Option("--mixed-vocabulary", help="Let a draft with other padding or added tokens draft what both have."),
]
KvGib = Annotated[float | None, typer.Option(help="Memory for the KV cache in GiB.")]
Extra = Annotated[
    list[str] | None, typer.Option("--engine-argument", help="One further argument for vLLM; repeatable.")
]
Port = Annotated[int | None, typer.Option(help="0 takes a free one.")]
UnloadIdle = Annotated[
    float | None, typer.Option(metavar="MINUTES", min=0.01, help="End it when it had nothing to do for so long.")
]
FORMS = ("command", "systemd", "compose")


def serve(
    model: Annotated[Path | None, typer.Argument(help="A model folder; may be left out with --profile.")] = None,
    profile: Annotated[
        str, typer.Option("--profile", help="A name that `lathe profiles` lists, or a profile file.")
    ] = "",
    name: Name = None,
    dtype: Dtype = None,
    context: Context = None,
    kv_gib: KvGib = None,
    memory_share: MemoryShare = None,
    max_sequences: MaxSequences = None,
    block_size: BlockSize = None,
    kv_dtype: KvDtype = None,
    batched_tokens: BatchedTokens = None,
    prefix_cache: PrefixCache = None,
    scheduling: Scheduling = None,
    running: Running = None,
    attention: Attention = None,
    lora: Lora = None,
    chat_template: Template = None,
    tensor_parallel: TensorParallel = None,
    pipeline_parallel: PipelineParallel = None,
    data_parallel: DataParallel = None,
    executor: Executor = None,
    ray_address: RayAddress = None,
    tool_parser: ToolParser = None,
    long_prefill: LongPrefill = None,
    speculate: Speculate = None,
    draft_tokens: DraftTokens = 4,
    draft_tokens_by_load: DraftSteps = "",
    draft_sampling: DraftSampling = "greedy",
    mixed_vocabulary: MixedVocabulary = False,
    port: Port = None,
    extra: Extra = None,
    keep: Annotated[
        str, typer.Option("--keep", metavar="NAME", help="Keep these choices as a profile; start nothing.")
    ] = "",
    overwrite: Annotated[bool, typer.Option("--replace", help="With --keep: also where the name is taken.")] = False,
    show: Annotated[bool, typer.Option(help="Print the exact command and do nothing else.")] = False,
    form: Annotated[
        str,
        typer.Option(
            "--export", help="Print it as a command, a unit of systemd or a compose file: " + ", ".join(FORMS)
        ),
    ] = "",
    figures_file: Figures = None,
    wait: cli_ledger.Wait = False,
    anyway: cli_ledger.Anyway = False,
    unload_idle: UnloadIdle = None,
    separate: cli_apart.Separate = "",
    prefill_url: cli_apart.PrefillUrl = None,
    decode_url: cli_apart.DecodeUrl = None,
    prefill_devices: cli_apart.Devices = None,
    decode_devices: cli_apart.Devices = None,
    prefill_tensor_parallel: cli_apart.Width = None,
    decode_tensor_parallel: cli_apart.Width = None,
    key: cli_apart.LegKey = "",
    measure: cli_apart.Measure = False,
    as_json: cli_apart.Json = False,
) -> None:
    """Serve a model with vLLM on this machine until Ctrl+C, with one engine or with prefill and decode apart."""
    ask = cli_ledger.asking(wait, anyway)
    asked = cli_apart.Asked(
        separate, (prefill_url or (), decode_url or ()), (prefill_devices or (), decode_devices or ()),
        (prefill_tensor_parallel, decode_tensor_parallel), key,
    )  # fmt: skip
    options = {
        "name": name, "dtype": dtype, "context": context, "kv_gib": kv_gib, "memory_share": memory_share,
        "max_sequences": max_sequences, "block_size": block_size, "kv_dtype": kv_dtype,
        "batched_tokens": batched_tokens, "prefix_cache": prefix_cache, "scheduling": scheduling, "running": running,
        "attention": attention, "chat_template": chat_template, "port": port, "tensor_parallel": tensor_parallel,
        "pipeline_parallel": pipeline_parallel, "data_parallel": data_parallel, "executor": executor,
        "ray_address": ray_address, "tool_parser": tool_parser, "long_prefill": long_prefill,
        "adapters": tuple(map(read_adapter, lora)) if lora else None, "extra": tuple(extra) if extra else None,
    }  # fmt: skip
    given = {field: value for field, value in options.items() if value is not None}
    if speculate is not None:
        given["speculation"] = drafting_of(
            speculate, draft_tokens, draft_tokens_by_load, draft_sampling, mixed_vocabulary
        )
    if any(asked.urls):
        chosen = cli_apart.separation_of(asked, None, port or 0)
    else:
        chosen = _chosen(model, profile, given, asked)
    if keep:
        from workbench.engine import profiles_kept

        path = profiles_kept.keep(chosen, keep, overwrite)
        terminal.out.print(say("Kept as {name}: {path}", name=path.stem, path=str(path)))
    elif isinstance(chosen, Separation):
        if form not in ("", FORMS[0]):
            raise WorkbenchError("Engines apart are several commands; this form holds one.", "Print all with --show.")
        cli_apart.serve(chosen, show or bool(form), measure, as_json, figures_file, ask, unload_idle)
    elif show or form:
        print(_written(chosen, form or FORMS[0]), end="")
    else:
        _run(chosen, figures_file, ask, unload_idle)


def _chosen(model: Path | None, profile: str, given: dict[str, Any], asked: cli_apart.Asked) -> Profile | Separation:
    """The profile of that name, or an empty one of the model, with what was given in its place."""
    from workbench.engine import profiles_kept

    start = profiles_kept.load(profile) if profile else None
    if isinstance(start, Separation):
        if not asked:
            return cli_apart.changed(start, asked, model, given)
        start = start.profile and replace(start.profile, port=start.port)
    if not start and model is None:
        raise WorkbenchError("There is nothing to serve.", "Give a model's folder, or a profile with --profile NAME.")
    chosen = replace(start, model=model or start.model, **given) if start else Profile(model, **given)
    chosen = replace(chosen, model=servable(chosen.model))
    return cli_apart.separation_of(asked, chosen, chosen.port) if asked else chosen


def _written(chosen: Profile, form: str) -> str:
    from workbench.engine import command, drafts, exports, facts
    from workbench.engine.profile import absolute

    if form not in FORMS:
        raise WorkbenchError("{name} is no form.", "Choose one of {values}.", name=form, values=", ".join(FORMS))
    known = run_until_done(facts.ask(settings.load().interpreter))
    settled = drafts.settle(chosen if form == FORMS[0] else absolute(chosen), known)
    built = command.build(settled, settled.port or 8000, "", known)
    if form == FORMS[0]:
        return command.shown(built) + "\n"
    return exports.FORMS[form](settled, built, known)


def _run(chosen: Profile, figures_file: Path | None, ask: Ask, unload_idle: float | None) -> None:
    from workbench.engine.payoff_note import PayoffNote
    from workbench.engine.recording import recorded
    from workbench.engine.served import log_file, watched

    async def work() -> None:
        unloading = cli_ledger.Unloading(unload_idle)
        async with recorded(chosen.served_name, figures_file) as run:
            with terminal.JobProgress() as progress:

                def take(event: Event) -> None:
                    progress(event)
                    run.apply(event)
                    unloading.take(event)
                    if isinstance(event, EngineReady):
                        progress.stop()
                        print(f"{event.url}/v1\n{say('key: {key}', key=event.key)}", flush=True)

                told, log = PayoffNote(chosen, take), log_file(chosen.model.name)
                serving = watched(chosen, settings.load(), told, log, ask)
                if unloaded := await unloading.run(chosen.served_name, serving):
                    progress(unloaded)

    run_until_done(work())


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command()(serve)
