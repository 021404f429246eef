"""Parts that take as many columns as fit."""

import pytest
from PySide6.QtWidgets import QLabel, QWidget

from ui.widgets.line import line
from ui.widgets.reflow import Reflow


@pytest.fixture
def parts():
    made = [QWidget() for _ in range(4)]
    for part in made:
        part.setMinimumWidth(100)
    return made


@pytest.mark.parametrize(("width", "columns"), [(448, 4), (447, 3), (332, 3), (331, 2), (216, 2), (120, 2)])
def test_as_many_columns_as_fit_and_never_fewer_than_the_last_step(qtbot, parts, width, columns):
    made = Reflow(4, 3, 2, across=16)
    qtbot.addWidget(made)
    made.add(*parts)
    made.show()
    made.resize(width, 200)
    assert made.columns == columns and made.minimumSizeHint().width() == 216
    made.layout().activate()
    rows = {part.y() for part in parts}
    assert len(rows) == -(-4 // columns)
    if width >= 216:
        assert all(made.rect().contains(part.geometry()) for part in parts)


def test_words_that_become_longer_take_a_line_of_their_own(qtbot):
    one, other = QLabel("a"), QLabel("b")
    made = Reflow(2, 1, stretch=(1, 0))
    qtbot.addWidget(made)
    made.add(line(one, None), line(None, other))
    made.show()
    made.resize(120, 80)
    assert made.columns == 2
    one.setText("a" * 40)
    qtbot.waitUntil(lambda: made.columns == 1)


def test_emptied_it_takes_others(qtbot, parts):
    made = Reflow(2, 1)
    qtbot.addWidget(made)
    made.add(*parts)
    made.empty()
    new = QLabel("new")
    made.add(new)
    made.show()
    assert new.isVisible() and made.findChildren(QLabel) == [new]
