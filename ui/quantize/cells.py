"""A plan and a run as the cells of the strip."""

from collections.abc import Iterable
from typing import Literal

from ui.widgets.module_details import layer_in_block
from ui.widgets.scheme import mark, scheme
from ui.widgets.strip_cell import Cell
from workbench import figures, matching
from workbench.plan import Plan, Planned
from workbench.quant_events import ModuleDone
from workbench.quant_run import QuantRun
from workbench.words import say

State = Literal["planned", "changing", "conflict", "working", "done", "kept"]


class Cells:
    """Cells of one plan: all of them once, then those that a run has changed since.

    `changing` are the layers for which the plan holds a choice that the run does not have yet.
    """

    def __init__(self, plan: Plan | None, run: QuantRun | None, changing: Iterable[str] = ()):
        self._planned = {planned.linear.name: planned for planned in plan.linears} if plan else {}
        self._conflicts = {name for conflict in (plan.conflicts if plan else ()) for name in conflict.modules}
        self._changing = frozenset(changing)
        self._ruled = matching.deciding(plan.matches) if plan else {}
        self._drawn = 0
        self._current = ""
        self._run = run

    def all(self) -> list[Cell]:
        """Every cell, the plan's or, where the original is gone, those of the run's results."""
        done = self._run.modules if self._run else {}
        self._drawn, self._current = len(done), self._run.current if self._run else ""
        if self._planned:
            return [self._cell(planned.linear.name) for planned in self._planned.values()]
        return [_done_cell(event) for event in done.values()]

    def block(self, name: str) -> int | None:
        """The block of a layer of the plan."""
        return self._planned[name].linear.block if name in self._planned else None

    def changed(self) -> Iterable[Cell]:
        """The cells whose state moved since the last call."""
        if self._run is None:
            return
        names = list(self._run.modules)[self._drawn :]
        names += [name for name in (self._current, self._run.current) if name and name not in names]
        self._drawn, self._current = len(self._run.modules), self._run.current
        for name in names:
            if name in self._planned:
                yield self._cell(name)

    def _cell(self, name: str) -> Cell:
        if self._run and (done := self._run.modules.get(name)):
            return _done_cell(done)
        return _waiting_cell(self._planned[name], self._state(name), self._ruled.get(name, ""))

    def _state(self, name: str) -> State:
        if self._run and self._run.current == name:
            return "working"
        if name in self._conflicts:
            return "conflict"
        if name in self._changing:
            return "changing"
        return "kept" if self._planned[name].choice.kept else "planned"


def _waiting_cell(planned: Planned, state: State, pattern: str) -> Cell:
    """`pattern` is the recipe's that decides for it, if any."""
    linear, choice = planned.linear, planned.choice
    told = {
        "working": say("in work"),
        "conflict": say("in conflict"),
        "changing": say("would change"),
        "kept": "",
        "planned": say("not quantized yet"),
    }[state]
    column = layer_in_block(linear.name, linear.block)
    parts = (
        say("block {block}", block=linear.block),
        column,
        f"{linear.out_features} × {linear.in_features}",
        scheme(choice.method, choice.bits, choice.group_size, choice.symmetric),
        figures.bytes_of(planned.bytes),
        say("by the rule {pattern}", pattern=pattern) if pattern else "",
        told,
    )
    words = " · ".join(part for part in parts if part)
    return Cell(linear.name, linear.block, column, state, mark(choice.method, choice.bits), words)


def _done_cell(done: ModuleDone) -> Cell:
    column = layer_in_block(done.name, done.block)
    words = " · ".join(
        (
            say("block {block}", block=done.block),
            column,
            f"{done.shape[0]} × {done.shape[1]}",
            scheme(done.method, done.bits, done.group_size, done.symmetric),
            say("output error {error}, SQNR {sqnr}", error=figures.number(done.output_error),
                sqnr=figures.decibel(done.sqnr_db)),
        )
    )  # fmt: skip
    return Cell(done.name, done.block, column, "done", mark(done.method, done.bits), words, done.sqnr_db)
