"""The part of a profile that says whether one engine reads prompts and writes answers, or several apart."""

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QButtonGroup, QRadioButton, QVBoxLayout, QWidget

from ui import language
from ui.serve.leg_fields import LegFields
from ui.serve.leg_urls import LegUrls
from ui.widgets.copy_button import copy_button
from ui.widgets.label import label
from workbench.engine.profile import Profile
from workbench.engine.separation import Separation
from workbench.errors import WorkbenchError
from workbench.words import Sentence

MODES = {
    "one": Sentence("One engine"),
    "apart": Sentence("Prefill and decode apart"),
    "urls": Sentence("By URLs (N × M)"),
}


class Separating(QWidget):
    """`changed` after every choice of the user. `mode` is one, apart or urls."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._lacking: WorkbenchError | None = None
        self.ways = {mode: QRadioButton() for mode in MODES}
        self._group = QButtonGroup(self)
        for mode, way in self.ways.items():
            for setter in (way.setText, way.setAccessibleName):
                language.show(setter, MODES[mode])
            self._group.addButton(way)
            way.clicked.connect(self._on_changed)
        self.ways["one"].setChecked(True)
        self.lack = label(role="caption", wrap=True)
        self.lack.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)  # it holds a command
        self.copy_button = copy_button(
            "Copy the command", lambda: self._lacking.values["command"], kind="plain", icon="file-copy-line"
        )
        self.legs, self.urls = LegFields(), LegUrls()
        for part in (self.legs, self.urls):
            part.changed.connect(self.changed)
        self.words = label(role="caption", wrap=True)
        self.problems = label(wrap=True)
        self.problems.setProperty("tone", "rejected")
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(8)
        choice = QVBoxLayout()
        choice.setSpacing(2)
        for way in self.ways.values():
            choice.addWidget(way)
        whole.addLayout(choice)
        whole.addWidget(self.lack)
        whole.addWidget(self.copy_button, 0, Qt.AlignmentFlag.AlignLeft)
        whole.addWidget(self.legs)
        whole.addWidget(self.urls)
        whole.addWidget(self.problems)
        whole.addWidget(self.words)
        self.show_words(())
        self.show_lacking(None)
        self._adapt()

    @property
    def mode(self) -> str:
        return next(mode for mode, way in self.ways.items() if way.isChecked())

    @property
    def summary(self) -> Sentence | str:
        """The choice in a word or two."""
        if self.mode == "one":
            return Sentence("one engine")
        return (self.urls if self.mode == "urls" else self.legs).summary

    def separation(self, profile: Profile | None) -> Separation | None:
        """The engines, apart, of this profile; None for one engine. Raises WorkbenchError for what makes no sense."""
        if self.mode == "urls":
            return self.urls.separation(profile.port if profile else 0)
        if self.mode == "one" or profile is None:
            return None
        return Separation(*self.legs.legs(profile), profile.port)

    def show_separation(self, separation: Separation | None) -> None:
        """Fill the form without a word."""
        first = separation.decode[0] if separation else None
        mode = "one" if first is None else "urls" if first.url else "apart"
        if mode == "apart":
            self.legs.show_legs(separation.prefill, separation.decode)
        elif mode == "urls":
            self.urls.show_separation(separation)
        self.ways[mode].setChecked(True)
        self._adapt()

    def show_lacking(self, error: WorkbenchError | None) -> None:
        """Switch the ways apart off with the reason and the command that helps; what is chosen stays, to be undone."""
        self._lacking = error
        told = Sentence("{sentence} {hint}", {"sentence": error, "hint": error.hint}) if error else ""
        language.show(self.lack.setText, told)
        self.lack.setVisible(error is not None)
        self.copy_button.setVisible(error is not None and "command" in error.values)
        self._adapt()

    def show_device(self, kind: str) -> None:
        self.legs.show_device(kind)

    def show_words(self, told: Sequence[Sentence], problems: Sequence[Sentence] = ()) -> None:
        """What the choice means, and what stands against it."""
        for field, sentences in ((self.words, told), (self.problems, problems)):
            values = {f"part_{number}": sentence for number, sentence in enumerate(sentences)}
            language.show(field.setText, Sentence("\n".join("{" + name + "}" for name in values), values))
            field.setVisible(bool(sentences))

    def _adapt(self) -> None:
        for mode in ("apart", "urls"):
            self.ways[mode].setEnabled(self._lacking is None or self.ways[mode].isChecked())
        self.legs.setVisible(self.mode == "apart")
        self.urls.setVisible(self.mode == "urls")

    def _on_changed(self, *_value: object) -> None:
        self._adapt()
        self.changed.emit()
