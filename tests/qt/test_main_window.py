import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton, QAbstractSlider, QAbstractSpinBox, QComboBox, QLabel, QLineEdit, QWidget
from test_models_page import write_model

from ui.main_window import STATIONS, MainWindow
from ui.models_found import look
from workbench import leftovers
from workbench import settings as stored
from workbench.engine.facts import EngineFacts
from workbench.engine.profile import Profile
from workbench.errors import WorkbenchError
from workbench.leftovers import Leftover
from workbench.words import Sentence

CLOSES_S = 10.0


@pytest.fixture
async def window(settings, qtbot):
    made = MainWindow(settings)
    made.resize(1366, 768)
    made.show()
    yield made
    made.leave()
    await made.tasks.stop_all()
    made.deleteLater()


async def test_every_station_has_a_page_and_the_other_way_round(window):
    assert [station.key for station in STATIONS] == list(window.pages)
    for key, page in window.pages.items():
        window.show_page(key)
        assert page.isVisible()
        assert window.dock.isVisible() == (key in ("serve", "chat"))


async def test_coming_to_models_looks_for_models_again(window, monkeypatch):
    looked = []
    monkeypatch.setattr(window.models_page, "rescan", lambda: looked.append(1))
    window.show_page("chat")
    window.show_page("models")
    assert looked == [], "nothing is begun yet, as for pictures"
    window.begin()
    window.show_page("models")
    assert len(looked) == 1, "it is there already; begin looked once"
    window.show_page("chat")
    window.show_page("models")
    assert len(looked) == 2


async def test_the_action_table_is_whole(window):
    ids = Counter(line.id for line in window.table)
    keys = Counter(line.shortcut for line in window.table if line.shortcut)
    assert max(ids.values()) == max(keys.values()) == 1
    assert {action.objectName() for action in window._menu.actions()} == set(ids)
    for line in window.table:
        action = window.actions_by_id[line.id]
        assert action.text() == line.title
        assert action.shortcut().toString() == line.shortcut


async def test_shortcuts_go_to_pages(window, qtbot):
    qtbot.keyClick(window, Qt.Key.Key_2, Qt.KeyboardModifier.ControlModifier)
    assert window.pages["quantize"].isVisible()
    qtbot.keyClick(window, Qt.Key.Key_1, Qt.KeyboardModifier.ControlModifier)
    assert window.pages["models"].isVisible()


async def test_the_palette_finds_by_words_and_does(window, qtbot):
    window.switch_language()  # Chinese on screen, English words still find
    window.open_palette()
    qtbot.keyClicks(window.palette_box.entry, "go serve")
    assert window.palette_box.list.count() == 1
    qtbot.keyClick(window.palette_box.entry, Qt.Key.Key_Return)
    assert window.pages["serve"].isVisible()
    assert not window.palette_box.isVisible()
    window.open_palette()
    qtbot.keyClick(window.palette_box.entry, Qt.Key.Key_Escape)
    assert not window.palette_box.isVisible()


async def test_the_palette_moves_with_the_arrows_and_stays_inside(window, qtbot):
    window.open_palette()
    box = window.palette_box
    qtbot.keyClick(box.entry, Qt.Key.Key_Up)
    assert box.list.currentRow() == 0
    qtbot.keyClick(box.entry, Qt.Key.Key_Down)
    assert box.list.currentRow() == 1
    for _ in range(40):
        qtbot.keyClick(box.entry, Qt.Key.Key_PageDown)
    assert box.list.currentRow() == box.list.count() - 1


async def test_language_switches_without_losing_state(window):
    window.show_page("serve")
    window.drawer.open()
    window.switch_language()
    assert window.settings.language == "zh_CN" and stored.load().language == "zh_CN"
    assert window.pages["serve"].isVisible() and window.drawer.opened
    frame = [*window.rail.findChildren(QAbstractButton), window.drawer.opener]
    assert all(re.search("[\u4e00-\u9fff]", each.text()) for each in frame), [each.text() for each in frame]
    window.switch_language()
    assert next(each.text() for each in window.rail.findChildren(QAbstractButton)) == "Models"


