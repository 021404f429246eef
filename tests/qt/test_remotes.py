"""A side that is somebody else's server: connect, ask any of its models, see it lost, connect again, keep it."""

import sys
from pathlib import Path

import keyring
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton, QComboBox, QLabel, QLineEdit

sys.path.append(str(Path(__file__).parents[1] / "unit"))

from fake_server import FakeServer, answer
from test_connections import InMemory

from ui import language
from ui.chat_page import ChatPage
from ui.serve_page import ServePage
from workbench import keys
from workbench.chat.store import Store
from workbench.engine import connections, remote
from workbench.engine.connections import Connection

KEY = "sk-very-secret"
PAGE = 'vllm:num_requests_running{engine="0"} 2.0\n'


@pytest.fixture(autouse=True)
def ring(monkeypatch):
    monkeypatch.setattr(keys, "_this_run", {})
    before, ours = keyring.get_keyring(), InMemory()
    keyring.set_keyring(ours)
    yield ours
    keyring.set_keyring(before)


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(remote, "PERIOD_S", {True: 0.1, False: 0.1})
    monkeypatch.setattr(remote, "AGAIN_S", 0.1)


@pytest.fixture
def server():
    with FakeServer(answer("Good", " day"), metrics=PAGE, key=KEY, models=("big", "small")) as made:
        made.listed = {"owned_by": "vllm", "max_model_len": 4096}
        made.pages["/version"] = (200, '{"version": "0.32.0"}', "application/json")
        yield made


@pytest.fixture
def page(settings, tasks, notices, engines, qtbot):
    made = ServePage(settings, tasks, notices, engines)
    qtbot.addWidget(made)
    made.resize(1280, 900)
    made.show()
    return made


def pick(page, side="original"):
    page.view.sources[side].choose(True)
    page.view.sources[side].changed.emit()
    return page.view.remote_forms[side], page.view.remote_cards[side]


async def connect(page, server, until, engines):
    form, card = pick(page)
    form.address.setText(server.url + "/v1")
    form.address.textEdited.emit("")
    form.key.setText(KEY)
    await until(lambda: card.connect_button.isEnabled())
    card.connect_button.click()
    await until(lambda: engines.state("original") == "ready")
    await until(lambda: card.chat_button.isVisible())
    return form, card


async def leave(engines, until):
    """Before the widgets go, which still listen."""
    engines.stop("original")
    await until(lambda: engines.state("original") == "stopped")


async def test_another_source_takes_the_place_of_the_profile(page, until):
    form, card = pick(page)
    await until(lambda: form.isVisible() and card.isVisible())
    assert not page.forms["original"].isVisible() and not page.command.isVisible() and not page.empty.isVisible()
    assert not page.start_button.isEnabled() and not card.connect_button.isEnabled()
    page.view.sources["original"].choose(False)
    page.view.sources["original"].changed.emit()
    await until(lambda: page.forms["original"].isVisible() and page.empty.isVisible())
    assert not form.isVisible() and not card.isVisible()


async def test_an_action_of_the_window_leads_there(page, until):
    page.open_server()
    form = page.view.remote_forms["original"]
    await until(lambda: form.isVisible())
    assert page.remotes.is_chosen("original") and page.view.sources["original"].elsewhere
    page.open_server()
    assert page.remotes.is_chosen("original")


async def test_connect_shows_what_it_is_and_disconnect_leaves_it(page, server, until, engines):
    form, card = await connect(page, server, until, engines)
    assert card.about.text() == f"vLLM 0.32.0 at {server.url}" and "4,096" in card.figures.text()
    assert [form.model.itemText(index) for index in range(3)] == ["its first", "big", "small"]
    assert form.model.currentText() == "big" and not form.address.isEnabled()
    await until(lambda: engines.run("original").sample is not None)
    assert engines.run("original").sample.running == 2
    assert engines.profile("original") is None and engines.log_file("original") is None
    form.model.setCurrentIndex(2)
    form.model.activated.emit(2)
    await until(lambda: engines.endpoint("original") and engines.endpoint("original").model == "small")
    await until(lambda: page.start_button.text() == "Disconnect")
    card.disconnect_button.click()
    await until(lambda: engines.state("original") == "stopped" and card.connect_button.isVisible())
    assert (await remote.probe(engines.server("original"))).model == "small"


async def test_a_wrong_key_and_a_wrong_address_are_sentences(page, server, until, engines, told):
    form, card = pick(page)
    form.address.setText(server.url)
    form.key.setText("wrong")
    page.remotes.connect_side("original")
    await until(lambda: card.failure.isVisible())
    assert "refuses the key" in card.failure.sentence.text() and card.failure.hint.text()
    form.key.setText(KEY)
    await until(lambda: card.again_button.isVisible())
    card.again_button.click()
    await until(lambda: engines.state("original") == "ready")
    card.disconnect_button.click()
    await until(lambda: engines.state("original") == "stopped")
    form.address.setText("two words")
    page.remotes.connect_side("original")
    await until(lambda: told)
    assert "no address" in str(told[-1].sentence)
    told.clear()


