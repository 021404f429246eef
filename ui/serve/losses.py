"""Says of each engine when drafting makes it slower, and offers to serve without."""

from collections.abc import Mapping
from dataclasses import replace

from PySide6.QtWidgets import QVBoxLayout, QWidget

from ui import language
from ui.engines import Engines
from ui.plots.looks import NAMES
from ui.widgets import Banner, button
from ui.widgets.profile_form import ProfileForm
from workbench.engine import handed, payoff
from workbench.words import Sentence


class Losses(QWidget):
    """What was dismissed stays away until it was past once."""

    def __init__(self, engines: Engines, forms: Mapping[str, ProfileForm]) -> None:
        super().__init__()
        self._engines, self._forms = engines, forms
        self._banners: dict[str, Banner] = {}
        self._dismissed: set[str] = set()
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(8)
        self.hide()

    def show_engines(self, two: bool) -> None:
        """Look at the engines' counters; with `two` models each is named."""
        for side, form in self._forms.items():
            chosen = form.drafting.list.chosen
            ready = self._engines.state(side) == "ready"
            cost = (chosen and chosen.cost) or 0.0
            losses = (payoff.loss(run.sample, cost) for run in handed.writers(self._engines.run(side)) if ready)
            self._show(side, next(filter(None, losses), None), two)

    def _show(self, side: str, told: Sentence | None, two: bool) -> None:
        if told is None:
            self._dismissed.discard(side)
            self._remove(side)
        elif side not in self._dismissed:
            if side not in self._banners:
                self._add(side, told)
            named = Sentence("{side}: {text}", {"side": NAMES[side], "text": told}) if two else told
            language.show(self._banners[side].sentence.setText, named)
            language.show(self._banners[side].setAccessibleName, named)
        self.setVisible(bool(self._banners))

    def _add(self, side: str, told: Sentence) -> None:
        off = button("Serve without drafting", lambda: self.switch_off(side))
        banner = Banner("warning", told, off)
        banner.closed.connect(lambda: self._dismiss(side))
        self._banners[side] = banner
        self._column.addWidget(banner)

    def switch_off(self, side: str) -> None:
        """Serve the same without drafting."""
        if profile := self._engines.profile(side):
            self._forms[side].show_profile(replace(profile, speculation=None))
            self._engines.start(side, self._forms[side].chosen())

    def _dismiss(self, side: str) -> None:
        self._dismissed.add(side)
        self._banners.pop(side, None)
        self.setVisible(bool(self._banners))

    def _remove(self, side: str) -> None:
        if banner := self._banners.pop(side, None):
            self._column.removeWidget(banner)
            banner.hide()
            banner.deleteLater()
