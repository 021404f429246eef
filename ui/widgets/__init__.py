"""Small parts that pages are made of."""

from ui.widgets.badge import Badge
from ui.widgets.banner import Banner
from ui.widgets.button import button
from ui.widgets.card import Card
from ui.widgets.empty_state import EmptyState
from ui.widgets.failure_card import FailureCard
from ui.widgets.figure import Figure
from ui.widgets.fold import Fold
from ui.widgets.label import label

__all__ = ["Badge", "Banner", "Card", "EmptyState", "FailureCard", "Figure", "Fold", "button", "label"]
