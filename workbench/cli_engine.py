"""The commands that talk to an engine: chat, compare."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from workbench import figures, keys, settings, terminal
from workbench.chat.defaults import NEUTRAL, in_force, of_model
from workbench.chat.remaining import expected_tokens
from workbench.compare import SIDES, Comparison, ask, compare, describe
from workbench.engine import address, connections, remote
from workbench.engine.endpoint import Endpoint
from workbench.engine.profile import Profile
from workbench.engine.sampling import Sampling
from workbench.engine.served import served
from workbench.engine.speculation import Speculation, read_steps
from workbench.errors import WorkbenchError
from workbench.events import Event, ReplyDone, ReplyText
from workbench.interrupt import run_until_done
from workbench.runs import Reply
from workbench.words import say

Target = Annotated[str, typer.Argument(help="A model folder, the URL of a running server, or a connection's name.")]
Prompt = Annotated[str | None, typer.Argument(help="The prompt; without it, lines from the terminal.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, for programs.")]
Tokens = Annotated[int, typer.Option("--max-tokens", help="The longest answer.")]
LeastProbability = Annotated[
    float | None, typer.Option("--min-p", help="Leave out tokens less likely than this share of the likeliest one.")
]
Temperature = Annotated[float, typer.Option(help="0 always takes the most likely token.")]
Speculate = Annotated[
    str, typer.Option(help="off, ngram, suffix, mtp for the model's own layers, or the folder of a draft or a head.")
]
DraftTokens = Annotated[int, typer.Option(help="Draft tokens a step.")]
Context = Annotated[int | None, typer.Option(help="Context length in tokens.")]
Key = Annotated[str, typer.Option(envvar="LATHE_KEY", help="The key of a running server.")]


def chat(
    target: Target,
    prompt: Prompt = None,
    speculate: Speculate = "off",
    draft_tokens: DraftTokens = 4,
    max_tokens: Tokens = 512,
    temperature: Temperature = 0.0,
    min_p: LeastProbability = None,
    context: Context = None,
    key: Key = "",
    model: Annotated[str, typer.Option(help="Of a running server's models, an adapter too; else its first.")] = "",
    own_values: Annotated[
        bool, typer.Option("--model-values/--no-model-values", help="The model's own top_k, top_p and the like.")
    ] = True,
    by_length: Annotated[
        bool,
        typer.Option(
            "--priority",
            help="Schedule by priority, answers that are expected to be short first; a running server must do so.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Ask a model one prompt, or talk to it line by line."""
    if min_p and speculate != "off":
        raise WorkbenchError("vLLM refuses min_p while it speculates.", "Leave out --min-p or --speculate.")
    sampling = Sampling(max_tokens=max_tokens, temperature=temperature, min_p=min_p)
    there = connected(target, key, model)
    own = of_model(Path(target)) if own_values and not there else NEUTRAL
    sampling = in_force(sampling, own, own_values).allowed(speculate != "off")
    replies: list[tuple[str, Reply]] = []

    async def talk(endpoint: Endpoint) -> None:
        for line in [prompt] if prompt is not None else sys.stdin:
            if not line.strip():
                continue
            earlier = (reply.done for _, reply in replies if reply.done)
            priority = expected_tokens(max_tokens, earlier) if by_length else None
            reply = await ask(
                endpoint, line.strip(), sampling, (lambda event: None) if as_json else print_reply, priority
            )
            replies.append((line.strip(), reply))
            if reply.error and not as_json:
                raise WorkbenchError(reply.error.message, reply.error.hint, **reply.error.values)

    async def work() -> None:
        if there:
            await talk(remote.endpoint_of(await remote.probe(there)))
            return
        chosen = profile_of(Path(target), speculate, draft_tokens, context)
        chosen = replace(chosen, scheduling="priority" if by_length else chosen.scheduling)
        with terminal.JobProgress() as progress:
            async with served(chosen, settings.load(), progress, chosen.served_name) as endpoint:
                progress.stop()  # the answer has the terminal for itself
                await talk(endpoint)

    run_until_done(work())
    if as_json:
        terminal.print_json([{"prompt": line, **describe(reply)} for line, reply in replies])
        if any(reply.error for _, reply in replies):
            raise typer.Exit(1)


