"""One linear layer: its weights before and after, what the quantization did to it, and the choice behind it."""

from dataclasses import dataclass

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QStackedWidget, QVBoxLayout, QWidget

from ui import language
from ui.plots.histogram import Counts, HistogramPlot
from ui.widgets.button import button
from ui.widgets.card import Card
from ui.widgets.choice_form import ChoiceForm
from ui.widgets.elided import Elided
from ui.widgets.figure import Figure
from ui.widgets.label import label
from ui.widgets.reflow import Reflow
from ui.widgets.scheme import scheme
from ui.widgets.scrolled import Scrolled
from ui.widgets.trial_bar import TrialBar
from workbench import figures
from workbench.plan import Planned
from workbench.quant_events import Histogram, ModuleDone, WhatIf
from workbench.recipe import Choice
from workbench.words import Sentence, say

WIDEST = 960  # figures and form spread no further; the picture takes the rest
LOWEST = 112  # of the picture; with less room than that the card scrolls
HEAD = 32


@dataclass(frozen=True, slots=True)
class Layer:
    """What is known of a layer. Without a histogram, `waiting` says why and `can_look` offers to make one.

    `siblings` are the last names of the layers fused with it, `tunable` says whether its choice may change now.
    `tried` is a choice that is not in the recipe yet, with what the whole model would come to; `answer` is what the
    shown choice, tried or planned, would do to the layer, and `state` how far that is.
    """

    name: str
    planned: Planned | None
    looked: Histogram | None
    done: ModuleDone | None
    waiting: Sentence | str | None
    can_look: bool
    siblings: tuple[str, ...]
    tunable: bool
    tried: Choice | None = None
    everywhere: bool | None = None
    outcome: Sentence | None = None
    answer: WhatIf | None = None
    state: Sentence | str | None = None

    @property
    def result(self) -> ModuleDone | WhatIf | None:
        """What is known of the quantized layer: of the choice being tried, else of the run, else a prediction."""
        return self.answer if self.tried is not None or self.done is None else self.done


