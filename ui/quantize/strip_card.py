"""The strip of blocks and modules with what it can show: the plan and its run, the sensitivity, the bits of a mix."""

from collections.abc import Iterable, Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QButtonGroup, QHBoxLayout, QScrollArea

from ui import language
from ui.quantize import heat
from ui.quantize.mixes import Mixes
from ui.quantize.scan_bar import ScanBar
from ui.quantize.scans import Scans
from ui.quantize.sensitivity_view import SensitivityChoice, SensitivityFigures
from ui.quantize.target_bar import TargetBar
from ui.widgets import Card, button, label
from ui.widgets.block_strip import BlockStrip
from ui.widgets.error_scale import ErrorLegend
from ui.widgets.label import restyle
from ui.widgets.module_details import layer_in_block
from ui.widgets.strip_cell import Cell
from ui.widgets.width_legend import WidthLegend
from workbench import allocation
from workbench.allocation import Target
from workbench.plan import Plan

PLAN, SENSITIVITY, MIX = range(3)


class StripCard(Card):
    """`strip` shows the cells of `show_plan` and `put`, or in the other views those made of `scans` and `mixes`."""

    def __init__(self, strip: BlockStrip, scans: Scans, mixes: Mixes):
        super().__init__()
        self.strip, self._scans, self._mixes = strip, scans, mixes
        self._plan: Plan | None = None
        self._cells: dict[str, Cell] = {}
        self._locked = False
        self._drawn: tuple = (None,) * 6
        self._known = 0
        self.views = QButtonGroup(self)
        self.legend, self.counts, self.changed = ErrorLegend(), WidthLegend(), label(role="caption")
        restyle(self.changed, "tone", "quantized")  # as the rule beside the cells
        self.changed.hide()
        self.choice, self.figures = SensitivityChoice(), SensitivityFigures()
        self.scan, self.target = ScanBar(scans), TargetBar(mixes)
        self._lay_out()
        self.views.idClicked.connect(lambda _view: self.draw())
        self.choice.changed.connect(self.draw)
        strip.chosen.connect(lambda _name: self._show_figures())
        strip.rescaled.connect(self._show_scale)
        self.target.wanted.connect(self._search)
        language.changed.connect(self._speak)

    @property
    def view(self) -> int:
        return self.views.checkedId()

    def show_view(self, view: int) -> None:
        """Show the plan, the sensitivity or the mix."""
        self.views.button(view).setChecked(True)
        self.draw()

    def show_plan(self, plan: Plan | None, cells: Sequence[Cell], locked: bool) -> None:
        """Take another plan with its cells; `locked` while a run uses it, which is then what is shown."""
        begun = locked and not self._locked
        self._plan, self._locked = plan, locked
        self._cells = {cell.name: cell for cell in cells}
        for view in (SENSITIVITY, MIX):
            self.views.button(view).setVisible(plan is not None)
        self._drawn = (None,) * 6
        if begun or plan is None:
            self.views.button(PLAN).setChecked(True)
        self.draw()

    def show_changes(self, blocks: tuple[int, ...]) -> None:
        """From which blocks on the recipe was changed while it ran."""
        self.strip.show_changes(blocks)
        self.changed.setVisible(bool(blocks))
        if blocks:
            language.bind(
                self.changed.setText,
                "┃ the recipe was changed from block {blocks} on",
                blocks=", ".join(map(str, blocks)),
            )

    def put(self, cells: Iterable[Cell]) -> None:
        """Take new states of the plan's cells."""
        changed = {cell.name: cell for cell in cells}
        self._cells |= changed
        if self.view == PLAN:
            self.strip.put(changed.values())

    def draw(self) -> None:
        """Show what the view shows by what is known now."""
        if (view := self.view) != PLAN:
            self._scans.look()
        scans, proposal = self._scans, self._mixes.proposal
        lacking = bool(scans.progress or scans.missing or scans.error)
        self.choice.setVisible(view == SENSITIVITY)
        self.legend.setVisible(view == PLAN or (view == SENSITIVITY and bool(scans.found)))
        self.counts.setVisible(view == MIX)
        self.scan.setVisible(view != PLAN and lacking)
        self.figures.setVisible(view == SENSITIVITY and bool(scans.found))
        self.target.setVisible(view == MIX and bool(scans.found) and scans.progress is None)
        damage = self.choice.measure == heat.DAMAGE
        drawn = (view, self._plan, proposal, self._scans.found, self.choice.bits, damage)
        if any(one is not other for one, other in zip(drawn, self._drawn, strict=True)):
            self._drawn, self._known = drawn, len(self._scans.found)
            self.strip.set_cells(self._made())
            self._show_scale()
            if view == MIX:
                self.counts.show_counts(allocation.counts(proposal.plan if proposal else self._plan))
        elif view == SENSITIVITY and len(self._scans.found) > self._known:
            new = list(self._scans.found)[self._known :]
            self._known = len(self._scans.found)
            self.strip.put(heat.heat_cells(self._plan, self._scans.found, self.choice.bits, self.choice.measure, new))
        if view != PLAN and lacking:
            self.scan.draw(self._locked)
        if view == MIX:
            self.target.draw(self._plan, self._locked)
        self._show_figures()

    def _made(self) -> list[Cell]:
        if self.view == PLAN or self._plan is None:
            return list(self._cells.values())
        if self.view == SENSITIVITY:
            return heat.heat_cells(self._plan, self._scans.found, self.choice.bits, self.choice.measure)
        proposal = self._mixes.proposal
        before = {planned.linear.name: planned for planned in self._plan.linears} if proposal else {}
        return heat.width_cells(proposal.plan if proposal else self._plan, before)

    def _search(self, target: Target) -> None:
        if self._plan and not self._locked:
            self._mixes.want(self._plan.model, tuple(self._scans.found.values()), target)

    def _show_scale(self) -> None:
        damage = self.view == SENSITIVITY and self.choice.measure == heat.DAMAGE
        self.legend.show_scale(self.strip.scale, damage=damage)

    def _show_figures(self) -> None:
        if self.view == SENSITIVITY and (name := self.strip.chosen_name):
            found = self._scans.found.get(name)
            self.figures.show_layer(layer_in_block(name, found.block) if found else name, found)

    def _speak(self) -> None:
        self._drawn = (None,) * 6
        if self._plan or self._cells:
            self.draw()

    def _lay_out(self) -> None:
        views = QHBoxLayout()
        views.setSpacing(4)
        for view, made in (
            (PLAN, button("Plan", kind="quiet")),
            (SENSITIVITY, button("Sensitivity", kind="quiet")),
            (MIX, button("Mixed bits", kind="quiet")),
        ):
            made.setCheckable(True)
            self.views.addButton(made, view)
            views.addWidget(made)
        views.addStretch(1)
        self.views.button(PLAN).setChecked(True)
        scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        scroll.setWidget(self.strip)
        self.strip.moved.connect(
            lambda rect: scroll.ensureVisible(rect.center().x(), rect.center().y(), rect.width(), 2 * rect.height())
        )
        scroll.viewport().setAutoFillBackground(False)
        self.strip.setAutoFillBackground(False)
        self.body.addLayout(views)
        for widget in (self.choice, self.legend, self.counts, self.changed):
            self.body.addWidget(widget)
        self.body.addWidget(scroll, 1)
        for widget in (self.figures, self.scan, self.target):
            self.body.addWidget(widget)
