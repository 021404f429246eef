"""The strip of blocks and modules: choosing by mouse and keys, states in words, colours in order."""

import pytest
from PySide6.QtCore import QPoint, QRect, QSize, Qt

from ui import theme
from ui.widgets.block_strip import BlockStrip
from ui.widgets.error_scale import ErrorScale, luminance
from ui.widgets.strip_cell import Cell
from ui.widgets.strip_grid import StripGrid

ROLES = ("self_attn.q_proj", "self_attn.k_proj", "mlp.gate_proj", "mlp.down_proj")


def cell(block, column, state="planned", db=None):
    name = f"model.layers.{block}.{column}"
    return Cell(name, block, column, state, "GPTQ 4", f"block {block} {column} {state}", db)


def name(block, column):
    return f"model.layers.{block}.{column}"


@pytest.fixture
def strip(qtbot):
    strip = BlockStrip()
    qtbot.addWidget(strip)
    strip.set_cells([cell(block, role) for block in range(30) for role in ROLES])
    strip.resize(400, 600)
    strip.show()
    return strip


def test_a_click_chooses_and_shift_click_pins(strip, qtbot):
    chosen, pinned = [], []
    strip.chosen.connect(chosen.append)
    strip.pinned.connect(pinned.append)
    qtbot.mouseClick(strip, Qt.MouseButton.LeftButton, pos=strip.rect_of(name(7, ROLES[2])).center())
    shift = Qt.KeyboardModifier.ShiftModifier
    qtbot.mouseClick(strip, Qt.MouseButton.LeftButton, shift, strip.rect_of(name(29, ROLES[3])).center())
    assert (chosen, pinned) == ([name(7, ROLES[2])], [name(29, ROLES[3])])
    qtbot.mouseClick(strip, Qt.MouseButton.LeftButton, shift, strip.rect_of(name(29, ROLES[3])).center())
    assert pinned[-1] == "" and strip.pinned_name == ""


def test_a_click_beside_the_cells_chooses_nothing(strip, qtbot):
    strip.chosen.connect(lambda _: pytest.fail("nothing is there"))
    qtbot.mouseClick(strip, Qt.MouseButton.LeftButton, pos=QPoint(3, 3))


def test_arrow_keys_move_the_chosen_cell_and_stop_at_the_edges(strip, qtbot):
    strip.choose(name(0, ROLES[0]))
    for key, expected in (
        (Qt.Key.Key_Right, name(0, ROLES[1])),
        (Qt.Key.Key_Right, name(0, ROLES[2])),
        (Qt.Key.Key_Up, name(0, ROLES[2])),
        (Qt.Key.Key_Down, name(1, ROLES[2])),
        (Qt.Key.Key_End, name(29, ROLES[2])),
        (Qt.Key.Key_Down, name(29, ROLES[2])),
        (Qt.Key.Key_Home, name(0, ROLES[2])),
    ):
        qtbot.keyClick(strip, key)
        assert strip.chosen_name == expected, key


def test_the_description_says_the_state_of_the_chosen_cell(strip):
    strip.choose(name(3, ROLES[2]))
    assert strip.accessibleDescription() == "block 3 mlp.gate_proj planned"
    strip.put([cell(3, ROLES[2], "done", 27.0)])
    assert strip.accessibleDescription() == "block 3 mlp.gate_proj done"
    assert strip.accessibleName() == "Blocks and modules"


def test_another_plan_keeps_what_is_chosen_and_pinned_where_it_can(strip):
    strip.choose(name(3, ROLES[2]))
    strip._set_pin((5, 1))
    told = []
    strip.pinned.connect(told.append)
    strip.set_cells([cell(block, role, "conflict") for block in range(30) for role in ROLES])
    assert (strip.chosen_name, strip.pinned_name, told) == (name(3, ROLES[2]), name(5, ROLES[1]), [])
    strip.set_cells([cell(block, role) for block in range(4) for role in ROLES])
    assert (strip.chosen_name, strip.pinned_name, told) == (name(3, ROLES[2]), "", [""])


def test_thirty_blocks_fit_a_small_screen_without_scrolling(strip):
    assert strip.minimumSizeHint().height() <= 480


def test_the_scale_follows_the_values_in_round_steps(strip):
    strip.put([cell(0, ROLES[0], "done", 21.3), cell(0, ROLES[1], "done", 37.9)])
    assert (strip.scale.low_db, strip.scale.high_db) == (20, 40)


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_a_larger_error_always_stands_out_more(qapp, scheme):
    theme.apply(qapp, scheme)
    scale = ErrorScale(10, 40)
    light = [luminance(scale.color(db)) for db in range(40, 9, -1)]
    theme.apply(qapp, "dark")
    assert light == sorted(light, reverse=scheme == "light")
    assert len(set(light)) == len(light)


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_the_number_reads_on_every_colour(qapp, scheme):
    theme.apply(qapp, scheme)
    scale = ErrorScale(10, 40)
    pairs = [(luminance(scale.color(db)), luminance(scale.ink(db))) for db in range(10, 41)]
    theme.apply(qapp, "dark")
    assert min((max(pair) + 0.05) / (min(pair) + 0.05) for pair in pairs) >= 4.5


def test_only_the_columns_that_a_part_shows_are_painted():
    grid = StripGrid([f"{part}.{number}" for part in ("attention", "mlp") for number in range(60)], range(4))
    grid.fit(QSize(2000, 200))
    for left in range(0, 2000, 37):
        shown = QRect(left, 0, 90, 200)
        seen = {column for column in range(120) if grid.rect((0, column)).intersects(shown)}
        assert seen <= set(grid.columns_in(shown)) and len(grid.columns_in(shown)) <= len(seen) + 2


def test_a_mixture_of_experts_is_laid_out_in_time(qtbot):
    strip = BlockStrip()
    qtbot.addWidget(strip)
    columns = [f"mlp.experts.{expert}.{part}" for expert in range(128) for part in ("gate_proj", "up_proj")]
    strip.set_cells([cell(block, column) for block in range(48) for column in columns])
    strip.resize(strip.minimumSizeHint())
    strip.grab()
    assert len({strip.rect_of(name(47, column)).x() for column in columns}) == 256
