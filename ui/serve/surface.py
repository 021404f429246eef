"""Where the parts of the Serve page stand: slots, form and command at the left, one card an engine at the right."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from ui.engines import SIDES, Engines
from ui.serve.losses import Losses
from ui.serve.profile_box import ProfileBox
from ui.serve.remote_card import RemoteCard
from ui.serve.remote_form import RemoteForm
from ui.serve.source_choice import SourceChoice
from ui.widgets import Banner, Card, EmptyState
from ui.widgets.command_view import CommandView
from ui.widgets.engine_card import EngineCard
from ui.widgets.profile_form import ProfileForm
from ui.widgets.slot_tab import SlotTab
from workbench.words import Sentence

FORM_WIDTH, WIDE_FORM = 408, 520
SIDE_BY_SIDE = 1032  # room for the two cards beside each other


class ServeSurface(QScrollArea):
    """`slot_picked(side)`: the user wants to see that slot's form."""

    slot_picked = Signal(str)

    def __init__(self, engines: Engines, below: QWidget):
        super().__init__(widgetResizable=True)
        self.tabs = {side: SlotTab(side) for side in SIDES}
        self.forms = {side: ProfileForm() for side in SIDES}
        self.cards = {side: EngineCard(side) for side in SIDES}
        self.command, self.profiles = CommandView(), ProfileBox()
        self.sources = {side: SourceChoice() for side in SIDES}
        self.remote_forms = {side: RemoteForm() for side in SIDES}
        self.remote_cards = {side: RemoteCard(side) for side in SIDES}
        self._side = SIDES[0]
        self.losses = Losses(engines, self.forms)
        self.empty = EmptyState(
            "server-line",
            "Nothing to serve yet",
            "Choose a model on the left, or come here from Models or Quantize. Two slots let the original and the "
            "quantized answer the same prompt.",
        )
        self._below = below
        self._note: Sentence | None = None
        self._banner: Banner | None = None
        self._notes = QVBoxLayout()
        self._left = self._form_side()
        inside = QWidget()
        inside.setObjectName("ground")
        row = QHBoxLayout(inside)
        row.setContentsMargins(0, 0, 4, 0)
        row.setSpacing(16)
        row.addWidget(self._left, 0, Qt.AlignmentFlag.AlignTop)
        row.addLayout(self._engine_side(), 1)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setWidget(inside)

    def choose(self, side: str) -> None:
        """Show this slot's form."""
        self._side = side
        self.arrange()

    def arrange(self) -> None:
        """Show what belongs to the slot and its source."""
        elsewhere = self.sources[self._side].elsewhere
        for each in SIDES:
            shown = each == self._side
            self.tabs[each].setChecked(shown)
            self.sources[each].setVisible(shown)
            self.forms[each].setVisible(shown and not elsewhere)
            self.remote_forms[each].setVisible(shown and elsewhere)
        for part in (self.profiles, self.command):
            part.setVisible(not elsewhere)

    def show_note(self, note: Sentence | None) -> None:
        """How a pair is started, above both cards."""
        if note == self._note:
            return
        self._note = note
        if self._banner:
            self._banner.hide()
            self._banner.deleteLater()
            self._banner = None
        if note:
            self._banner = Banner("info", note, closable=False)
            self._notes.addWidget(self._banner)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        wide = self.width() - WIDE_FORM >= SIDE_BY_SIDE
        self._left.setFixedWidth(WIDE_FORM if wide else FORM_WIDTH)
        self._cards.setDirection(QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom)

    def _form_side(self) -> QWidget:
        slots = QHBoxLayout()
        slots.setSpacing(8)
        for side in SIDES:
            slots.addWidget(self.tabs[side], 1)
            self.tabs[side].clicked.connect(lambda _checked=False, side=side: self.slot_picked.emit(side))
        left = Card()
        left.setFixedWidth(FORM_WIDTH)
        left.body.addLayout(slots)
        for source in self.sources.values():
            left.body.addWidget(source)
        left.body.addWidget(self.profiles)
        for remote in self.remote_forms.values():
            left.body.addWidget(remote)
        for form in self.forms.values():
            left.body.addWidget(form)
        left.body.addWidget(self.command)
        return left

    def _engine_side(self) -> QVBoxLayout:
        self._cards = QBoxLayout(QBoxLayout.Direction.TopToBottom)
        self._cards.setSpacing(12)
        for side in SIDES:
            self._cards.addWidget(self.cards[side], 1, Qt.AlignmentFlag.AlignTop)
            self._cards.addWidget(self.remote_cards[side], 1, Qt.AlignmentFlag.AlignTop)
        right = QVBoxLayout()
        right.setSpacing(12)
        right.addLayout(self._notes)
        right.addWidget(self.losses)
        right.addWidget(self.empty, 1)
        right.addLayout(self._cards)
        right.addWidget(self._below)
        right.addStretch(1)
        return right