async def test_theme_switches_and_is_kept(window):
    window.switch_theme()
    assert window.settings.theme == "light" == stored.load().theme
    window.switch_theme()
    assert stored.load().theme == "dark"


async def test_every_control_has_a_name_for_screen_readers(window):
    nameless = []
    for kind in (QAbstractButton, QComboBox, QLineEdit, QAbstractSlider, QAbstractSpinBox):
        for control in window.findChildren(kind):
            inner = control.objectName().startswith("qt_") or isinstance(control.parent(), QAbstractSpinBox | QComboBox)
            if inner or control.focusPolicy() == Qt.FocusPolicy.NoFocus:
                continue
            if not (control.accessibleName() or (isinstance(control, QAbstractButton) and control.text())):
                owner = next((type(p).__name__ for p in _parents(control) if type(p).__module__.startswith("ui")), "")
                nameless.append(f"{owner}: {type(control).__name__}")
    assert nameless == []


async def test_tab_reaches_every_control_of_every_page(window, tmp_path):
    """Of an exclusive group one: the arrow keys go on from there."""
    write_model(tmp_path / "library" / "m")
    page = window.models_page
    page.show_found(*look([tmp_path / "library"], None))
    model = page.rows[0].model
    window.quantize_page.open(model)
    window.serve_page.open(model)
    window.activateWindow()
    for key in window.pages:
        window.show_page(key)
        window.pages[key].redraw()
        await asyncio.sleep(0.05)
        reached = []
        while window.focusNextChild() and window.focusWidget() not in reached:
            reached.append(window.focusWidget())
        kinds = (QAbstractButton, QComboBox, QLineEdit, QAbstractSlider, QAbstractSpinBox)
        controls = [each for kind in kinds for each in window.findChildren(kind) if each.isVisible()]
        inner = [each for each in controls if isinstance(each.parent(), (QAbstractSpinBox, QComboBox))]
        left = [
            each.accessibleName()
            for each in controls
            if each not in reached and each not in inner and each.isEnabled()
            and each.focusPolicy() & Qt.FocusPolicy.TabFocus
            and not (isinstance(each, QAbstractButton) and each.group() and each.group().exclusive())
        ]  # fmt: skip
        assert left == [], key


def _parents(widget):
    while widget := widget.parent():
        yield widget


async def test_an_error_becomes_a_banner_and_the_same_one_is_not_stacked(window):
    for _ in range(5):
        window.notices.tell(WorkbenchError("{name} is absent.", "Get it.", name="x"))
    assert [banner.sentence.text() for banner in window.banners.shown] == ["x is absent."]
    for number in range(5):
        window.notices.info(Sentence("{name} is absent.", {"name": str(number)}))
    assert len(window.banners.shown) == 3
    for banner in window.banners.shown:
        banner.dismiss()
    assert not window.banners.isVisible()


async def test_leftovers_are_offered_and_ended_on_consent(window, monkeypatch, until, qtbot):
    left = [Leftover(123456, 1, "python -m vllm")]
    ended = []
    monkeypatch.setattr(leftovers, "find", lambda: left)
    monkeypatch.setattr(leftovers, "end", lambda processes: ended.extend(processes))
    await window.banners.look_for_leftovers()
    banner = window.banners.shown[0]
    assert "123456" in banner.hint.text() and ended == []
    end = next(each for each in banner.findChildren(QAbstractButton) if each.text() == "End them")
    qtbot.mouseClick(end, Qt.MouseButton.LeftButton)
    await until(lambda: ended == left)


async def test_who_holds_memory_opens_under_its_arrow_and_closes_by_escape(window, until, qtbot):
    qtbot.mouseClick(window.strip.holders_button, Qt.MouseButton.LeftButton)
    box = window.ledger_box
    assert box.isVisible() and box.geometry().top() >= window.strip.geometry().bottom()
    await until(lambda: "left when all have taken" in box.rooms.text())
    assert box.empty.isVisible() and window.rect().contains(box.geometry())
    qtbot.keyClick(box, Qt.Key.Key_Escape)
    assert not box.isVisible()
    window.open_ledger()
    window.open_ledger()
    assert not box.isVisible(), "the same button closes it"


