"""The ways to draft on the Serve page: listed with their reasons, copied when they need it, given up when they lose."""

import json
import sys
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QListWidget

sys.path.append(str(Path(__file__).parents[1] / "unit"))

import fake_engine
import tiny as maker

from ui import language
from ui.engines import Engines
from ui.serve_page import ServePage
from workbench.catalog.devices import Device
from workbench.catalog.folder import inspect, scan
from workbench.engine import payoff
from workbench.engine.facts import EngineFacts
from workbench.engine.profile import Profile, Speculation
from workbench.engine_events import EngineReady, EngineSample
from workbench.errors import WorkbenchError
from workbench.events import Finished
from workbench.words import say


def write_draft(folder, target, **config):
    """A small copy of F-TINY's shape: one layer, its rows a hole."""
    maker.write(folder)
    stored = json.loads((folder / "config.json").read_text()) | {"num_hidden_layers": 1} | config
    (folder / "config.json").write_text(json.dumps(stored))
    rows, hidden = stored["vocab_size"], 64
    maker.save_headers(folder / "model.safetensors", {"model.embed_tokens.weight": (rows, hidden)})
    return folder


@pytest.fixture
def target(tmp_path):
    folder = maker.write(tmp_path / "lib" / "target")
    stored = json.loads((folder / "config.json").read_text()) | {"num_hidden_layers": 40}
    (folder / "config.json").write_text(json.dumps(stored))
    shapes = {"model.embed_tokens.weight": (256, 64), "lm_head.weight": (256, 64)}
    shapes |= {f"model.layers.{layer}.mlp.up_proj.weight": (4096, 64) for layer in range(40)}
    maker.save_headers(folder / "model.safetensors", shapes)
    return inspect(folder)


@pytest.fixture
def page(settings, tasks, notices, qtbot, target, tmp_path):
    made = ServePage(settings, tasks, notices, Engines(settings, tasks))
    qtbot.addWidget(made)
    facts = fake_engine.FACTS | {"flags": frozenset(fake_engine.FACTS["flags"]), "python": "/opt/python"}
    made.show_facts(EngineFacts(**facts))
    made.show_devices([Device("CPU", "cpu", 24_000_000_000, 20_000_000_000, 1e10, packed_kernel=False)])
    write_draft(tmp_path / "lib" / "fitting", target)
    write_draft(tmp_path / "lib" / "padded", target, vocab_size=300)
    write_draft(tmp_path / "lib" / "eagle3-things", target)
    made._drafts.show_library(scan([tmp_path / "lib"]))
    made.resize(1280, 900)
    made.show()
    made.open(target)
    return made


@pytest.fixture
async def drafting(page, until):
    found = page.forms["original"].drafting
    await until(lambda: found.list.count() == 6)
    return found


def row(drafting, name):
    return next(number for number in range(drafting.list.count()) if drafting.list.item(number).text() == name)


async def test_every_way_is_listed_with_verdict_and_reason(drafting):
    spoken = [
        drafting.list.item(number).data(Qt.ItemDataRole.AccessibleTextRole) for number in range(drafting.list.count())
    ]
    assert [drafting.list.item(number).text() for number in (0, 1, 2)] == ["No drafting", "n-gram", "suffix"]
    assert any("fitting. can draft" in each and "256 tokens" in each for each in spoken)
    assert any("padded. needs a copy" in each and "44 of padding" in each for each in spoken)
    assert any("eagle3-things. cannot draft. vLLM takes every folder" in each for each in spoken)
    assert isinstance(drafting.list, QListWidget) and drafting.list.accessibleName() == "Drafting"


async def test_the_keyboard_chooses_and_the_command_follows(page, drafting, until, qtbot):
    drafting.list.setFocus()
    drafting.list.setCurrentRow(row(drafting, "fitting"))
    await until(lambda: '"method": "draft_model"' in page.command.text)
    assert "fitting" in page.command.text and drafting.sampling.isVisible() and not drafting.low.isVisible()
    drafting.sampling.setCurrentIndex(1)
    drafting.sampling.activated.emit(1)
    drafting.steps.setText("4:4,16:1")
    drafting.steps.textEdited.emit("4:4,16:1")
    await until(lambda: '"draft_sample_method": "probabilistic"' in page.command.text)
    assert "[[1, 4, 4], [5, 16, 1], [17, 4096, 0]]" in page.command.text
    qtbot.keyClick(drafting.list, Qt.Key.Key_Home)
    await until(lambda: "--speculative-config" not in page.command.text)


