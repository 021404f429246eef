"""The chats so far, in a drawer at the left."""

from datetime import datetime

from PySide6.QtCore import QLocale, Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QListWidget, QListWidgetItem, QMessageBox, QVBoxLayout

from ui import language
from ui.widgets.button import button
from ui.widgets.label import label
from workbench import words
from workbench.chat.store import Listed
from workbench.words import say

WIDTH = 232


class ChatHistory(QFrame):
    """Emits what the user picks; the page reads and deletes."""

    picked = Signal(int)
    deleted = Signal(int)
    new_asked = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("card")
        self.setFixedWidth(WIDTH)
        self.new_button = button("New chat", self.new_asked.emit, icon="add-line")
        self.delete_button = button("Delete this chat", self._ask, kind="quiet", icon="delete-bin-line", only_icon=True)
        self.list = QListWidget()
        self.list.setObjectName("bare")
        self.list.setTextElideMode(Qt.TextElideMode.ElideRight)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        language.bind(self.list.setAccessibleName, "Earlier chats")
        self.list.itemActivated.connect(self._on_picked)
        self.list.itemClicked.connect(self._on_picked)
        self.list.currentItemChanged.connect(self._on_current)
        self.empty = label("Earlier chats are listed here.", "muted", wrap=True)
        self._question: QMessageBox | None = None
        top = QHBoxLayout()
        top.addWidget(self.new_button, 1)
        top.addWidget(self.delete_button)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(8, 8, 8, 8)
        whole.addLayout(top)
        whole.addWidget(self.empty)
        whole.addWidget(self.list, 1)

    def show_chats(self, chats: list[Listed], current: int) -> None:
        """List these, newest first, with the one that is open marked."""
        self.list.blockSignals(True)
        self.list.clear()
        place = QLocale(words.language())
        for chat in chats:
            item = QListWidgetItem(chat.title)
            item.setData(Qt.ItemDataRole.UserRole, chat.id)
            when = place.toString(datetime.fromtimestamp(chat.at), QLocale.FormatType.ShortFormat)
            item.setToolTip(f"{chat.title}\n{when}")
            self.list.addItem(item)
            if chat.id == current:
                self.list.setCurrentItem(item)
        self.list.blockSignals(False)
        self.empty.setVisible(not chats)
        self.list.setVisible(bool(chats))
        self._on_current(self.list.currentItem())

    def _on_picked(self, item: QListWidgetItem) -> None:
        self.picked.emit(item.data(Qt.ItemDataRole.UserRole))

    def _on_current(self, item: QListWidgetItem | None, _before: object = None) -> None:
        self.delete_button.setEnabled(item is not None)

    def _ask(self) -> None:
        item = self.list.currentItem()
        box = QMessageBox(self)
        box.setIcon(QMessageBox.Icon.Question)
        box.setText(say("Delete this chat?"))
        box.setInformativeText(item.text())
        delete = box.addButton(say("Delete"), QMessageBox.ButtonRole.DestructiveRole)
        box.addButton(say("Keep"), QMessageBox.ButtonRole.RejectRole)
        chat = item.data(Qt.ItemDataRole.UserRole)
        box.finished.connect(lambda _code: self._on_answer(box, box.clickedButton() is delete, chat))
        self._question = box
        box.open()

    def _on_answer(self, box: QMessageBox, delete: bool, chat: int) -> None:
        self._question = None
        box.deleteLater()
        if delete:
            self.deleted.emit(chat)
