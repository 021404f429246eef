"""A sentence across the page with what can be done about it; it never blocks."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPlainTextEdit, QPushButton, QVBoxLayout

from ui import icons, language
from ui.widgets.button import button
from ui.widgets.label import label, restyle
from workbench.words import Sentence

ICONS = {"info": "information-line", "warning": "alert-line", "error": "close-circle-line"}
TONES = {"info": "text", "warning": "quantized", "error": "rejected"}


class Banner(QFrame):
    """`level` is info, warning or error. `actions` are made with `button`."""

    closed = Signal()

    def __init__(
        self,
        level: str,
        sentence: Sentence | str,
        *actions: QPushButton,
        hint: Sentence | str | None = None,
        details: str = "",
        closable: bool = True,
    ):
        super().__init__()
        assert level in ICONS, level
        self.setObjectName("banner")
        restyle(self, "level", level)
        self._sign = QLabel()
        icons.bind(self._set_sign, ICONS[level], TONES[level])
        self.sentence = label(wrap=True)
        language.show(self.sentence.setText, sentence)
        language.show(self.setAccessibleName, sentence)
        texts = QVBoxLayout()
        texts.setSpacing(2)
        texts.addWidget(self.sentence)
        if hint:
            self.hint = label(role="muted", wrap=True)
            language.show(self.hint.setText, hint)
            texts.addWidget(self.hint)
        line = QHBoxLayout()
        line.setSpacing(12)
        line.addWidget(self._sign, 0, Qt.AlignmentFlag.AlignTop)
        line.addLayout(texts, 1)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(12, 8, 8, 8)
        whole.addLayout(line)
        if details:
            shown = QPlainTextEdit(details, readOnly=True)
            shown.setObjectName("log")
            shown.setMaximumHeight(200)
            shown.hide()
            line.addWidget(button("Details", lambda: shown.setVisible(shown.isHidden()), kind="quiet"))
            whole.addWidget(shown)
        for action in actions:
            line.addWidget(action, 0, Qt.AlignmentFlag.AlignTop)
        if closable:
            closer = button("Dismiss", self.dismiss, kind="quiet", icon="close-line", only_icon=True)
            line.addWidget(closer, 0, Qt.AlignmentFlag.AlignTop)

    def _set_sign(self, icon) -> None:
        self._sign.setPixmap(icon.pixmap(16, 16))

    def dismiss(self) -> None:
        self.hide()
        self.closed.emit()
        self.deleteLater()
