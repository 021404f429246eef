"""What stands in the way of a plan, each with its sentence and the ways out as buttons."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPushButton, QVBoxLayout, QWidget

from ui import language
from ui.widgets import Banner, button
from workbench.plan import Conflict, Fix, Plan


class ConflictList(QWidget):
    """`fixed(fix)` is emitted with the way out that was chosen."""

    fixed = Signal(object)

    def __init__(self):
        super().__init__()
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(8)
        self._shown: tuple[Conflict, ...] = ()
        self.fixes: list[QPushButton] = []
        self.banners: list[Banner] = []
        self.hide()

    def show_plan(self, plan: Plan | None) -> None:
        """Show the conflicts, then the warnings, of `plan`; nothing is made anew when they are the same."""
        found = (*plan.conflicts, *plan.warnings) if plan else ()
        if found == self._shown:
            return
        self._shown = found
        for banner in self.banners:
            self._column.removeWidget(banner)
            banner.hide()
            banner.deleteLater()
        self.banners, self.fixes = [], []
        for conflict in found:
            actions = [self._button(fix) for fix in conflict.fixes]
            level = "error" if conflict in plan.conflicts else "warning"
            banner = Banner(level, conflict.sentence, *actions, hint=conflict.hint, closable=False)
            self._column.addWidget(banner)
            self.banners.append(banner)
            self.fixes += actions
        self.setVisible(bool(found))

    def _button(self, fix: Fix) -> QPushButton:
        made = button(fix.label.template, lambda: self.fixed.emit(fix), **fix.label.values)
        language.show(made.setAccessibleDescription, fix.label)
        return made
