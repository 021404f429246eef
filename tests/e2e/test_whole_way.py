"""The whole way in the real window: starter model, layered INT4, both served, one prompt to both, live figures."""

import json
import time

import psutil
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from ui import language, theme
from ui.main_window import MainWindow
from workbench import paths, settings
from workbench.catalog.folder import inspect
from workbench.compare import ask
from workbench.engine.endpoint import Endpoint
from workbench.engine.sampling import Sampling

PROMPT = (
    "Repeat this sentence three times: The lathe turns the wood and the chisel takes a thin chip off with every turn."
)

FACTS = json.loads((paths.RESOURCES / "facts.json").read_text(encoding="utf-8"))


def click(widget) -> None:
    assert widget.isVisible() and widget.isEnabled(), widget.objectName() or widget
    QTest.mouseClick(widget, Qt.MouseButton.LeftButton)


@pytest.mark.timeout(2400)
async def test_the_whole_way(home, picture, until, starter_model, qapp):
    """Each step is a click or a key of a user; every figure asserted is one that the pages show."""
    qapp.setQuitOnLastWindowClosed(False)
    chosen = settings.Settings(language="en", theme="dark")
    language.choose("en")
    theme.apply(QApplication.instance(), "dark")
    window = MainWindow(chosen)
    window.resize(1440, 900)
    window.show()
    window.begin()
    told = window.notices.told

    # Models: the starter is listed and fits.
    models = window.models_page
    await until(lambda: models.rows, 20)
    assert [row.model.name for row in models.rows] == [starter_model.name]
    models.table.pick(models.rows[0].model.folder)
    await until(lambda: models.primary.isEnabled(), 5)
    picture(window, "1-models")
    click(models.primary)

    # Quantize: every cell gets its error, the weights are drawn, the result is measured.
    page = window.quantize_page
    await until(lambda: page.isVisible() and page.primary.isEnabled(), 10)
    page.view.setup.samples.setValue(40)
    page.view.setup.length.setValue(256)
    click(page.primary)
    await until(lambda: page.run and len(page.run.modules) >= 8, 180, lambda: told)
    picture(window, "2-quantizing")
    await until(lambda: not page.run.running and not page.running, 900, lambda: told)
    assert page.run.path, page.run.failed
    assert len(page.run.modules) == 210
    assert all(
        sum(done.before) == sum(done.after) == done.shape[0] * done.shape[1] for done in page.run.modules.values()
    )
    ours, plain = page.run.quality[f"{starter_model.name}-INT4-layered"], page.run.quality["RTN"]
    assert ours.kl < 0.5 * plain.kl
    made = inspect(home / "models" / f"{starter_model.name}-INT4-layered")
    assert made.quantization is not None and made.can_serve
    await until(lambda: page.view.result.serve.isVisible(), 5)
    picture(window, "3-quantized")
    click(page.view.result.serve)

    # Serve: both, the quantized one with n-gram drafting.
    serve = window.serve_page
    await until(lambda: serve.isVisible() and all(serve.forms[side].folder for side in ("original", "quantized")), 20)
    form = serve.forms["quantized"]
    form.drafting.list.choose("ngram")
    await until(serve.start_button.isEnabled, 10)
    click(serve.start_button)
    await until(lambda: window.engines.state("original") == "starting", 10, lambda: told)
    picture(window, "4-starting")
    sides = ("original", "quantized")
    await until(lambda: all(window.engines.state(side) == "ready" for side in sides), 300, lambda: told)
    picture(window, "5-serving")
    tree = [process for process in psutil.Process().children(recursive=True) if process.name() != "Xvfb"]
    assert len(tree) >= 6

    # Chat: one prompt to both, each timed alone.
    window.show_page("chat")
    chat = window.chat_page
    await until(lambda: chat.composer.isEnabled() and chat.isVisible(), 10)
    chat.sampling.longest.setValue(64)
    QTest.keyClicks(chat.composer, PROMPT)
    QTest.keyClick(chat.composer, Qt.Key.Key_Return)
    await until(lambda: chat.conversation.turns, 5)
    turn = chat.conversation.turns[0]
    await until(lambda: all(side in turn.replies and turn.replies[side].done for side in sides), 180, lambda: told)
    for side in sides:
        done = turn.replies[side].done
        assert turn.replies[side].text.strip()
        assert 0 < done.ttft_s < done.total_s
        assert done.tokens_per_s > 0
    assert turn.replies["quantized"].done.drafted, "the prompt quotes, so there is something to draft"
    run = window.engines.run("quantized")
    await until(lambda: any(value is not None for value in run.series.acceptance), 15)
    picture(window, "6-chat")

    # Of the simple facts that the original knows, INT4 still knows nine in ten.
    known = {side: await facts_known(window.engines.endpoint(side)) for side in sides}
    kept = known["original"] & known["quantized"]
    print(f"facts: original {len(known['original'])} of {len(FACTS)}, INT4 keeps {len(kept)} of them")
    assert len(known["original"]) >= 18
    assert len(kept) >= 0.9 * len(known["original"])

    # One short answer can fall between two polls of the gauge; so many requests cannot.
    assert any(run.series.kv_usage)

    # The other language and the other theme, with everything in place.
    window.switch_language()
    window.switch_theme()
    for number, key in enumerate(window.pages):
        window.show_page(key)
        await until(lambda key=key: window.pages[key].isVisible(), 5)
        await until(_frames(6), 5)
        picture(window, f"7-{number}-{key}-zh_CN-light")
    window.switch_language()
    window.switch_theme()

    # Closing: nothing would be lost, so nothing is asked, and both engines end.
    window.close()
    assert window.question is None
    await until(window.closed.is_set, 5)
    before_s = time.monotonic()
    await window.tasks.stop_all()
    assert time.monotonic() - before_s < 10
    assert not [process for process in tree if _lives(process)]
    window.deleteLater()
    assert not [notice for notice in told if notice.level == "error"], told


async def facts_known(endpoint: Endpoint) -> set[str]:
    """The questions that the model answers with one of the accepted words, greedily."""
    known = set()
    for fact in FACTS:
        reply = await ask(endpoint, fact["question"], Sampling(max_tokens=32, temperature=0.0), lambda event: None)
        if any(answer.lower() in reply.text.lower() for answer in fact["answers"]):
            known.add(fact["question"])
    return known


def _frames(count: int):
    """True after so many looks, each 50 ms apart."""
    left = iter(range(count))
    return lambda: next(left, None) is None


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