async def test_a_lost_server_is_said_and_connected_again_in_one_click(
    page, server, until, engines, settings, tasks, notices, qtbot, tmp_path
):
    chat = ChatPage(settings, tasks, notices, engines, Store(tmp_path / "chats.db"))
    qtbot.addWidget(chat)
    chat.show()
    _, card = await connect(page, server, until, engines)
    chat.composer.setPlainText("hello")
    await until(lambda: chat.send_button.isEnabled())
    chat.send()
    await until(lambda: chat.conversation.turns and chat.conversation.turns[0].replies["original"].state == "done")
    assert server.requests[-1]["model"] == "big" and server.headers[-1]["authorization"] == f"Bearer {KEY}"
    column = chat.columns["original"]
    await until(lambda: column.who.isVisible())
    assert [column.who.itemText(index) for index in range(column.who.count())] == ["big", "small"]
    chat.composer.setPlainText("and more")
    server.pages["/health"] = (503, "", "text/plain")
    await until(lambda: card.failure.isVisible())
    assert "does not answer any more" in card.failure.sentence.text()
    assert chat.composer.text == "and more"
    await until(lambda: column.action.isVisible())
    assert column.action.text() == "Connect again"
    del server.pages["/health"]
    column.action.click()
    await until(lambda: engines.state("original") == "ready")
    await leave(engines, until)


async def test_a_connection_is_kept_with_its_key_and_taken_up_again(
    page, server, until, engines, ring, tmp_path, qtbot
):
    form, card = await connect(page, server, until, engines)
    form.save_button.click()
    naming = page.remotes.naming["original"]
    assert naming.name.text() == "127.0.0.1"
    naming.name.setText("work")
    naming.save.click()
    await until(lambda: form.name == "work" and form.remove_button.isVisible())
    assert connections.find("work") == Connection("work", server.url, "big")
    assert ring.kept == {("Lathe", "work"): KEY}
    card.disconnect_button.click()
    await until(lambda: engines.state("original") == "stopped" and form.names.isEnabled())

    other, card = pick(page, "quantized")
    page._choose("quantized")
    other.names.setCurrentIndex(1)
    other.names.activated.emit(1)
    assert other.address.text() == server.url and other.key.text() == ""
    await until(lambda: card.connect_button.isVisible() and card.connect_button.isEnabled())
    qtbot.keyClick(other.address, Qt.Key.Key_Return)
    await until(lambda: engines.state("quantized") == "ready")
    assert engines.endpoint("quantized").key == KEY
    engines.stop("quantized")
    await until(lambda: engines.state("quantized") == "stopped" and other.address.isEnabled())

    with FakeServer() as stranger:
        assert other.key.placeholderText() == "the kept one"
        other.address.setText(stranger.url)
        other.address.textEdited.emit(stranger.url)
        assert other.key.placeholderText() == "none"
        qtbot.keyClick(other.address, Qt.Key.Key_Return)
        await until(lambda: engines.state("quantized") == "ready")
        assert engines.endpoint("quantized").key == ""
        engines.stop("quantized")
        await until(lambda: engines.state("quantized") == "stopped")

    form.removal_asked.emit("work")
    remove = next(each for each in page.remotes.question.buttons() if each.text() == "Remove")
    remove.click()
    await until(lambda: other.names.count() == 1)
    assert connections.listing() == () and ring.kept == {}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(KEY.encode() in path.read_bytes() for path in files)


async def test_without_a_keyring_the_form_says_so(page, server, until, engines):
    from keyring.backends.fail import Keyring

    keyring.set_keyring(Keyring())
    form, _ = await connect(page, server, until, engines)
    form.save_button.click()
    page.remotes.naming["original"].save.click()
    await until(lambda: "no keyring" in form.note.text())
    assert keys.load("127.0.0.1") == KEY
    await leave(engines, until)


async def test_every_control_has_a_name_and_takes_the_keyboard(page, until):
    form, card = pick(page)
    await until(lambda: form.isVisible())
    for part in (form, card, page.view.sources["original"]):
        for control in [*part.findChildren(QAbstractButton), *part.findChildren(QComboBox)]:
            assert control.accessibleName(), control
            assert control.focusPolicy() & Qt.FocusPolicy.TabFocus
    assert form.key.echoMode() is QLineEdit.EchoMode.Password and form.key.accessibleName() == "Key"
    language.choose("zh_CN")
    try:
        texts = [each.text() for each in form.findChildren(QLabel) if each.isVisible() and each.text()]
        assert texts and not any(text.isascii() for text in texts)
    finally:
        language.choose("en")
