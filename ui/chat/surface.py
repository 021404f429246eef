"""Where the parts of the Chat page stand: the history at the left, the columns, the composer and its settings below."""

from PySide6.QtWidgets import QHBoxLayout, QPushButton, QStackedWidget, QVBoxLayout, QWidget

from ui.chat_settings import ChatSettings
from ui.widgets import EmptyState
from ui.widgets.chat_column import ChatColumn
from ui.widgets.chat_history import ChatHistory
from ui.widgets.composer import Composer
from ui.widgets.label import label
from workbench.chat.conversation import SIDES


class ChatSurface(QWidget):
    """`serve` leads to where engines start, `send` and `stop` stand beside the composer."""

    def __init__(self, serve: QPushButton, send: QPushButton, stop: QPushButton):
        super().__init__()
        self.history = ChatHistory()
        self.history.hide()
        self.columns = {side: ChatColumn(side) for side in SIDES}
        self.stack = QStackedWidget()
        self.empty = EmptyState(
            "chat-3-line",
            "No engine is running",
            "Start the original, the quantized model or both on Serve, then ask them here.",
            serve,
        )
        self.stack.addWidget(self.empty)
        self.stack.addWidget(self._beside())
        self.composer, self.sampling = Composer(), ChatSettings()
        self.fairness = label(
            "Both get the same prompt and settings. Even at temperature 0, batching and speculation can change words.",
            "caption",
            wrap=True,
        )
        typing = QHBoxLayout()
        typing.setSpacing(8)
        typing.addWidget(self.composer, 1)
        typing.addWidget(send)
        typing.addWidget(stop)
        middle = QVBoxLayout()
        middle.setSpacing(8)
        middle.addWidget(self.stack, 1)
        middle.addLayout(typing)
        middle.addWidget(self.sampling)
        middle.addWidget(self.fairness)
        whole = QHBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(12)
        whole.addWidget(self.history)
        whole.addLayout(middle, 1)

    def show_columns(self, sides: list[str]) -> None:
        """Show these sides' columns; without any, what to do."""
        self.stack.setCurrentIndex(1 if sides else 0)
        for side, column in self.columns.items():
            column.setVisible(side in sides)

    def _beside(self) -> QWidget:
        both = QWidget()
        beside = QHBoxLayout(both)
        beside.setContentsMargins(0, 0, 0, 0)
        beside.setSpacing(12)
        for column in self.columns.values():
            beside.addWidget(column, 1)
        return both
