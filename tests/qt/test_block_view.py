"""The map of the KV cache's blocks: what each cell's colour, tooltip and keys say, and what a repaint costs."""

import base64
import time
import zlib

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor

from ui import language, theme
from ui.live.block_part import BlockPart
from ui.plots import block_map
from ui.plots.block_view import BlockView
from workbench.core_events import BlockMap


def map_of(states, at_s=1.0, unfilled=0):
    data = bytes((BlockMap.NULL, *states))
    packed = base64.b64encode(zlib.compress(data)).decode()
    return BlockMap(at_s, len(data), sum(bool(state & 127) for state in states), 0, packed, 16, unfilled)


def plain(label):
    """Its words without the joiners that keep them on one line."""
    return label.text().replace("\u2060", "").replace("\u00a0", " ")


@pytest.fixture
def view(qtbot):
    made = BlockView()
    qtbot.addWidget(made)
    made.resize(140, 60)
    made.show()
    return made


def show(view, refs, hashed=None):
    refs = np.array(refs, np.uint8)
    view.show_blocks(refs, np.zeros(len(refs), bool) if hashed is None else np.array(hashed))


async def test_cells_are_coloured_by_state_and_stand_out_more_the_more_they_are_held(view):
    for scheme in ("dark", "light"):
        worn = theme.tokens(scheme)
        refs = np.array([0, 0, 1, 2, 3, 4, 9], np.uint8)
        hashed = np.array([False, True, False, True, True, True, True])
        packing = block_map.packed(7, 98, 20)
        image = block_map.image(refs, hashed, packing, worn)
        colours = [image.pixelColor(column, 0).name() for column in range(7)]
        assert colours[0] == worn.line.lower() and colours[2] == worn.kv.lower()
        assert len(set(colours)) == 6 and colours[5] == colours[6], "four and more are one shade"
        ground = QColor(worn.surface).lightness()
        apart = [abs(QColor(colour).lightness() - ground) for colour in colours[:6]]
        assert apart == sorted(apart) and apart[0] < apart[1] < apart[2]


@pytest.mark.parametrize("count", [1, 7, 364, 9_999, 40_000, 200_000])
async def test_any_number_of_blocks_is_packed_into_the_panel(count):
    packing = block_map.packed(count, 290, 160)
    assert packing.width <= 290 and packing.height <= 160
    covered = [block for cell in (0, packing.cells // 2, packing.cells - 1) for block in packing.blocks_of(cell)]
    assert covered[0] == 0 and covered[-1] == count - 1
    assert sum(len(packing.blocks_of(cell)) for cell in range(packing.cells)) == count
    assert packing.each == 1 or packing.edge == block_map.SMALLEST


async def test_a_cell_of_several_blocks_has_their_mean_colour():
    packing = block_map.Packing(3, 2, 1, 2, each=2)
    worn = theme.tokens("dark")
    image = block_map.image(np.array([0, 1, 1], np.uint8), np.zeros(3, bool), packing, worn)
    free, held = QColor(worn.line), QColor(worn.kv)
    assert image.pixelColor(0, 0).red() == (free.red() + held.red()) // 2
    assert image.pixelColor(1, 0) == held


async def test_tooltip_and_keys_tell_of_a_block(view, qtbot):
    show(view, [0, 0, 1, 3], [False, True, True, True])
    words = [str(view.words(cell)) for cell in range(4)]
    assert words[0] == "Block 1: free" and "kept for reuse" in words[1]
    assert words[2] == "Block 3: held by 1 request" and words[3] == "Block 4: shared by 3 requests"
    assert view.words(None) == "" and view._cell_at(view.rect().bottomRight()) is None
    assert view.accessibleName() == "KV cache blocks"
    assert view.accessibleDescription() == "1 free, 1 kept for reuse, 1 held, 1 shared"
    view.setFocus()
    for key in (Qt.Key.Key_Home, Qt.Key.Key_Right, Qt.Key.Key_Right, Qt.Key.Key_End):
        qtbot.keyClick(view, key)
    assert view.accessibleDescription() == "Block 4: shared by 3 requests"
    opened = []
    view.opened.connect(lambda: opened.append(1))
    qtbot.keyClick(view, Qt.Key.Key_Return)
    qtbot.mouseClick(view, Qt.MouseButton.LeftButton)
    assert opened == [1, 1]


async def test_what_is_painted_is_the_state(view):
    show(view, [0, 1], [False, False])
    edge, picture = view.packing.edge, view.grab().toImage()
    worn = theme.tokens()
    assert picture.pixelColor(edge // 2, edge // 2).name() == worn.line.lower()
    assert picture.pixelColor(edge + edge // 2, edge // 2).name() == worn.kv.lower()
    show(view, [1, 0], [False, False])
    assert view.grab().toImage().pixelColor(edge // 2, edge // 2).name() == worn.kv.lower()


async def test_it_opens_large_and_lives_there(qtbot, until):
    part = BlockPart("quantized/decode", 0)
    qtbot.addWidget(part)
    part.show()
    part.show_map(map_of([0, 1, 2, 128]))
    assert "kept for reuse 1" in plain(part.legend)
    part.open()
    large = part.large
    assert large.windowTitle() == "KV cache blocks: quantized, decode"
    assert large.amount.text() == "4 blocks of 16 tokens"
    part.show_map(map_of([1, 1, 1, 1]))
    assert "held 4" in plain(large.legend)
    qtbot.keyClick(large.view, Qt.Key.Key_End)
    assert large.pointed.text() == "Block 4: held by 1 request"
    language.choose("zh_CN")
    assert "held" not in large.pointed.text() and "quantized" not in large.windowTitle()
    large.close()
    await until(lambda: part.large is None)


async def test_ten_thousand_blocks_ten_times_a_second_cost_next_to_nothing(qtbot):
    part = BlockPart("original", 0)
    qtbot.addWidget(part)
    part.resize(300, 240)
    part.show()
    random = np.random.default_rng(0)
    maps = [map_of(random.integers(0, 4, 10_000).tolist(), at_s) for at_s in range(20)]
    spent = []
    for each in maps:
        began = time.process_time()
        part.show_map(each)
        part.grab()
        spent.append(time.process_time() - began)
    # 8 ms is the goal; the bound leaves room for a machine that does other things.
    assert sorted(spent)[len(spent) // 2] < 0.080