async def test_a_way_that_cannot_draft_builds_no_command(page, drafting, until):
    drafting.list.setCurrentRow(row(drafting, "eagle3-things"))
    await until(lambda: "in its path" in page.command.remark.text())
    assert page.command.text == "" and "Rename or move the folder." in drafting.why.text()
    assert not drafting.tokens.isVisible()
    with pytest.raises(WorkbenchError, match="in its path"):
        drafting.choice()


async def test_a_padded_draft_is_served_mixed_until_its_copy_is_made(page, drafting, until, qtbot, job, told, tmp_path):
    drafting.list.setCurrentRow(row(drafting, "padded"))
    await until(lambda: '"use_heterogeneous_vocab": true' in page.command.text)
    copy = tmp_path / "lib" / "padded-for-target"

    async def make(on_event):
        write_draft(copy, None)
        on_event(Finished(str(copy), 1))

    created = job(make)
    assert drafting.copy_button.isVisible()
    qtbot.mouseClick(drafting.copy_button, Qt.MouseButton.LeftButton)
    await until(lambda: "padded-for-target" in page.command.text)
    ((kind, spec),) = created
    assert kind == "adapt" and (Path(spec["draft"]).name, Path(spec["output"]).name) == ("padded", copy.name)
    await until(lambda: "heterogeneous" not in page.command.text)
    assert "adapted copy" in str(told[-1].sentence) and drafting.copy_button.isEnabled()


async def test_a_folder_from_elsewhere_is_looked_at(page, drafting, until, tmp_path, write_tiny):
    drafting.add(write_tiny("elsewhere"))
    await until(lambda: "Same tokenizer" in drafting.why.text())
    assert drafting.list.chosen.name == "elsewhere"


async def test_a_profile_comes_back_whole(page, drafting, tmp_path):
    chosen = Speculation(
        "draft_model", 3, tmp_path / "lib" / "fitting", steps=((2, 3), (8, 1)), sampling="probabilistic"
    )
    page.forms["original"].show_profile(Profile(page.slots["original"].model.folder, speculation=chosen))
    assert page.forms["original"].profile().speculation == chosen
    page.forms["original"].show_profile(Profile(page.slots["original"].model.folder))
    assert page.forms["original"].profile().speculation is None


async def test_h25_a_loss_is_told_and_can_be_switched_off(page, drafting, until, monkeypatch, qtbot):
    drafting.list.choose("ngram")
    started = []
    monkeypatch.setattr(page.engines, "start", lambda side, profile: started.append((side, profile)))
    run = page.engines.run("original")
    run.apply(EngineReady("http://127.0.0.1:1", "k", "target", 1, 1.0, 0.1))
    monkeypatch.setattr(page.engines, "state", lambda side: "ready" if side == "original" else "stopped")
    monkeypatch.setattr(page.engines, "profile", lambda side: page.forms[side].profile())
    run.apply(EngineSample(1.0, drafts=400, draft_tokens=1200, accepted_tokens=15))
    page.touch()
    await until(lambda: page.losses.isVisible())
    banner = page.losses._banners["original"]
    assert "not helping: 1.2 % of the drafted tokens" in banner.sentence.text()
    run.apply(EngineSample(2.0, drafts=500, draft_tokens=1500, accepted_tokens=15))
    page.touch()
    await until(lambda: "1.0 %" in banner.sentence.text())
    page.losses.switch_off("original")
    ((side, profile),) = started
    assert side == "original" and profile.speculation is None and drafting.list.chosen is None
    run.apply(EngineSample(3.0, drafts=900, draft_tokens=2700, accepted_tokens=1500))
    assert payoff.loss(run.sample) is None
    page.touch()
    await until(lambda: not page.losses.isVisible())


async def test_chinese(page, drafting):
    language.choose("zh_CN")
    assert drafting.list.item(0).text() == say("No drafting") != "No drafting"
    assert "分词器相同" in drafting.list.item(row(drafting, "padded")).data(Qt.ItemDataRole.AccessibleTextRole)