class ModuleDetails(Card):
    """Shows what is known of one layer: the plan alone, its histogram before any run, or its result.

    Signals:
        choice_changed(name, choice, everywhere): the user tries another choice for this layer or its like
        kept(name), discarded(name): what was tried shall be the recipe's, or be forgotten
        closed: the second card is not wanted any more
        look_wanted: its weights shall be read for a histogram
    """

    choice_changed = Signal(str, object, bool)
    kept = Signal(str)
    discarded = Signal(str)
    closed = Signal()
    look_wanted = Signal()

    def __init__(self, *, closable: bool = False):
        super().__init__()
        self.name = ""
        self._shown: Layer | None = None
        language.changed.connect(self._forget)
        self.heading = Elided("section")
        self.heading.setMinimumHeight(HEAD)  # one line with a card beside it that has a button there
        head = QHBoxLayout()
        head.addWidget(self.heading, 1)
        if closable:
            head.addWidget(button("Unpin", self.closed.emit, kind="quiet", icon="close-line", only_icon=True))
        self.plot = HistogramPlot()
        self.waiting = label(role="muted", wrap=True)
        self.waiting.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.look = button("Look at the weights", self.look_wanted.emit, icon="bar-chart-2-line")
        self._picture = QStackedWidget()
        self._picture.addWidget(self.plot)
        self._picture.addWidget(self._placeholder())
        self._picture.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Ignored)
        self._picture.setMinimumHeight(LOWEST)
        self.figures = {
            "error": Figure("error, plain → ours"),
            "sqnr": Figure("output SQNR"),
            "clipped": Figure("clipped"),
            "outliers": Figure("outliers"),
            "kurtosis": Figure("kurtosis"),
            "scale": Figure("AWQ scale"),
            "damping": Figure("damping"),
            "size": Figure("packed size"),
        }
        figures_area = Reflow(4, 3, 2, across=16, stretch=(3, 2, 2, 2))
        figures_area.add(*self.figures.values())
        self.fallback = label(
            "Plain rounding was used: the chosen method found no stable solution.", role="muted", wrap=True
        )
        self.form, self.trial = ChoiceForm(), TrialBar()
        self.trial.kept.connect(lambda: self.kept.emit(self.name))
        self.trial.discarded.connect(lambda: self.discarded.emit(self.name))
        for part in (figures_area, self.form, self.trial):
            part.setMaximumWidth(WIDEST)
        self.form.changed.connect(self._on_changed)
        content = Scrolled()
        content.body.addWidget(self._picture, 1)
        for part in (figures_area, self.fallback, self.form):
            content.body.addWidget(part)
        self.body.addLayout(head)
        self.body.addWidget(content, 1)
        self.body.addWidget(self.trial)

    def show_layer(self, layer: Layer) -> None:
        """Show one layer; nothing is done when it is already shown like this."""
        if layer == self._shown:
            return
        self._shown, self.name = layer, layer.name
        looked, result = layer.looked, layer.result
        self._show_heading(layer)
        if result is not None:
            counts = Counts(result.low, result.high, result.before, result.after, result.levels, result.not_finite)
            self.plot.show_counts(counts)
        elif looked is not None:
            self.plot.show_counts(Counts(looked.low, looked.high, looked.counts, not_finite=looked.not_finite))
        else:
            self.plot.show_counts(None)
        language.show(self.waiting.setText, layer.waiting or "")
        self.waiting.setVisible(layer.waiting is not None)
        self.look.setVisible(layer.can_look)
        self._picture.setCurrentIndex(int(result is None and looked is None))
        self._show_figures(layer.planned, looked, result)
        planned = layer.planned.choice if layer.planned else None
        self.form.show_choice(layer.tried or planned, layer.siblings, layer.everywhere)
        self.form.setVisible(layer.planned is not None and layer.tunable)
        self.trial.show_trial(layer.outcome or "", layer.state)
        self.trial.setVisible(layer.tried is not None and layer.tunable)

    def _on_changed(self, choice: Choice, everywhere: bool) -> None:
        self._shown = None  # the form no longer says what was shown, so the same layer is shown anew
        self.choice_changed.emit(self.name, choice, everywhere)

    def _forget(self) -> None:
        """In another language the same layer reads differently."""
        if (layer := self._shown) is not None:
            self._shown = None
            self.show_layer(layer)

    def _placeholder(self) -> QWidget:
        empty = QWidget()
        column = QVBoxLayout(empty)
        column.addStretch(1)
        column.addWidget(self.waiting)
        column.addWidget(self.look, 0, Qt.AlignmentFlag.AlignHCenter)
        column.addStretch(1)
        return empty

    def _show_heading(self, layer: Layer) -> None:
        place = layer.planned.linear if layer.planned else layer.done
        parts = [say("block {block}", block=place.block), layer_in_block(place.name, place.block)] if place else []
        chosen = layer.tried or layer.done or (layer.planned and layer.planned.choice)
        if layer.tried:
            parts.append(say("tried"))
        if chosen:
            parts.append(scheme(chosen.method, chosen.bits, chosen.group_size, chosen.symmetric))
        text = " · ".join(parts)
        self.heading.show_text(text)
        linear = layer.planned.linear if layer.planned else None
        shape = f" · {linear.out_features} × {linear.in_features}" if linear else ""
        self.heading.setToolTip(f"{text}\n{self.name}{shape}")
        self.setAccessibleName(text)

    def _show_figures(
        self, planned: Planned | None, looked: Histogram | None, result: ModuleDone | WhatIf | None
    ) -> None:
        seen = result or looked
        error = (
            f"{figures.number(result.plain_output_error)} → {figures.number(result.output_error)}"
            if result
            else figures.DASH
        )
        self.figures["error"].show_value(error)
        self._show_number("sqnr", figures.sqnr_db(result.output_error) if result else None, "dB")
        self.figures["clipped"].show_value(figures.percent(result.clipped if result else None, 2))
        self.figures["outliers"].show_value(figures.percent(seen.outliers if seen else None, 2))
        self._show_number("kurtosis", seen and seen.kurtosis)
        scaled = result is not None and result.scale_low is not None
        span = (
            f"{figures.number(result.scale_low, 2)}–{figures.number(result.scale_high, 2)}" if scaled else figures.DASH
        )
        self.figures["scale"].show_value(span)
        self.figures["damping"].show_value(figures.percent(result.damping if result else None, 0))
        size = result.bytes if isinstance(result, WhatIf) else planned.bytes if planned else None
        self.figures["size"].show_value(*figures.bytes_apart(size))
        # Without statistics a trial can only round plainly: that says nothing about the method.
        self.fallback.setVisible(bool(result and result.fallback and result.output_error is not None))

    def _show_number(self, name: str, value: float | None, unit: str = "") -> None:
        self.figures[name].show_value(figures.number(value), unit if value is not None else "")


def layer_in_block(name: str, block: int) -> str:
    """The name of a layer without what leads to its block: mlp.gate_proj."""
    return name.rpartition(f".{block}.")[2]
