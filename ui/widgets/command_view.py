"""The exact command of an engine, to read and to copy."""

from PySide6.QtWidgets import QHBoxLayout, QPlainTextEdit, QVBoxLayout, QWidget

from ui import language, theme
from ui.widgets.copy_button import copy_button
from ui.widgets.label import label
from workbench.engine import command, handover
from workbench.engine.facts import EngineFacts
from workbench.engine.profile import Profile
from workbench.engine.separation import Separation
from workbench.engine.separation import label as label_of
from workbench.errors import WorkbenchError
from workbench.words import Sentence, say

SHOWN_PORT = 8000


class CommandView(QWidget):
    """Without a command it says why there is none."""

    def __init__(self):
        super().__init__()
        self._text = QPlainTextEdit(readOnly=True)
        self._text.setObjectName("command")
        self._text.setFont(theme.mono())
        self._text.setFixedHeight(120)
        language.bind(self._text.setAccessibleName, "Command of this engine")
        self.copy_button = copy_button("Copy", lambda: self.text, icon="file-copy-line")
        self.remark = label(role="caption", wrap=True)
        heading = QHBoxLayout()
        heading.addWidget(label("Command", "section"), 1)
        heading.addWidget(self.copy_button)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(4)
        whole.addLayout(heading)
        whole.addWidget(self._text)
        whole.addWidget(self.remark)

    @property
    def text(self) -> str:
        return self._text.toPlainText()

    def show_profile(self, profile: Profile | None, facts: EngineFacts | None) -> None:
        """Build the command for the engine that `facts` describe; raises WorkbenchError where it has no such flag."""
        if profile is None:
            self._show("", Sentence("Choose a model to see its command."))
        elif facts is None:
            self._show("", Sentence("Asking the engine's interpreter what it knows…"))
        else:
            built = command.build(profile, profile.port or SHOWN_PORT, "", facts)
            if profile.port:
                remark = Sentence("A new key is made at each start: LATHE_KEY stands for it.")
            else:
                remark = Sentence(
                    "A free port and a new key are taken at each start: 8000 and LATHE_KEY stand for them."
                )
            self._show(command.shown(built), remark)

    def show_separation(self, separation: Separation, facts: EngineFacts | None) -> None:
        """Build the commands of all engines and their front, one after the other; raises WorkbenchError likewise."""
        if facts is None:
            self._show("", Sentence("Asking the engine's interpreter what it knows…"))
            return
        built = handover.shown(separation, facts)
        names = {name: say("router") if name == handover.FRONT else str(label_of(name)) for name in built}
        text = "\n\n".join(f"# {names[name]}\n{command.shown(each)}" for name, each in built.items())
        self._show(text, Sentence("Free ports and a new key are taken at each start: LATHE_KEY stands for the key."))

    def show_error(self, error: WorkbenchError) -> None:
        """Why there is no command, and what to do."""
        self._show("", Sentence("{sentence} {hint}", {"sentence": error, "hint": error.hint}))

    def _show(self, text: str, remark: Sentence) -> None:
        if text != self.text:
            self._text.setPlainText(text)
        self.copy_button.setEnabled(bool(text))
        language.show(self.remark.setText, remark)
