"""`lathe load`: so many requests at once, level after level, against a folder's engine or a running server."""

import asyncio
import re
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench import __version__, cli_ledger, figures, settings, terminal
from workbench.cli_engine import Context, DraftTokens, Json, Key, Speculate, Target, connected, profile_of
from workbench.engine import remote
from workbench.engine.endpoint import Endpoint
from workbench.engine.served import log_file, opened, watched
from workbench.errors import WorkbenchError
from workbench.events import Event, Failed
from workbench.interrupt import run_until_done
from workbench.measure import passages
from workbench.words import Sentence, say

if TYPE_CHECKING:  # the program starts without it
    from workbench.measure.load import Level, Load

CAUSE_S = 3.0
LATENCIES = Sentence(
    "To the first token: from sending the request, with its connection, to the first text. A token: from there to the "
    "end, by the tokens after the first. The rates are over a level's whole time, the tokens in and out are medians; a "
    "dash is what the server does not tell."
)


def load(
    target: Target,
    at: Annotated[str, typer.Option(help="Requests at once, one level after the other.")] = "1,2,4,8",
    requests: Annotated[int, typer.Option(help="Requests of a level; at least twice as many as at once.")] = 16,
    prompt_tokens: Annotated[int, typer.Option(help="Tokens of a prompt, about.")] = 256,
    answer_tokens: Annotated[
        int, typer.Option(help="Tokens of an answer; vLLM writes them all, others may end earlier.")
    ] = 64,
    speculate: Speculate = "off",
    draft_tokens: DraftTokens = 4,
    context: Context = None,
    key: Key = "",
    model: Annotated[str, typer.Option(help="Of a running server's models; else its first.")] = "",
    wait: cli_ledger.Wait = False,
    anyway: cli_ledger.Anyway = False,
    as_json: Json = False,
) -> None:
    """Measure a server's latencies and its tokens/s with more and more requests at once."""
    from workbench.measure.load import Load, Plan, measure

    made = Load(Plan(levels_of(at), requests, prompt_tokens, answer_tokens))
    there = connected(target, key, model)
    ask = cli_ledger.asking(wait, anyway)
    date = datetime.now().astimezone()
    if there and (note := remote.warning(there)):
        terminal.err.print(str(note), markup=False)

    causes: asyncio.Queue[Failed] = asyncio.Queue()

    def serving(progress: terminal.JobProgress) -> AbstractAsyncContextManager[Endpoint]:
        if there:
            return nullcontext(there)
        profile = profile_of(Path(target), speculate, draft_tokens, context)
        log = log_file(profile.served_name)

        def take(event: Event) -> None:
            if isinstance(event, Failed):
                causes.put_nowait(event)
            progress(event)

        return opened(lambda take: watched(profile, settings.load(), take, log, ask), take)

    async def work() -> None:
        with terminal.JobProgress() as progress:
            async with serving(progress) as endpoint:
                try:
                    await measure(endpoint, made, progress)
                    if made.lost:
                        made.lost = await cause(made.lost)
                except WorkbenchError as error:  # of the warm-up
                    raise await cause(error) from error

    async def cause(error: WorkbenchError) -> WorkbenchError:
        """Why our own engine ended says more than that it does not answer; it may be told a moment later."""
        if there is None:
            with suppress(TimeoutError):
                failed = await asyncio.wait_for(causes.get(), CAUSE_S)
                return WorkbenchError(failed.message, failed.hint, **failed.values)
        return error

    own = None if there else {"folder": target, "speculate": speculate, "draft_tokens": draft_tokens}
    try:
        run_until_done(work())
    finally:  # also what Ctrl+C left
        if made.levels:
            if as_json:
                terminal.print_json({**describe(made, date), "engine": own})
            else:
                _print(made, date)
    if made.lost:
        raise made.lost


def levels_of(text: str) -> tuple[int, ...]:
    """The numbers of "1,2,4"."""
    if not re.fullmatch(r"\s*\d{1,5}\s*(,\s*\d{1,5}\s*)*", text):
        raise WorkbenchError("{text} is no list of numbers.", "Write the levels as 1,2,4,8.", text=text)
    return tuple(map(int, text.split(",")))


def describe(load: "Load", date: datetime) -> dict[str, Any]:
    """The load and what it was measured with as plain values; seconds, and None for what was not told."""
    assert load.server and load.warmup, load
    return {
        "date": date.isoformat(timespec="seconds"),
        "server": {
            "url": load.server.url, "model": load.server.model, "vllm": load.server.version is not None,
            "version": load.server.version or None, "context": load.server.context, "lathe": __version__,
        },
        "inputs": {
            "at": list(load.plan.at), "requests": [load.plan.requests_at(at) for at in load.plan.at],
            "prompt_tokens": load.plan.prompt_tokens, "answer_tokens": load.plan.answer_tokens, "temperature": 0,
            "ignore_eos": load.server.version is not None, "prompts": str(passages.HOW), "measured": str(LATENCIES),
        },
        "warm_up": {
            "ttft_s": load.warmup.ttft_s, "total_s": load.warmup.total_s,
            "prompt_tokens": load.warmup.prompt_tokens, "tokens": load.warmup.tokens,
        },
        "levels": [_plain(level) for level in load.levels],
        "knee": {"at": load.knee.at, "said": str(load.verdict)} if load.knee else None,
        "lost": str(load.lost) if load.lost else None,
    }  # fmt: skip


def _plain(level: "Level") -> dict[str, Any]:
    return {
        "at": level.at, "requests": level.requests, "answered": len(level.done), "failed": level.failed,
        "reason": str(level.reason) if level.reason else None, "whole": level.seconds is not None,
        "seconds": level.seconds, "prompt_tokens": level.prompt_tokens, "answer_tokens": level.answer_tokens,
        "ttft_s": {"median": level.first_s(50), "p95": level.first_s(95)},
        "token_s": {"median": level.token_s(50), "p95": level.token_s(95)},
        "tokens_per_s": level.tokens_per_s, "requests_per_s": level.requests_per_s,
    }  # fmt: skip


def _print(load: "Load", date: datetime) -> None:
    """The levels as a table, then what to know of them."""
    assert load.server, load
    terminal.table(
        (
            say("At once"), say("Answered"), say("Tokens in, out"), say("First token: median, p95"),
            say("A token, ms: median, p95"), say("tok/s"), say("Requests/s"),
        ),
        map(_row, load.levels),
        f"{load.server.model} · {remote.description(load.server)} · {date:%Y-%m-%d %H:%M}",
    )  # fmt: skip
    for level in load.levels:
        if level.reason:
            values = {"at": level.at, "failed": level.failed, "reason": str(level.reason)}
            terminal.out.print(
                say("! At {at} at once {failed} failed, the first: {reason}", **values), markup=False, soft_wrap=True
            )
    for sentence in (load.verdict, passages.HOW, LATENCIES):
        if sentence:
            terminal.out.print(f"· {sentence}", markup=False, soft_wrap=True)


def _row(level: "Level") -> tuple[Any, ...]:
    return (
        level.at,
        f"{len(level.done)} / {level.requests}",
        f"{figures.tokens(level.prompt_tokens)}, {figures.tokens(level.answer_tokens)}",
        f"{figures.brief(level.first_s(50))}, {figures.brief(level.first_s(95))}",
        f"{_token(level.token_s(50))}, {_token(level.token_s(95))}",
        figures.number(level.tokens_per_s),
        figures.number(level.requests_per_s),
    )


def _token(value: float | None) -> str:
    """In milliseconds, of which tenths matter."""
    return figures.number(None if value is None else value * 1000)


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command()(load)
