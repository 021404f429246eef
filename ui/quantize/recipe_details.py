"""The recipe beyond attention and MLP: exceptions by pattern with what each matches, and how many GPUs share it."""

from dataclasses import replace

from PySide6.QtCore import Signal
from PySide6.QtWidgets import (
    QDialog,
    QHBoxLayout,
    QHeaderView,
    QLineEdit,
    QSpinBox,
    QTreeWidget,
    QTreeWidgetItem,
    QVBoxLayout,
    QWidget,
)

from ui import language
from ui.widgets import button, label
from ui.widgets.choice_form import ChoiceForm
from ui.widgets.optional_number import MARGINS
from ui.widgets.scheme import scheme
from workbench import matching
from workbench.plan import Plan
from workbench.recipe import Choice, Recipe
from workbench.unmatched import nearest
from workbench.words import say

MOST = 500  # rows; an allocated recipe may have a rule for every layer, a pattern match every expert


class RecipeDetails(QDialog):
    """Stays beside the window. `changed(recipe)` is emitted with the recipe that a rule or the GPUs result in."""

    changed = Signal(object)

    def __init__(self, parent: QWidget):
        super().__init__(parent)
        self._plan: Plan | None = None
        self._choice = Choice()
        self._names: list[str] = []
        language.bind(self.setWindowTitle, "Details of the recipe")
        self.rules = QTreeWidget()
        self.rules.setColumnCount(4)
        language.bind(self.rules.setAccessibleName, "Exceptions")
        self.rules.header().setStretchLastSection(False)
        self.rules.header().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self.rules.header().setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        self.rules.currentItemChanged.connect(self._on_current)
        self.rules.itemExpanded.connect(self._list_layers)
        self.remove = button("Remove the rule", self._remove, kind="quiet", icon="delete-bin-line")
        self.pattern = QLineEdit(placeholderText="*.o_proj")
        language.bind(self.pattern.setAccessibleName, "Pattern")
        self.pattern.textChanged.connect(self._on_pattern)
        self.reach = label(role="caption", wrap=True)
        self.form = ChoiceForm()
        self.form.scope.parentWidget().hide()  # the pattern says for which layers
        self.form.changed.connect(self._on_choice)
        self.add = button("Set the rule", self._add, kind="primary", icon="check-line")
        self.ranks = QSpinBox()
        self.ranks.setRange(1, 64)
        self.ranks.setKeyboardTracking(False)
        self.ranks.setMinimumWidth(72)
        self.ranks.lineEdit().setTextMargins(*MARGINS)
        language.bind(self.ranks.setAccessibleName, "GPUs to split over")
        self.ranks.valueChanged.connect(self._on_ranks)
        self._lay_out()
        language.changed.connect(self._fill)
        self.form.show_choice(self._choice)
        self.pattern.setFocus()  # not the list, which would choose its first rule
        self.resize(760, 560)

    def show_plan(self, plan: Plan) -> None:
        """Show the rules of the plan's recipe with what they match."""
        if plan is not self._plan:
            if self._plan is None or plan.model is not self._plan.model:
                self._names = [linear.name for linear in plan.model.linears]
            self._plan = plan
            self._fill()

    def _lay_out(self) -> None:
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(8)
        head = QHBoxLayout()
        head.addWidget(label("Exceptions", "section"))
        head.addStretch(1)
        head.addWidget(self.remove)
        column.addLayout(head)
        column.addWidget(label("A layer's full name wins over patterns; * stands for any letters.", "caption"))
        column.addWidget(self.rules, 1)
        column.addWidget(self.pattern)
        column.addWidget(self.reach)
        column.addWidget(self.form)
        foot = QHBoxLayout()
        caption = label("GPUs to split over", "caption")
        caption.setBuddy(self.ranks)
        foot.addWidget(caption)
        foot.addWidget(self.ranks)
        foot.addStretch(1)
        close = button("Close", self.close)
        for other in (close, self.remove):  # Enter sets the rule
            other.setAutoDefault(False)
        self.add.setDefault(True)
        foot.addWidget(close)
        foot.addWidget(self.add)
        column.addLayout(foot)

    def _fill(self) -> None:
        self.rules.setHeaderLabels([say("Pattern"), say("Method"), say("Matches"), say("Decides for")])
        self.rules.clear()
        if self._plan is None:
            return
        for match in self._plan.matches[:MOST]:
            choice = match.rule.choice
            words = scheme(choice.method, choice.bits, choice.group_size, choice.symmetric)
            item = QTreeWidgetItem([match.rule.pattern, words, str(len(match.modules)), str(match.holds)])
            item.setToolTip(0, "\n".join(match.modules[:20]))
            if match.modules:
                item.setChildIndicatorPolicy(QTreeWidgetItem.ChildIndicatorPolicy.ShowIndicator)
            self.rules.addTopLevelItem(item)
        self.ranks.blockSignals(True)
        self.ranks.setValue(self._plan.recipe.tensor_parallel)
        self.ranks.blockSignals(False)
        self._on_current()
        self._on_pattern()

    def _list_layers(self, item: QTreeWidgetItem) -> None:
        """What the rule matches, below it."""
        number = self.rules.indexOfTopLevelItem(item)
        if self._plan is None or number < 0 or item.childCount():
            return
        modules = self._plan.matches[number].modules
        names = list(modules[:MOST])
        if len(modules) > MOST:
            names.append(say("and {count} more", count=len(modules) - MOST))
        for name in names:
            child = QTreeWidgetItem([name])
            item.addChild(child)
            child.setFirstColumnSpanned(True)

    @property
    def _number(self) -> int:
        """Which rule is current, also where one of its layers is; -1 for none."""
        item = self.rules.currentItem()
        return self.rules.indexOfTopLevelItem((item.parent() or item) if item else None)

    def _on_current(self, *_items: object) -> None:
        number = self._number
        self.remove.setEnabled(number >= 0)
        if number >= 0 and self._plan:
            rule = self._plan.recipe.rules[number]
            self._choice = rule.choice
            self.form.show_choice(rule.choice)
            self.pattern.setText(rule.pattern)

    def _on_pattern(self) -> None:
        pattern = self.pattern.text().strip()
        matches = matching.matcher(pattern)
        found = [name for name in self._names if matches(name)] if pattern else []
        self.add.setEnabled(bool(found))
        if found:
            language.bind(
                self.reach.setText,
                "Matches {count} {count:layer|layers} such as {module}.",
                count=len(found),
                module=found[0],
            )
        elif pattern and (near := nearest(pattern, self._names)):
            language.bind(self.reach.setText, "Matches no layer. Did you mean {pattern}?", pattern=near[0])
        elif pattern:
            language.bind(self.reach.setText, "Matches no layer.")
        else:
            language.release(self.reach.setText)
            self.reach.clear()

    def _on_choice(self, choice: Choice, _everywhere: bool) -> None:
        self._choice = choice

    def _add(self) -> None:
        if self._plan:
            pattern = self.pattern.text().strip()
            self._emit(matching.place(self._plan.recipe, (pattern,), self._choice, self._names))

    def _remove(self) -> None:
        number, rules = self._number, self._plan.recipe.rules
        self._emit(replace(self._plan.recipe, rules=rules[:number] + rules[number + 1 :]))

    def _on_ranks(self, ranks: int) -> None:
        if self._plan:
            self._emit(replace(self._plan.recipe, tensor_parallel=ranks))

    def _emit(self, recipe: Recipe) -> None:
        self.changed.emit(recipe)
