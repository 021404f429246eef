"""The machine that computes it: load, memory, power, and how much of the memory's bandwidth the engines use."""

from PySide6.QtWidgets import QVBoxLayout, QWidget

from ui.live.section import Section, Shown, recent
from ui.plots.looks import DEVICE, side_of
from ui.plots.series import TimePlot
from ui.widgets import label
from ui.widgets.figure_line import FigureLine
from workbench import figures
from workbench.engine.monitor import DeviceSample
from workbench.measure import bandwidth, series
from workbench.words import Sentence


class Device(Section):
    """A line a GPU, or one of the processor, and a line an engine with its estimated bandwidth."""

    def __init__(self):
        self.plot = TimePlot(Sentence("Device load over time"), figures.percent, least=1.0)
        self.bandwidth = TimePlot(Sentence("Memory bandwidth over time"), figures.percent, least=1.0)
        self.caption = label("share of the memory's bandwidth, estimated from steps, weights and KV cache", "caption",
                             wrap=True)  # fmt: skip
        self.devices: list[FigureLine] = []
        self._rows = QVBoxLayout()
        self._rows.setContentsMargins(0, 0, 0, 0)
        self._rows.setSpacing(4)
        held = QWidget()
        held.setLayout(self._rows)
        super().__init__(Sentence("Device"), self.bandwidth, self.caption, first=(held, self.plot))

    def draw(self, shown: Shown) -> None:
        self._show_devices(shown)
        self.show_lines(shown.runs)
        for key, run in shown.runs.items():
            read = shown.readings.get(side_of(key))
            used = bandwidth.now(read, run)
            number, unit = figures.bytes_apart(used)
            rest: Sentence | str = Sentence("bandwidth, estimated")
            if used is not None and read and read.peak:
                values = {"share": figures.percent(series.share(used, read.peak)), "peak": figures.bytes_of(read.peak)}
                rest = Sentence("{share} of {peak}/s, estimated", values)
            self.lines[key].show_value(number, f"{unit}/s" if unit else "", rest)
        told = {key: run for key, run in shown.runs.items() if (read := shown.readings.get(side_of(key))) and read.peak}
        lines = {
            key: recent(run.series.at_s, bandwidth.over_time(shown.readings[side_of(key)], run), shown.span_s)
            for key, run in told.items()
        }
        self.bandwidth.show_lines(lines, shown.span_s)
        some = any(share is not None for line in lines.values() for _, share in line)
        for widget in (self.bandwidth, self.caption):
            widget.setVisible(some)

    def _show_devices(self, shown: Shown) -> None:
        last = shown.devices[-1] if shown.devices else None
        rows = _rows(last)
        while len(self.devices) < len(rows):
            self.devices.append(FigureLine())
            self._rows.addWidget(self.devices[-1])
        for line, (name, load, rest) in zip(self.devices, rows, strict=False):
            line.show_value(load, name, rest)
            line.setAccessibleName(f"{name} {load} {rest}")
        for index, line in enumerate(self.devices):
            line.setVisible(index < len(rows))
        self.plot.show_lines(_loads(shown), shown.span_s)
        self.plot.setVisible(last is not None)


def _rows(last: DeviceSample | None) -> list[tuple[str, str, Sentence]]:
    """(name, load, memory and power) of each GPU, or of the processor where there is none."""
    if last is None:
        return []
    if not last.gpus:
        values = {"memory": figures.of_bytes(last.ram_used, last.ram_total), "power": figures.DASH}
        return [("CPU", figures.percent(last.cpu_load), Sentence("RAM {memory}", values))]
    rows = []
    for index, gpu in enumerate(last.gpus):
        power = figures.watts(gpu.power_w, gpu.power_limit_w)
        values = {"memory": figures.of_bytes(gpu.memory_used, gpu.memory_total), "power": power}
        rows.append((f"GPU {index}", figures.percent(gpu.load), Sentence("memory {memory} · {power}", values)))
    return rows


def _loads(shown: Shown) -> dict[str, list]:
    samples = shown.devices
    if not samples or not samples[-1].gpus:
        return {DEVICE: [(each.at_s, each.cpu_load) for each in samples]}
    return {
        f"{DEVICE}/{index}": [
            (each.at_s, each.gpus[index].load if index < len(each.gpus) else None) for each in samples
        ]
        for index in range(len(samples[-1].gpus))
    }
