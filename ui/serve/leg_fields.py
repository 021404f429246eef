"""How many engines read prompts and how many write, and in what both kinds may differ: split, place and memory."""

from dataclasses import replace

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QLineEdit, QSpinBox, QWidget

from ui import language
from ui.widgets.label import label
from ui.widgets.optional_number import MARGINS, OptionalNumber
from workbench.engine.profile import Profile
from workbench.engine.separation import Leg, read_devices, spread, together
from workbench.words import Sentence

ROLES = ("prefill", "decode")
NAMES = {"prefill": Sentence("Prefill"), "decode": Sentence("Decode")}
MOST = 64


class LegFields(QWidget):
    """One column a kind. `changed` after every choice of the user."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.engines = {role: self._count() for role in ROLES}
        self.tensor = {role: self._count() for role in ROLES}
        self.pipeline = {role: self._count() for role in ROLES}
        self.devices = {role: self._line() for role in ROLES}
        self.share = {role: OptionalNumber(100) for role in ROLES}
        self._gpu_only: list[QWidget] = []
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(8)
        self._grid.setVerticalSpacing(6)
        for column, role in enumerate(ROLES, 1):
            head = label(role="caption")
            language.show(head.setText, NAMES[role])
            self._grid.addWidget(head, 0, column)
            self._grid.setColumnStretch(column, 1)
            self.share[role].setSuffix(" %")
            self.share[role].valueChanged.connect(self._on_changed)
        self._row(Sentence("Engines"), self.engines)
        self._row(Sentence("Tensor parallel"), self.tensor)
        self._row(Sentence("Pipeline parallel"), self.pipeline)
        self._gpu_only += self._row(Sentence("GPUs"), self.devices)
        self._gpu_only += self._row(Sentence("Memory share"), self.share)

    @property
    def summary(self) -> str:
        """How many of each kind."""
        return f"{self.engines['prefill'].value()}P{self.engines['decode'].value()}D"

    def legs(self, profile: Profile) -> tuple[tuple[Leg, ...], tuple[Leg, ...]]:
        """The engines of this profile, by kind; raises WorkbenchError for GPUs that cannot be read."""
        prefill, decode = (self._legs(role, profile) for role in ROLES)
        return prefill, decode

    def show_legs(self, prefill: tuple[Leg, ...], decode: tuple[Leg, ...]) -> None:
        """Fill the columns without a word, with the first of each kind and the GPUs of all."""
        self.blockSignals(True)
        for role, legs in zip(ROLES, (prefill, decode), strict=True):
            first = legs[0].profile
            self.engines[role].setValue(len(legs))
            self.tensor[role].setValue(first.tensor_parallel)
            self.pipeline[role].setValue(first.pipeline_parallel)
            self.devices[role].setText(",".join(map(str, together(legs))))
            self.share[role].setValue(round((first.memory_share or 0) * 100))
        self.blockSignals(False)

    def _legs(self, role: str, profile: Profile) -> tuple[Leg, ...]:
        one = replace(
            profile, port=0,
            tensor_parallel=self.tensor[role].value(), pipeline_parallel=self.pipeline[role].value(),
            memory_share=(self.share[role].value() / 100) or profile.memory_share,
        )  # fmt: skip
        parts = spread(read_devices(self.devices[role].text()), self.engines[role].value(), one.devices)
        return tuple(Leg(one, devices) for devices in parts)

    def show_device(self, kind: str) -> None:
        """Without a GPU there is none to choose and no share of one."""
        for widget in self._gpu_only:
            widget.setVisible(kind == "gpu")

    def _row(self, name: Sentence, fields: dict[str, QWidget]) -> list[QWidget]:
        row = self._grid.rowCount()
        head = label(role="muted")
        language.show(head.setText, name)
        self._grid.addWidget(head, row, 0)
        for column, role in enumerate(ROLES, 1):
            fields[role].setMinimumWidth(64)  # else the words for "automatic" push the names into two lines
            self._grid.addWidget(fields[role], row, column)
            language.bind(fields[role].setAccessibleName, "{leg}: {field}", leg=NAMES[role], field=name)
        return [head, *fields.values()]

    def _count(self) -> QSpinBox:
        count = QSpinBox()
        count.setRange(1, MOST)
        count.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        count.lineEdit().setTextMargins(*MARGINS)
        count.valueChanged.connect(self._on_changed)
        return count

    def _line(self) -> QLineEdit:
        line = QLineEdit()
        language.bind(line.setPlaceholderText, "automatic")
        line.textEdited.connect(self._on_changed)
        return line

    def _on_changed(self, *_value: object) -> None:
        self.changed.emit()


def title(name: str) -> Sentence:
    """The leg of this name, as a title."""
    role, _, number = name.partition(" ")
    if not number:
        return NAMES[role]
    if role == "prefill":
        return Sentence("Prefill {number}", {"number": number})
    return Sentence("Decode {number}", {"number": number})