async def test_an_unloaded_engine_is_told_and_what_was_typed_stays(window, tmp_path):
    window.chat_page.composer.setPlainText("half a question")
    window.engines.show_past("original", Profile(tmp_path / "SmolLM2"), [])
    window.engines.unloaded.emit("original", 15)
    (banner,) = window.banners.shown
    assert banner.sentence.text() == "SmolLM2 had nothing to do for 15 minutes and is unloaded."
    window.engines.changed.emit("original")
    window.chat_page.redraw()
    assert window.chat_page.composer.text == "half a question" and window.chat_page.composer.isEnabled()


async def test_closing_asks_once_when_work_would_be_lost(window, monkeypatch, qtbot):
    monkeypatch.setattr(window.models_page, "would_lose", lambda: Sentence("The starter model is not complete yet."))
    window.close()
    question = window.question
    assert question is not None and "starter" in question.informativeText()
    window.close()
    assert window.question is question
    qtbot.mouseClick(question.stay_button, Qt.MouseButton.LeftButton)
    await asyncio.sleep(0.05)
    assert window.isVisible() and not window.closed.is_set() and window.question is None
    window.close()
    qtbot.mouseClick(window.question.go_button, Qt.MouseButton.LeftButton)
    await asyncio.sleep(0.05)
    assert window.closed.is_set() and not window.isVisible()


async def test_closing_asks_nothing_when_nothing_would_be_lost(window):
    window.close()
    assert window.closed.is_set() and window.question is None


async def test_the_window_comes_back_where_it_was(window, settings):
    window.resize(1024, 690)
    window.show_page("quantize")
    window.drawer.open()
    window.dock.open(False)
    window.leave()
    again = MainWindow(settings)
    again.show()
    assert (again.width(), again.height()) == (1024, 690)
    assert again.pages["quantize"].isVisible() and again.drawer.opened and not again.dock.opened
    again.leave()
    again.deleteLater()


async def test_the_stations_hand_on(window, monkeypatch, tmp_path):
    """Models to Quantize and Serve, Quantize to Serve and back to Models, Serve to Chat."""
    went = []
    monkeypatch.setattr(window.quantize_page, "open", lambda model: went.append(("quantize", model)))
    monkeypatch.setattr(window.serve_page, "open", lambda model: went.append(("serve", model)))
    monkeypatch.setattr(window.serve_page, "open_pair", lambda *pair: went.append(("pair", *pair)))
    window.models_page.quantize_picked.emit("m")
    assert window.pages["quantize"].isVisible()
    window.models_page.serve_picked.emit("m")
    assert window.pages["serve"].isVisible()
    window.show_page("quantize")
    window.quantize_page.finished.emit(tmp_path / "a", tmp_path / "b")
    assert window.pages["serve"].isVisible()
    assert went == [("quantize", "m"), ("serve", "m"), ("pair", tmp_path / "a", tmp_path / "b")]
    window.quantize_page.made.emit(tmp_path / "b")
    assert window.settings.recent == (str(tmp_path / "b"),)
    engine = EngineFacts("/opt/python", "0.32.0", None, True, frozenset(), True, None)
    window.serve_page.show_facts(engine)
    assert window.models_page.engine is engine
    window.serve_page.chat_asked.emit()
    assert window.pages["chat"].isVisible()


async def test_the_drawer_shows_the_job_and_its_log(window, monkeypatch, tmp_path):
    from ui.log_drawer import LogSource, Status

    log = tmp_path / "worker.log"
    log.write_text("one\ntwo\n")
    page = window.models_page
    monkeypatch.setattr(page, "statuses", lambda: [Status(Sentence("Starting"), 0.25, 190)])
    monkeypatch.setattr(page, "logs", lambda: [LogSource(Sentence("Starter model"), log)])
    window.drawer.look()
    assert window.drawer.line.text() == "Starting"
    assert window.drawer.bar.value() == 250
    assert window.drawer.left.text() == "about 03:10 left"
    window.drawer.open()
    assert "two" in window.drawer._text.toPlainText()
    log.write_text("one\ntwo\nthree\n")
    window.drawer.look()
    assert "three" in window.drawer._text.toPlainText()


