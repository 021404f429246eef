"""The layer in view and, beside it, a pinned one."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QWidget

from ui.quantize.looks import Looks
from ui.widgets.module_details import Layer, ModuleDetails
from workbench.catalog.model import Model
from workbench.plan import Plan, Planned
from workbench.quant_run import QuantRun
from workbench.reach import siblings
from workbench.words import Sentence


class DetailsPair(QWidget):
    """`choice_changed(name, choice, everywhere)`, `look_wanted` and `unpinned` come from the cards."""

    choice_changed = Signal(str, object, bool)
    unpinned = Signal()
    look_wanted = Signal()

    def __init__(self, looks: Looks):
        super().__init__()
        self._looks = looks
        self.chosen = ModuleDetails()
        self.pinned = ModuleDetails(closable=True)
        self.pinned.hide()
        self._plan: Plan | None = None
        self._planned: dict[str, Planned] = {}
        self._siblings: dict[str, tuple[str, ...]] = {}
        self._names = {self.chosen: "", self.pinned: ""}
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(12)
        for card in (self.chosen, self.pinned):
            row.addWidget(card, 1)
            card.choice_changed.connect(self.choice_changed)
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

    def draw(self, plan: Plan | None, run: QuantRun | None, model: Model | None, locked: bool) -> None:
        """Draw both from what is known; `locked` while a run uses the plan."""
        if plan is not self._plan:
            self._plan = plan
            self._planned = {entry.linear.name: entry for entry in plan.linears} if plan else {}
            self._siblings.clear()
        for card, name in self._names.items():
            if not name:
                continue
            done = run.modules.get(name) if run else None
            looked = self._looks.made(model.folder, name) if model else None
            waiting = None if done or looked else self._waiting(name, run, model, locked)
            can_look = not (done or looked or locked or model is None or self._looks.wants(model.folder, name))
            entry = self._planned.get(name)
            card.show_layer(Layer(name, entry, looked, done, waiting, can_look, self._fused(name), not locked))

    def _waiting(self, name: str, run: QuantRun | None, model: Model | None, locked: bool) -> Sentence | str | None:
        if run and run.current == name:
            return Sentence("This layer is in work.")
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
            self._siblings[name] = tuple(linear.leaf for linear in together) if len(together) > 1 else ()
        return self._siblings[name]
