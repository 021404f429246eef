"""The window at its smallest: nothing is cut, in both languages, with long names and with everything unfolded."""

import asyncio

import pytest
from cut import faults
from test_models_page import write_model
from test_separating import FACTS, GPU, READY
from test_serve_page import play

from ui import language
from ui.main_window import MainWindow
from ui.models_found import look
from ui.widgets.fold import Fold
from workbench.catalog.folder import inspect

LONG = "Mixtral-8x7B-Instruct-v0.1-of-a-community-with-a-very-long-name-GPTQ-4bit-128g"


@pytest.fixture
async def window(settings, qtbot):
    made = MainWindow(settings)
    made.resize(made.minimumSize())
    made.show()
    yield made
    made.leave()
    await made.tasks.stop_all()
    made.deleteLater()


async def cut(window, key):
    """What of the page cannot be read, in either language."""
    found = []
    window.show_page(key)
    for code in ("en", "zh_CN"):
        language.choose(code)
        window.pages[key].redraw()
        for _ in range(
            25
        ):  # what turns into other columns has each layout around it laid out anew, one after the other
            await asyncio.sleep(0.02)
            if not (left := faults(window)):
                break
        found += left
    return found


async def test_nothing_is_cut(window, tmp_path):
    """One window for all, which takes a second to make: empty, with many models, a plan, engines, and answers."""
    window.models_page.show_found([], [GPU])
    for key in window.pages:
        assert await cut(window, key) == [], f"{key}, where nothing is there yet"
    for number in range(20):
        write_model(tmp_path / "library" / f"{LONG}-{number}")
    window.models_page.show_found(*look([tmp_path / "library"], None))
    assert await cut(window, "models") == []
    model = inspect(tmp_path / "library" / f"{LONG}-0")
    window.quantize_page.open(model)
    window.quantize_page.choose("model.layers.0.mlp.gate_proj")
    assert await cut(window, "quantize") == []
    strip = window.quantize_page.view.strip
    strip._set_pin(strip._places["model.layers.0.self_attn.q_proj"])
    assert await cut(window, "quantize") == [], "a second layer beside it"
    page = window.serve_page
    page.show_facts(FACTS)
    page.show_devices([GPU, GPU])
    page.open(model)
    for fold in page.forms["original"].findChildren(Fold):
        fold.open()
    assert await cut(window, "serve") == []
    for side in ("original", "quantized"):
        play(window.engines, side, READY)
        window.engines._past.add(side)
    assert await cut(window, "serve") == [], "engines that are ready"
    window.chat_page.history_button.click()
    assert await cut(window, "chat") == []


async def test_the_live_panel_gives_way_and_what_lies_over_the_window_stays_inside(window):
    window.show_page("serve")
    await asyncio.sleep(0)
    assert not window.dock.opened and window.dock.wanted
    window.resize(1800, 900)
    assert window.dock.opened
    window.open_palette()
    window.open_ledger()
    window.resize(window.minimumSize())
    assert not window.dock.opened
    for box in (window.palette_box, window.ledger_box):
        assert window.rect().contains(box.geometry())
    window.dock.toggle()
    assert window.dock.opened, "asked for, it opens in a window of any size"
