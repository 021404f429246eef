"""The Speculation part of a profile: the ways to draft with their reasons, and how much is drafted."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QComboBox, QFileDialog, QHBoxLayout, QLineEdit, QSpinBox, QVBoxLayout, QWidget

from ui import language
from ui.serve.draft_list import DraftList
from ui.widgets.button import button
from ui.widgets.form_grid import FormGrid
from ui.widgets.label import label, restyle
from ui.widgets.optional_number import MARGINS
from workbench.engine.drafts import Candidate
from workbench.engine.speculation import FIXED, SAMPLED, SAMPLING, Speculation, read_steps, written
from workbench.words import Sentence, say

MOST = 32
WAYS = {"greedy": Sentence("the likeliest token"), "probabilistic": Sentence("by its probabilities")}


class Drafting(QWidget):
    """`changed` after every choice of the user; `added(Path)` when another folder shall be looked at.

    `copy_asked(Path)` wants the adapted copy of the draft in that folder. `choice()` raises WorkbenchError for a way
    that cannot draft for this model.
    """

    changed = Signal()
    added = Signal(object)
    copy_asked = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.list = DraftList()
        self.list.picked.connect(self._on_changed)
        self.why = label(role="caption", wrap=True)
        self.copy_button = button("Make the adapted copy", self._on_copy, icon="file-copy-line")
        self.browse_button = button("Another folder", self._browse, kind="quiet", icon="folder-open-line")
        self.tokens = self._whole(1, MOST, 4)
        self.steps = QLineEdit()
        self.steps.setPlaceholderText("4:4,16:1")
        self.steps.textEdited.connect(self._on_changed)
        language.bind(
            self.steps.setToolTip,
            "Sequences:tokens. With 4:4,16:1 up to 4 sequences draft 4 tokens each, up to 16 one, more none.",
        )
        self.sampling = QComboBox()
        for way in SAMPLING:
            self.sampling.addItem("", way)
        self.sampling.activated.connect(self._on_changed)
        self.low, self.high = self._whole(1, 16, 2), self._whole(1, 16, 4)
        self._rows = FormGrid()
        self._rows.add("Draft tokens a step", self.tokens)
        self._rows.add("Draft tokens by load", self.steps)
        self._rows.add("Draft sampling", self.sampling)
        self._rows.add("Shortest n-gram", self.low)
        self._rows.add("Longest n-gram", self.high)
        buttons = QHBoxLayout()
        buttons.addWidget(self.browse_button)
        buttons.addWidget(self.copy_button)
        buttons.addStretch(1)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(8)
        whole.addWidget(self.list)
        whole.addLayout(buttons)
        whole.addWidget(self.why)
        whole.addLayout(self._rows)
        language.changed.connect(self._speak)
        self._speak()
        self._adapt()

    def choice(self) -> Speculation | None:
        """What stands in the form."""
        if (candidate := self.list.chosen) is None:
            return None
        candidate.check()
        base = Speculation(
            tokens=self.tokens.value(), lookup_min=self.low.value(), lookup_max=self.high.value(),
            steps=() if candidate.method in FIXED else read_steps(self.steps.text()),
        )  # fmt: skip
        chosen = candidate.speculation(base)
        return replace(chosen, sampling=self.sampling.currentData()) if self._samples(candidate) else chosen

    def show_choice(self, chosen: Speculation | None) -> None:
        """Fill the form without a word."""
        self.blockSignals(True)
        self.list.choose(chosen and chosen.method, chosen and chosen.draft)
        if chosen:
            self.tokens.setValue(chosen.tokens)
            self.steps.setText(written(chosen.steps))
            self.sampling.setCurrentIndex(self.sampling.findData(chosen.sampling))
            self.low.setValue(chosen.lookup_min)
            self.high.setValue(chosen.lookup_max)
        self.blockSignals(False)
        self._adapt()

    def show_candidates(self, candidates: Sequence[Candidate]) -> None:
        """List what could draft for the model as it now stands."""
        self.list.show_candidates(candidates)
        self._adapt()

    def show_copying(self, copying: bool) -> None:
        """Whether an adapted copy is being made."""
        self.copy_button.setEnabled(not copying)
        language.bind(self.copy_button.setText, "Copying…" if copying else "Make the adapted copy")

    @property
    def summary(self) -> Sentence:
        if (candidate := self.list.chosen) is None:
            return Sentence("off")
        return Sentence(
            "{name}, {count} {count:token|tokens} a step", {"name": candidate.name, "count": self.tokens.value()}
        )

    def _samples(self, candidate: Candidate) -> bool:
        return candidate.method in SAMPLED and not candidate.adaptable

    def _whole(self, least: int, most: int, value: int) -> QSpinBox:
        box = QSpinBox()
        box.setRange(least, most)
        box.setValue(value)
        box.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        box.lineEdit().setTextMargins(*MARGINS)
        box.valueChanged.connect(self._on_changed)
        return box

    def _on_changed(self, *_value: Any) -> None:
        self._adapt()
        self.changed.emit()

    def _on_copy(self) -> None:
        if (candidate := self.list.chosen) and candidate.folder:
            self.copy_asked.emit(candidate.folder)

    def _browse(self) -> None:
        # Not the static call: it would run a loop of its own inside ours.
        dialog = QFileDialog(self, say("Choose a folder"))
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.fileSelected.connect(lambda path: self.add(Path(path)))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def add(self, folder: Path) -> None:
        """Choose a folder that is not in the library."""
        self.list.choose("draft_model", folder)
        self.added.emit(folder)

    def _adapt(self) -> None:
        """Show the rows that the chosen way has, and all that is said of it."""
        candidate = self.list.chosen
        method = candidate.method if candidate else None
        barred = candidate is not None and candidate.barrier is not None
        self.tokens.setMaximum(candidate.most or MOST if candidate else MOST)
        shown = {
            self.tokens: bool(candidate),
            self.steps: bool(candidate) and method not in FIXED,
            self.sampling: bool(candidate) and self._samples(candidate),
            self.low: method == "ngram",
            self.high: method == "ngram",
        }
        for field, needed in shown.items():
            self._rows.show_row(field, needed and not barred)
        self.copy_button.setVisible(bool(candidate and candidate.adaptable))
        told = candidate.ordered if candidate else ()
        self.why.setText("\n".join(str(part) for reason in told for part in (reason.sentence, reason.hint) if part))
        self.why.setVisible(bool(told))
        refused = candidate is not None and candidate.verdict == "refused"
        restyle(self.why, "tone", "rejected" if refused else "muted")

    def _speak(self) -> None:
        for index, way in enumerate(SAMPLING):
            self.sampling.setItemText(index, str(WAYS[way]))
        self._adapt()
