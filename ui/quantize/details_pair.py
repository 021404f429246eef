"""The layer in view and, beside it, a pinned one."""

from copy import copy
from dataclasses import replace

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QWidget

from ui.quantize.looks import Looks
from ui.quantize.tries import Tries, Try
from ui.widgets.module_details import Layer, ModuleDetails
from workbench import figures
from workbench.catalog.model import Model
from workbench.draft import Draft
from workbench.plan import Plan, Planned
from workbench.quant_run import QuantRun
from workbench.reach import siblings
from workbench.words import Sentence


class DetailsPair(QWidget):
    """`choice_changed(name, choice, everywhere)`, `kept(name)`, `discarded(name)`, `look_wanted` and `unpinned` come
    from the cards."""

    choice_changed = Signal(str, object, bool)
    kept = Signal(str)
    discarded = Signal(str)
    unpinned = Signal()
    look_wanted = Signal()

    def __init__(self, looks: Looks, tries: Tries):
        super().__init__()
        self._looks, self._tries = looks, tries
        self.chosen = ModuleDetails()
        self.pinned = ModuleDetails(closable=True)
        self.pinned.hide()
        self._plan: Plan | None = None
        self._planned: dict[str, Planned] = {}
        self._siblings: dict[str, tuple[str, ...]] = {}
        self._names = {self.chosen: "", self.pinned: ""}
        self._outcomes: dict[tuple[str, Try], Sentence] = {}
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(12)
        for card in (self.chosen, self.pinned):
            row.addWidget(card, 1)
            card.choice_changed.connect(self.choice_changed)
            card.kept.connect(self.kept)
            card.discarded.connect(self.discarded)
            card.look_wanted.connect(self.look_wanted)
        self.pinned.closed.connect(self.unpinned)

    def show_chosen(self, name: str) -> None:
        self._names[self.chosen] = name

    def show_pinned(self, name: str) -> None:
        """Show a second layer; an empty name takes it away."""
        self._names[self.pinned] = name
        self.pinned.setVisible(bool(name))

    @property
    def in_view(self) -> list[str]:
        """The layers that the cards show."""
        return [name for name in self._names.values() if name]

    def draw(self, draft: Draft, run: QuantRun | None, locked: bool, first: int | None = None) -> None:
        """Draw both from what is known; `locked` while a run uses the plan but for blocks from `first` on."""
        plan, model = draft.plan, draft.model
        if plan is not self._plan:
            self._plan = plan
            self._planned = {entry.linear.name: entry for entry in plan.linears} if plan else {}
            self._siblings.clear()
            self._outcomes.clear()
        for card, name in self._names.items():
            if not name:
                continue
            done = run.modules.get(name) if run else None
            looked = self._looks.made(model.folder, name) if model else None
            entry = self._planned.get(name)
            tried = None if locked else self._tries.of(name)
            choice = tried.choice if tried else entry.choice if entry else None
            answer = self._tries.answer(name, choice)
            known = done or looked or answer
            tunable = not locked or (first is not None and entry is not None and entry.linear.block >= first)
            waiting = None if known else self._waiting(name, run, model, locked, tunable)
            can_look = not (known or locked or model is None or self._looks.wants(model.folder, name))
            layer = Layer(name, entry, looked, done, waiting, can_look, self._fused(name), tunable, answer=answer)
            if tried:
                layer = replace(
                    layer, tried=tried.choice, everywhere=tried.everywhere, outcome=self._outcome(draft, name, tried),
                    state=self._tries.state(name),
                )  # fmt: skip
            card.show_layer(layer)

    def _outcome(self, draft: Draft, name: str, tried: Try) -> Sentence:
        """What the whole model would come to."""
        if (name, tried) not in self._outcomes:
            would = copy(draft)
            would.take_choice(name, tried.choice, tried.everywhere)
            known = (*draft.plan.conflicts, *draft.plan.warnings)
            told = (found for found in (*would.plan.conflicts, *would.plan.warnings) if found not in known)
            change = would.plan.predicted_bytes - draft.plan.predicted_bytes
            values = {
                "size": figures.bytes_of(would.plan.predicted_bytes),
                "bits": figures.number(would.plan.average_bits, 3),
                "change": f"{'−' if change < 0 else '+'}{figures.bytes_of(abs(change))}",
            }
            result = Sentence("With it the model takes {size} ({change}), {bits} bits on average.", values)
            if problem := next(told, None):
                result = Sentence("{result} {problem}", {"result": result, "problem": problem.sentence})
            self._outcomes[name, tried] = result
        return self._outcomes[name, tried]

    def _waiting(
        self, name: str, run: QuantRun | None, model: Model | None, locked: bool, tunable: bool
    ) -> Sentence | str | None:
        if run and run.current == name:
            return Sentence("This layer is in work.")
        if locked and tunable:
            return Sentence("This layer waits for its turn. Until then its choice can be changed.")
        if locked:
            return Sentence("This layer waits for its turn.")
        if model and self._looks.wants(model.folder, name):
            return Sentence("Reading the weights…")
        if model and (error := self._looks.failure(model.folder, name)):
            return f"{error} {error.hint}".strip()
        return None

    def _fused(self, name: str) -> tuple[str, ...]:
        """The last names of the layers that vLLM fuses with this one; empty where it stands alone."""
        if name not in self._planned:
            return ()
        if name not in self._siblings:
            together = siblings((entry.linear for entry in self._planned.values()), name)
            self._siblings[name] = tuple(dict.fromkeys(linear.leaf for linear in together)) if len(together) > 1 else ()
        return self._siblings[name]
