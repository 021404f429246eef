"""What the command line prints: progress of jobs, tables, and errors with their next step."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from workbench import figures
from workbench.engine import overlay, start
from workbench.engine_events import EngineLog, EngineMemory, EnginePhase, EngineReady, StartExpected
from workbench.errors import WorkbenchError
from workbench.events import Advanced, Event, Finished, Note, Stage
from workbench.quant_events import Checked, ModuleDone, ModuleStarted, QualityMeasured
from workbench.words import Sentence, say

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)
answered = False  # whether the document that a program waits for is printed


def print_json(content: Any) -> None:
    """For programs: one JSON document on stdout."""
    global answered
    answered = True
    text = json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # a terminal without these letters, or a name that is no text
        text = json.dumps(content, indent=1, allow_nan=False)
    print(text)


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "") -> None:
    """Rows under translated headings; what is missing is a dash."""
    drawn = Table(*headings, title=title or None, title_justify="left", box=None, pad_edge=False)
    for row in rows:
        drawn.add_row(*("–" if cell is None else escape(str(cell)) for cell in row))
    out.print(drawn)


def print_error(error: WorkbenchError) -> None:
    err.print(f"[bold red]{escape(str(error))}[/]")
    if error.hint:
        err.print(escape(error.hint))


class JobProgress:
    """Shows a job's events as they come: a bar on stderr, notes and results above it."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[what]}"), TimeElapsedColumn(),
            console=err, transient=not err.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=None, what="")
        self._expected: dict[str, float] = {}
        self._cache: Sentence | None = None

    def __enter__(self) -> "JobProgress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def doing(self) -> str:
        """What stands before the bar."""
        return self._bar.tasks[0].description

    def stop(self) -> None:
        """Leave the terminal to others."""
        self._bar.stop()

    def __call__(self, event: Event) -> None:
        match event:
            case Stage(name, total):
                if not err.is_terminal:
                    err.print(escape(say(name)))
                self._bar.reset(self._task, description=escape(say(name)), total=total or None, what="")
            case Advanced(done):
                self._bar.update(self._task, completed=done)
            case ModuleStarted(name):
                self._bar.update(self._task, what=escape(name))
            case ModuleDone():
                self._bar.update(self._task, advance=1)
            case Note(message, values, level):
                self._line(("[yellow]![/] " if level == "warning" else "  ") + escape(say(message, **values)))
            case QualityMeasured():
                self._line("  " + escape(quality_line(event)))
            case Checked(name, passed, detail, values):
                said = say(detail, **values) if values else say(detail)
                self._line(f"  {'[green]✓[/]' if passed else '[red]✗[/]'} {escape(say(name))}: {escape(said)}")
            case StartExpected(expected):
                self._expected = expected
            case EnginePhase(name):
                told = str(start.NAMES[name])
                if name in self._expected:
                    told += f" ({say('usually {seconds} s', seconds=figures.seconds(self._expected[name]))})"
                self._bar.reset(self._task, description=escape(told), total=None, what="")
            case EngineMemory():
                self._cache = overlay.cache(event)
            case EngineReady(url, _, model):
                self._line("  " + escape(say("{model} answers at {url}/v1.", model=model, url=url)))
                self._line("  " + escape(str(start.readiness(event))))
                if self._cache:
                    self._line("  " + escape(str(self._cache)))
            case EngineLog(text):
                self._bar.update(self._task, what=escape(text[:60]))
            case Finished(path):
                self._line("  " + escape(say("Finished: {path}", path=path)))

    def _line(self, text: str) -> None:
        self._bar.console.print(text)


def quality_line(quality: QualityMeasured) -> str:
    """One candidate's figures in a sentence."""
    return say(
        "{name}: KL {kl} nats per token, perplexity {ppl} (original {original}), "
        "same first choice {top1}, {tokens} held tokens",
        name=quality.name, kl=f"{quality.kl:.4f}", ppl=f"{quality.perplexity:.2f}",
        original=f"{quality.original_perplexity:.2f}", top1=f"{quality.top1_agreement:.1%}", tokens=quality.tokens,
    )  # fmt: skip


def print_report(report: dict[str, Any]) -> None:
    """The demo's figures in two tables."""
    table(
        (say("Model"), say("Size"), say("First token"), say("Speed")),
        [
            (
                say("original") if side == "original" else say("quantized"),
                figures.bytes_of(report["sizes"][side]),
                seconds((report["answers"][0][side]["figures"] or {}).get("ttft_s")),
                say(
                    "{speed} tok/s",
                    speed=figures.number((report["answers"][0][side]["figures"] or {}).get("tokens_per_s")),
                ),
            )
            for side in ("original", "quantized")
        ],
    )
    table(
        (say("Candidate"), "KL", say("Perplexity"), say("Original")),
        [
            (row["name"], f"{row['kl']:.4f}", f"{row['perplexity']:.2f}", f"{row['original_perplexity']:.2f}")
            for row in report["quality"]
        ],
    )
    speculation = report["speculation"]
    out.print(
        say(
            "n-gram drafting on a prompt that quotes: {acceptance} accepted, {speedup}",
            acceptance=figures.percent(speculation["acceptance"]),
            speedup=figures.ratio(speculation["speedup"]),
        )
    )


def seconds(value: float | None) -> str:
    return "–" if value is None else f"{figures.seconds(value)} s"