def compare_models(
    original: Annotated[str, typer.Argument(help="The original's folder, a server's URL or a connection's name.")],
    quantized: Annotated[str, typer.Argument(help="The same of the quantized.")],
    prompt: Annotated[list[str], typer.Option("--prompt", help="Repeatable.")],
    speculate: Speculate = "off",
    draft_tokens: DraftTokens = 4,
    max_tokens: Tokens = 256,
    temperature: Temperature = 0.0,
    context: Context = None,
    key: Key = "",
    as_json: Json = False,
) -> None:
    """The same prompts to an original and its quantized model, each timed alone."""
    sampling = Sampling(max_tokens=max_tokens, temperature=temperature)

    async def target_of(text: str) -> Profile | Endpoint:
        if there := connected(text, key):
            return remote.endpoint_of(await remote.probe(there))
        return profile_of(Path(text), speculate, draft_tokens, context)

    async def work(progress: terminal.JobProgress) -> Comparison:
        targets = {side: await target_of(text) for side, text in zip(SIDES, (original, quantized), strict=True)}
        return await compare(targets, prompt, sampling, settings.load(), lambda side, event: progress(event))

    with terminal.JobProgress() as progress:
        made = run_until_done(work(progress))
    if as_json:
        rows = [
            {"prompt": text, **{side: describe(made.replies[side][index]) for side in SIDES}}
            for index, text in enumerate(prompt)
        ]
        terminal.print_json(rows)
        return
    terminal.out.print(str(made.note))
    for index, text in enumerate(prompt):
        terminal.out.print(f"\n> {text}", markup=False)
        for side in SIDES:
            reply = made.replies[side][index]
            terminal.out.print(f"[bold]{say('original') if side == 'original' else say('quantized')}[/]")
            terminal.out.print(reply.text, markup=False)
            if reply.error:
                terminal.out.print(say(reply.error.message, **reply.error.values), markup=False)
            if reply.done:
                terminal.out.print(figures_line(reply.done), markup=False)
        difference = made.difference(index)
        same = say("Both answers have the same words.")
        terminal.out.print(
            say("The same for {words} {words:word|words}.", words=difference.words) if difference else same
        )


def connected(text: str, key: str = "", model: str = "") -> Endpoint | None:
    """The running server that a URL or a connection's name means; None where it is neither."""
    if "://" in text:
        return Endpoint(address.read(text), key, model)
    if Path(text).exists():
        return None
    if (kept := connections.find(text)) is None:
        # No name has a colon in it: it is an address as the window takes it.
        return Endpoint(address.read(text), key, model) if re.search(r":\d", text) else None
    return Endpoint(kept.url, keys.load(kept.name) or key, model or kept.model)


def profile_of(model: Path, speculate: str, draft_tokens: int, context: int | None) -> Profile:
    """The profile of the command line's choices; the folder is inspected first, so that its faults are said at once."""
    return Profile(servable(model), context=context, speculation=drafting_of(speculate, draft_tokens))


def servable(model: Path) -> Path:
    """The folder of a model that can be served; a sentence where it cannot."""
    from workbench.catalog import folder as models_on_disk

    found = models_on_disk.inspect(model)
    if not found.can_serve:
        problem = next(problem for problem in found.problems if "serve" in problem.blocks)
        hint = problem.hint.template if problem.hint else ""
        raise WorkbenchError(problem.sentence.template, hint, **problem.sentence.values)
    return found.folder


def drafting_of(
    speculate: str, tokens: int = 4, steps: str = "", sampling: str = "greedy", mixed: bool = False
) -> Speculation | None:
    """The drafting of the command line's choices; a folder says itself what it is for."""
    if speculate == "off":
        return None
    chosen = Speculation(tokens=tokens, steps=read_steps(steps))
    if speculate in ("ngram", "suffix", "mtp"):
        return replace(chosen, method=speculate, sampling=sampling, mixed=mixed)
    from workbench.catalog.folder import inspect
    from workbench.engine import heads

    draft = inspect(Path(speculate))
    chosen = heads.settled(replace(chosen, method="draft_model", draft=draft.folder), heads.read(draft))
    return replace(chosen, sampling=sampling, mixed=mixed)


def print_reply(event: Event) -> None:
    """A stream as it comes; its figures below, on stderr."""
    match event:
        case ReplyText(text):
            print(text, end="", flush=True)
        case ReplyDone():
            print(flush=True)
            terminal.err.print(figures_line(event), markup=False)


def figures_line(done: ReplyDone) -> str:
    """0.41 s · 62 tok/s · 212 tokens · 2.8 accepted/step; a dash for what the server did not tell."""
    return say(
        "{ttft} s to the first token · {speed} tok/s · {tokens} {tokens:token|tokens} · {accepted} accepted/step",
        ttft=figures.seconds(done.ttft_s), speed=figures.number(done.tokens_per_s),
        tokens=figures.tokens(done.tokens), accepted=figures.number(done.mean_accepted, 2),
    )  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add these commands to the program."""
    app.command()(chat)
    app.command("compare")(compare_models)
