"""Signal to quantization noise as a colour: one hue whose lightness alone carries the order."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, floor

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QColor, QLinearGradient, QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QWidget

from ui import language, theme
from ui.widgets.label import label
from workbench import figures

STEP_DB = 5.0
SMALLEST_SPAN_DB = 10.0
EVEN_LUMINANCE = 0.179  # black and white contrast alike with this
FAR_END = {"dark": "#FFE9C7", "light": "#4A2A00"}  # what stands out most from the ground


@dataclass(frozen=True, slots=True)
class ErrorScale:
    """Colours between `high_db` (small error, near the ground) and `low_db` (large error, stands out)."""

    low_db: float = 15.0
    high_db: float = 30.0

    @classmethod
    def holding(cls, values: Iterable[float]) -> "ErrorScale":
        """Round ends that hold all values, at least 10 dB apart so that noise is not blown up to a pattern."""
        values = list(values)
        if not values:
            return cls()
        low = floor(min(values) / STEP_DB) * STEP_DB
        return cls(low, max(ceil(max(values) / STEP_DB) * STEP_DB, low + SMALLEST_SPAN_DB))

    def color(self, db: float) -> QColor:
        """The colour of `db` in the theme's present scheme; values outside take the end's colour."""
        share = (self.high_db - db) / (self.high_db - self.low_db)
        place = min(max(share, 0.0), 1.0) * 3
        index = min(int(place), 2)
        one, other = _ramp()[index : index + 2]
        return _mixed(one, other, place - index)

    def ink(self, db: float) -> QColor:
        """What reads on `color(db)`."""
        return ink_on(self.color(db))


def ink_on(ground: QColor) -> QColor:
    """Black or white, whichever reads better; the worse of both is never below 4.5:1."""
    return QColor("#000000" if luminance(ground) > EVEN_LUMINANCE else "#FFFFFF")


def width_color(bits: int) -> QColor:
    """The fewer bits, the more it stands out; what stays in 16 bit has the original's hue."""
    if bits >= 16:
        return QColor(theme.tokens().soft("original", 0.3))
    near, middle, strong, far = _ramp()
    return {2: far, 3: strong, 4: middle}.get(bits, near)


class ErrorLegend(QWidget):
    """The colour scale with its ends in words: of the output's noise, or of the damage that a layer would do."""

    def __init__(self):
        super().__init__()
        self._title, self._left, self._right = (label(role="caption") for _ in range(3))
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(8)
        row.addWidget(self._title)
        row.addStretch(1)
        row.addWidget(self._left)
        row.addWidget(_Ramp())
        row.addWidget(self._right)
        self.show_scale(ErrorScale())

    def show_scale(self, scale: ErrorScale, *, damage: bool = False) -> None:
        """With `damage` the scale's decibels are those of nats per token, shown in thousandths."""
        if damage:
            low, high = (figures.number(10 ** (3 - db / 10), 2) for db in (scale.high_db, scale.low_db))
            language.bind(self._title.setText, "predicted damage")
            language.bind(self._left.setText, "{damage} mnat", damage=low)
            language.bind(self._right.setText, "{damage} mnat", damage=high)
            language.bind(
                self.setToolTip, "Thousandths of a nat of KL divergence per token that rounding this layer alone costs"
            )
            return
        language.release(self.setToolTip)
        self.setToolTip("")
        language.bind(self._title.setText, "output SQNR")
        language.bind(self._left.setText, "{db} dB good", db=f"{scale.high_db:.0f}")
        language.bind(self._right.setText, "{db} dB poor", db=f"{scale.low_db:.0f}")


class _Ramp(QWidget):
    def __init__(self):
        super().__init__()
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(88, 10)

    def paintEvent(self, event: QPaintEvent) -> None:
        ramp = _ramp()
        gradient = QLinearGradient(0, 0, self.width(), 0)
        for index, color in enumerate(ramp):
            gradient.setColorAt(index / (len(ramp) - 1), color)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(gradient)
        painter.drawRoundedRect(self.rect(), 3, 3)


def luminance(color: QColor) -> float:
    """Relative luminance as WCAG 2 defines it, 0 to 1."""
    channels = (
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in (color.redF(), color.greenF(), color.blueF())
    )
    return sum(weight * channel for weight, channel in zip((0.2126, 0.7152, 0.0722), channels, strict=True))


def _ramp() -> tuple[QColor, ...]:
    worn = theme.tokens()
    return (
        QColor(worn.soft("quantized", 0.18)),
        QColor(worn.soft("quantized", 0.55)),
        QColor(worn.quantized),
        QColor(FAR_END[worn.scheme]),
    )


def _mixed(one: QColor, other: QColor, share: float) -> QColor:
    pairs = zip(one.getRgbF()[:3], other.getRgbF()[:3], strict=True)
    return QColor.fromRgbF(*(a + (b - a) * share for a, b in pairs))