async def test_every_page_fits_a_small_screen(window):
    window.resize(1366, 728)
    for key, page in window.pages.items():
        window.show_page(key)
        await asyncio.sleep(0.05)
        assert (window.width(), window.height()) == (1366, 728), key
        parts = page.findChildren(QWidget, options=Qt.FindChildOption.FindDirectChildrenOnly)
        outside = [part for part in parts if part.isVisible() and not page.rect().contains(part.geometry())]
        assert not outside, (key, outside)


async def test_device_figures_come_within_seconds(window, until):
    window.begin()
    memory = window.strip._memory_figures
    await until(lambda: re.search(r"\d+\.\d / \d+", memory.text()), 8)
    assert isinstance(memory, QLabel)


# -- the whole application, as a process ---------------------------------------------------------------------------

STORY = """
import asyncio, sys
from ui import app
from ui.main_window import MainWindow
from workbench import process
from workbench.words import Sentence

TREE = "import subprocess, sys, time; c = subprocess.Popen(['sleep', '600']); print(c.pid, flush=True); time.sleep(600)"

class Window(MainWindow):
    def begin(self):
        super().begin()
        self.tasks.start(self.story(sys.argv[1]))

    async def story(self, what):
        page = self.models_page
        if what == "job":
            page.would_lose = lambda: Sentence("x")
            here = asyncio.Event()
            def on_line(line):
                print("child", line, flush=True)
                here.set()
            page.begin(process.run([sys.executable, "-c", TREE], log=None, on_line=on_line))
            await here.wait()
        if what == "stream":
            async def silent(reader, writer):
                await asyncio.sleep(600)
            server = await asyncio.start_server(silent, "127.0.0.1", 0)
            from workbench.engine.client import chat
            from workbench.engine.endpoint import Endpoint
            from workbench.engine.sampling import Sampling
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            asked = [{"role": "user", "content": "x"}]
            page.begin(chat(Endpoint(url, "k", "m"), asked, Sampling(), lambda event: None))
            await asyncio.sleep(0.5)
        if what == "thread":
            import time
            page.begin(asyncio.to_thread(time.sleep, 1.5))
        print("acting", flush=True)
        if what == "signal":
            return
        self.close()
        if self.question is not None:
            self.question.go_button.click()

app.MainWindow = Window
sys.exit(app.main())
"""


@pytest.mark.parametrize("what", ["nothing", "job", "stream", "thread", "signal"])
def test_closing_the_application(what, tmp_path):
    """Exit code 0 within ten seconds, nothing said on stderr, no child left."""
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "LATHE_HOME": str(tmp_path / "home")}
    story = subprocess.Popen(
        [sys.executable, "-c", STORY, what], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    lines = []
    while (line := story.stdout.readline()) and (lines.append(line.strip()) or line.strip() != "acting"):
        pass
    acted = time.monotonic()
    family = psutil.Process(story.pid).children(recursive=True)
    if what == "signal":
        time.sleep(1.0)
        story.send_signal(signal.SIGTERM)
        acted = time.monotonic()
    _, errors = story.communicate(timeout=30)
    took = time.monotonic() - acted
    assert "acting" in lines, errors
    assert story.returncode == 0, errors
    assert took < CLOSES_S
    told = [line for line in errors.splitlines() if "propagateSizeHints" not in line]
    assert not re.search(r"Traceback|Task was|Event loop|QThread|RuntimeError|never awaited", "\n".join(told)), errors
    children = [int(line.split()[1]) for line in lines if line.startswith("child")]
    assert what != "job" or children
    assert not [pid for pid in (*children, *(each.pid for each in family)) if psutil.pid_exists(pid)]
