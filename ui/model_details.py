"""One model at the right of the table: what it is made of, what is wrong with it, and the memory it will take."""

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import (
    QButtonGroup,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QScrollArea,
    QSlider,
    QVBoxLayout,
    QWidget,
)

from ui import icons, language
from ui.models_table import Row
from ui.widgets.badge import Badge
from ui.widgets.button import button
from ui.widgets.card import Card
from ui.widgets.figure import Figure
from ui.widgets.label import label
from ui.widgets.stored_weights import StoredWeights
from ui.widgets.waterfall import Part, Waterfall
from workbench import figures
from workbench.catalog import capacity, fit
from workbench.catalog.capacity import Capacity, Device
from workbench.catalog.folder import Model
from workbench.engine.facts import EngineFacts
from workbench.words import Sentence, say

COLUMNS = 3


class ModelDetails(QScrollArea):
    """`show_row` draws everything anew; the context slider and the precision draw only the memory."""

    weighed = Signal(str, int)  # the user asks for the capacity at another precision or context

    def __init__(self):
        super().__init__()
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setMinimumWidth(420)
        self._row: Row | None = None
        self._device: Device | None = None
        self._inside = QWidget()
        self._inside.setObjectName("ground")
        column = QVBoxLayout(self._inside)
        column.setContentsMargins(0, 0, 4, 0)
        column.setSpacing(12)
        self.problems = QVBoxLayout()
        self.problems.setSpacing(8)
        column.addWidget(self._identity())
        column.addLayout(self.problems)
        column.addWidget(self._architecture())
        column.addWidget(self._memory_card())
        column.addStretch(1)
        self.setWidget(self._inside)

    def show_row(self, row: Row, device: Device | None, engine: EngineFacts | None = None) -> None:
        other = self._row is None or row.folder != self._row.folder
        self._row, self._device = row, device
        self._name.setText(row.model.name if row.model else row.folder.name)
        self._path.setText(str(row.folder))
        self._path.setToolTip(str(row.folder))
        self._show_problems(row)
        model = row.model
        self.weights.show_weights(model.quantization if model else None, engine if model and model.can_serve else None)
        for part in (self._architecture_card, self._memory, self._precision):
            part.setVisible(model is not None)
        if model is None:
            return
        if model.quantization:
            self._precision.show_text(model.quantization.sentence, "quantized")
        else:
            self._precision.show_text(model.dtype, "original")
        self._show_architecture(model)
        if other:
            self._offer(model, row)
        self._weigh()

    # -- parts -------------------------------------------------------------------------------------------------

    def _identity(self) -> QWidget:
        self._name = label(role="section")
        self._path = label(role="caption", wrap=True)
        self._path.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._precision, self.weights = Badge(), StoredWeights()
        whole = QWidget()
        column = QVBoxLayout(whole)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        line = QHBoxLayout()
        line.addWidget(self._name)
        line.addWidget(self._precision)
        line.addStretch(1)
        column.addLayout(line)
        column.addWidget(self._path)
        column.addWidget(self.weights)
        return whole

    def _architecture(self) -> QWidget:
        self._architecture_card = card = Card("Architecture")
        self._class = label(role="caption")
        card.head.addWidget(self._class)
        self._figures = {
            "parameters": Figure("Parameters"),
            "layers": Figure("Layers"),
            "context": Figure("Context"),
            "hidden": Figure("Hidden size"),
            "intermediate": Figure("MLP size"),
            "vocab": Figure("Vocabulary"),
            "heads": Figure("Heads"),
            "kv_heads": Figure("KV heads"),
            "head_dim": Figure("Head size"),
        }
        grid = QGridLayout()
        grid.setVerticalSpacing(12)
        for number, figure in enumerate(self._figures.values()):
            grid.addWidget(figure, number // COLUMNS, number % COLUMNS)
        card.body.addLayout(grid)
        self._remarks = label(role="muted", wrap=True)
        card.body.addWidget(self._remarks)
        return card

    def _memory_card(self) -> QWidget:
        self._memory = card = Card("Memory")
        self._device_name = label(role="caption")
        card.head.addWidget(self._device_name)
        self._precisions = QButtonGroup(self)
        self._precision_row = QHBoxLayout()
        self._precision_row.setSpacing(4)
        card.body.addLayout(self._precision_row)
        self._slider = QSlider(Qt.Orientation.Horizontal)
        self._slider.setPageStep(1)
        language.bind(self._slider.setAccessibleName, "Context in tokens")
        self._slider.valueChanged.connect(lambda _value: self._weigh())
        self._context = label()
        line = QHBoxLayout()
        line.addWidget(label("Context", "muted"))
        line.addWidget(self._slider, 1)
        line.addWidget(self._context)
        card.body.addLayout(line)
        self._waterfall = Waterfall()
        language.bind(self._waterfall.setAccessibleName, "Memory by use")
        card.body.addWidget(self._waterfall)
        self._verdict = label(wrap=True)
        self._remark = label(role="muted", wrap=True)
        card.body.addWidget(self._verdict)
        card.body.addWidget(self._remark)
        self._fit = {
            "per_token": Figure("KV cache per token"),
            "tokens": Figure("Tokens that fit"),
            "speed": Figure("Upper bound of speed"),
        }
        line = QHBoxLayout()
        for figure in self._fit.values():
            line.addWidget(figure)
        card.body.addLayout(line)
        return card

    # -- showing -----------------------------------------------------------------------------------------------

    def _show_problems(self, row: Row) -> None:
        _empty(self.problems)
        if row.model is None:
            error = row.entry.error
            told = [(Sentence(error.message, error.values), error.hint, True)]
        else:
            told = [(each.sentence, each.hint, bool(each.blocks)) for each in row.model.problems]
        for sentence, hint, blocks in told:
            self.problems.addWidget(_problem(sentence, hint, blocks))

    def _show_architecture(self, model: Model) -> None:
        self._class.setText(model.architecture or figures.DASH)
        number, unit = figures.count_apart(model.parameters)
        self._figures["parameters"].show_value(number, unit)
        for name in ("layers", "context", "hidden", "intermediate", "vocab", "heads", "kv_heads", "head_dim"):
            self._figures[name].show_value(figures.tokens(getattr(model, name)))
        words = [
            Sentence("tied embeddings") if model.tied else Sentence("separate output head"),
            Sentence("attention bias") if model.attention_bias else None,
            Sentence("chat template") if model.has_template else Sentence("no chat template"),
            Sentence("{kind} position scaling", {"kind": model.rope}) if model.rope else None,
        ]
        self._remarks.setText(" · ".join(str(word) for word in words if word))

    def _offer(self, model: Model, row: Row) -> None:
        """The precisions and contexts of this model; 16 bit and a middling context first."""
        for old in self._precisions.buttons():  # they go later, and must not be the first of the new ones
            self._precisions.removeButton(old)
        _empty(self._precision_row)
        before: QWidget = self
        for precision in row.fits:
            made = button("{precision}", kind="quiet", precision=precision)
            made.setCheckable(True)
            made.setProperty("precision", precision)
            made.clicked.connect(lambda _checked=False: self._weigh())
            self._precisions.addButton(made)
            self._precision_row.addWidget(made)
            QWidget.setTabOrder(before, made)
            before = made
        QWidget.setTabOrder(before, self._slider)
        self._precision_row.addStretch(1)
        if self._precisions.buttons():
            self._precisions.buttons()[0].setChecked(True)
        self._contexts = fit.contexts(model)
        self._slider.blockSignals(True)
        self._slider.setRange(0, len(self._contexts) - 1)
        self._slider.setValue(self._contexts.index(fit.usual_context(model)))
        self._slider.blockSignals(False)

    def _weigh(self) -> None:
        """Draw the memory for the precision and the context chosen."""
        picked: QPushButton | None = self._precisions.checkedButton()
        if self._row is None or self._row.model is None or self._device is None or picked is None:
            self._memory.hide()
            return
        context = self._contexts[self._slider.value()]
        precision = picked.property("precision")
        found: Capacity = capacity.capacity(self._row.model, self._device, precision, context)
        language.bind(self._context.setText, "{tokens} tokens", tokens=figures.tokens(context))
        self._device_name.setText(self._device.name)
        side = "original" if precision == "FP16" else "quantized"
        parts = (
            Part(Sentence("Weights"), found.weights, colour=side),
            Part(Sentence("KV cache"), found.kv_bytes, colour="kv"),
            Part(Sentence("Overhead"), found.overhead),
        )
        self._waterfall.show_parts(parts, found.available)
        language.show(self._verdict.setText, found.sentence)
        self._remark.setVisible(found.remark is not None)
        language.show(self._remark.setText, found.remark or "")
        self._fit["per_token"].show_value(*figures.bytes_apart(found.kv_bytes_per_token))
        self._fit["tokens"].show_value(figures.tokens(found.kv_tokens))
        self._fit["speed"].show_value(
            figures.number(found.roofline_tok_s), say("tok/s") if found.roofline_tok_s else ""
        )


def _problem(sentence: Sentence, hint: Sentence | str | None, blocks: bool) -> QWidget:
    card = Card()
    sign = QLabel()
    sign.setFixedWidth(20)
    colour = "rejected" if blocks else "quantized"
    # The label itself cannot take an icon: the picture is made once, the theme's two roses differ little.
    sign.setPixmap(icons.icon("close-circle-line" if blocks else "alert-line", colour).pixmap(QSize(16, 16)))
    texts = QVBoxLayout()
    texts.setSpacing(2)
    told = label(wrap=True)
    language.show(told.setText, sentence)
    texts.addWidget(told)
    if hint:
        step = label(role="muted", wrap=True)
        language.show(step.setText, hint)
        texts.addWidget(step)
    line = QHBoxLayout()
    line.addWidget(sign, 0, Qt.AlignmentFlag.AlignTop)
    line.addLayout(texts, 1)
    card.body.addLayout(line)
    return card


def _empty(layout) -> None:
    while item := layout.takeAt(0):
        if widget := item.widget():
            widget.hide()
            widget.deleteLater()
