"""The line at the top: what this machine does now, the engines' lights, and the language."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QWidget

from ui import language
from ui.widgets.button import button
from ui.widgets.label import label, restyle
from ui.widgets.meter import Meter, Trace
from ui.widgets.state_light import StateLight
from workbench import figures, words
from workbench.engine.monitor import DeviceSample
from workbench.words import Sentence

SIDES = {"original": Sentence("original"), "quantized": Sentence("quantized")}


class DeviceStrip(QFrame):
    """Shows the first GPU, else the processor; `menu_button` carries the window's menu."""

    palette_asked = Signal()
    holders_asked = Signal()
    language_asked = Signal()

    def __init__(self):
        super().__init__()
        self.setObjectName("strip")
        self.setFixedHeight(40)
        self._last: DeviceSample | None = None
        self._name = label()
        self._trace = Trace()
        self._load = _fixed("100 %")
        self._memory_word = label("memory", "caption")
        self._memory = Meter()
        self._memory_figures = label()
        self.holders_button = button(
            "Who holds memory", self.holders_asked.emit, kind="quiet", icon="arrow-down-s-line", only_icon=True
        )
        self._power = label()
        self._states = dict.fromkeys(SIDES, "stopped")
        self._lights = {side: StateLight() for side in SIDES}
        self._engines = self._light_row()
        line = QHBoxLayout(self)
        line.setContentsMargins(16, 0, 8, 0)
        line.setSpacing(8)
        for widget in (self._name, self._trace, self._load):
            line.addWidget(widget)
        line.addSpacing(12)
        for widget in (self._memory_word, self._memory, self._memory_figures):
            line.addWidget(widget)
        line.addWidget(self.holders_button)
        line.addSpacing(8)
        line.addWidget(self._power)
        line.addSpacing(8)
        line.addWidget(self._engines)
        line.addStretch(1)
        find = button("Search actions", self.palette_asked.emit, kind="quiet", icon="search-line", only_icon=True)
        self._language = button("Switch language", self.language_asked.emit, kind="quiet")
        language.release(self._language.setText)
        self.menu_button = button("Menu", kind="quiet", icon="menu-line", only_icon=True)
        for widget in (find, self._language, self.menu_button):
            line.addWidget(widget)
        language.changed.connect(self._draw)
        self._draw()

    def show_sample(self, sample: DeviceSample) -> None:
        """A new reading; the trace moves on."""
        gpu = sample.gpus[0] if sample.gpus else None
        self._trace.add(gpu.load if gpu else sample.cpu_load)
        self._last = sample
        self._draw()

    def show_state(self, side: str, state: str) -> None:
        """The light of one side's engine; both are hidden while neither runs. States are those of Engines."""
        self._states[side] = state
        self._lights[side].show_state(state)
        self._engines.setVisible(any(each != "stopped" for each in self._states.values()))

    def _light_row(self) -> QWidget:
        row = QHBoxLayout()
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(8)
        row.addWidget(label("vLLM", "caption"))
        for side, name in SIDES.items():
            caption = label(name.template)
            restyle(caption, "tone", side)
            row.addWidget(caption)
            row.addWidget(self._lights[side])
            row.addSpacing(4)
        whole = QWidget()
        whole.setLayout(row)
        whole.hide()
        return whole

    def _draw(self) -> None:
        # The button names the language it switches to.
        self._language.setText("EN" if words.language() == "zh_CN" else "中文")
        sample = self._last
        if sample is None:
            _show((self._name, self._load, self._memory_figures), figures.DASH)
            self._power.hide()
            return
        gpu = sample.gpus[0] if sample.gpus else None
        if gpu:
            more = len(sample.gpus) - 1
            self._name.setText(f"{gpu.name} +{more}" if more else gpu.name)
            load, used, total = gpu.load, gpu.memory_used, gpu.memory_total
        else:
            language.bind(self._name.setText, "CPU")
            load, used, total = sample.cpu_load, sample.ram_used, sample.ram_total
        self._load.setText(figures.percent(load))
        self._memory.set_share(used / total if used is not None and total else None)
        self._memory_figures.setText(figures.of_bytes(used, total))
        self._power.setVisible(bool(gpu and gpu.power_w is not None))
        if gpu and gpu.power_w is not None:
            self._power.setText(f"{gpu.power_w:.0f} W")


def _fixed(widest: str) -> QLabel:
    """A figure that keeps its place while it changes."""
    made = label(role="body")
    made.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
    made.setMinimumWidth(made.fontMetrics().horizontalAdvance(widest) + 4)
    return made


def _show(labels: tuple[QWidget, ...], text: str) -> None:
    for each in labels:
        each.setText(text)
