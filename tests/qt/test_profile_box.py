"""Profiles on the Serve page: every field of the form comes back, kept ones are taken up again, commands are pasted."""

import json
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
import yaml
from PySide6.QtCore import Qt

sys.path.append(str(Path(__file__).parents[1] / "unit"))

import tiny as maker

from ui import language
from ui.engines import Engines
from ui.serve_page import ServePage
from workbench.catalog.capacity import Device
from workbench.catalog.folder import inspect
from workbench.engine import command, profiles_kept
from workbench.engine.facts import EngineFacts
from workbench.engine.profile import Adapter, Profile
from workbench.engine.separation import Leg, Separation, of_urls
from workbench.engine.speculation import Speculation

FLAGS = frozenset({*command.FLAGS.values(), "--enable-lora", "--max-loras", "--max-lora-rank", "--seed"})
FACTS = EngineFacts("/opt/python", "0.32.0", None, False, FLAGS, True, None)


@pytest.fixture
def model(tmp_path):
    return maker.write(tmp_path / "a model")


@pytest.fixture
def full(model, tmp_path):
    adapter = tmp_path / "style one"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 8}))
    return Profile(
        model, name="m", dtype="bfloat16", context=64, memory_share=0.5, kv_gib=2.5, max_sequences=8, block_size=32,
        kv_dtype="fp8", batched_tokens=2048, prefix_cache=False, scheduling="priority", running="eager",
        long_prefill=256, attention="FLASH_ATTN", adapters=(Adapter("a", adapter),),
        chat_template=tmp_path / "t x.jinja", speculation=Speculation(tokens=3), port=8100, extra=("--seed", "1"),
    )  # fmt: skip


@pytest.fixture
def page(settings, tasks, notices, qtbot):
    made = ServePage(settings, tasks, notices, Engines(settings, tasks))
    qtbot.addWidget(made)
    made.show_facts(FACTS)
    made.show_devices([Device("GPU", "gpu", 24_000_000_000, 20_000_000_000)])
    made.resize(1280, 900)
    made.show()
    return made


async def test_the_form_gives_back_every_field(page, full):
    parallel = {"tensor_parallel": 2, "pipeline_parallel": 3, "data_parallel": 4, "tool_parser": "hermes"}
    full = replace(full, executor="ray", ray_address="head:6379", **parallel)
    plain = Profile(full.model)
    assert all(
        getattr(full, each.name) != getattr(plain, each.name) for each in fields(Profile) if each.name != "model"
    )
    form = page.forms["original"]
    page.show_model("original", inspect(full.model))
    form.show_profile(full)
    assert form.profile() == full
    form.show_profile(plain)
    assert form.profile() == plain


async def test_a_profile_is_kept_and_taken_up_again(page, full, until):
    page.open(inspect(full.model))
    page.forms["original"].show_profile(full)
    await until(lambda: page.profiles.choice.currentText() == "Not saved")
    page.profiles.save_as()
    assert page.profiles.naming.name.text() == "m"
    page.profiles.naming.name.setText("fast one")
    page.profiles.naming.save.click()
    assert profiles_kept.load("fast one") == full
    await until(lambda: page.profiles.name == "fast one")

    page.forms["original"].options.batched.setValue(1024)
    await until(lambda: page.profiles.name == "")
    page.profiles.choice.setCurrentIndex(1)
    page.profiles.choice.activated.emit(1)
    await until(lambda: page.forms["original"].profile() == full)
    await until(lambda: page.profiles.name == "fast one" and "--max-num-batched-tokens 2048" in page.command.text)


async def test_engines_apart_are_kept_and_taken_up_again(page, full, until):
    """Several of a kind too; a profile of one engine then takes the place of all of them."""
    page.open(inspect(full.model))
    form = page.forms["original"]
    profile = replace(full, memory_share=None, data_parallel=1)
    legs = Leg(replace(profile, port=0, tensor_parallel=2), (0, 1)), Leg(replace(profile, port=0), (2,))
    given = Separation((legs[0],), (legs[1], replace(legs[1], devices=(3,))), 8100)
    form.show_chosen(given)
    assert form.chosen() == given and form.separating.summary == "1P2D"
    await until(lambda: page.profiles.choice.currentText() == "Not saved")
    page.profiles.save_as()
    page.profiles.naming.name.setText("apart")
    page.profiles.naming.save.click()
    assert profiles_kept.load("apart") == given
    profiles_kept.keep(full, "one")
    page.profiles.hide()
    page.profiles.show()
    await until(lambda: page.profiles.name == "apart")
    for name, chosen in (("one", full), ("apart", given)):
        index = page.profiles.choice.findText(name)
        page.profiles.choice.setCurrentIndex(index)
        page.profiles.choice.activated.emit(index)
        await until(lambda name=name, chosen=chosen: page.profiles.name == name and form.chosen() == chosen)


async def test_engines_of_others_are_kept_without_their_key(page, until):
    form = page.forms["original"]
    form.show_chosen(of_urls(("http://a:1",), ("http://b:2", "http://c:3"), "secret"))
    await until(lambda: page.profiles.choice.currentText() == "Not saved")
    page.profiles.save_as()
    page.profiles.naming.name.setText("far")
    page.profiles.naming.save.click()
    assert "secret" not in profiles_kept.file_of("far").read_text()
    await until(lambda: page.profiles.name == "far")
    form.separating.show_separation(None)
    page.profiles.choice.activated.emit(page.profiles.choice.findText("far"))
    await until(lambda: form.separating.summary == "1P2D")
    assert form.chosen() == profiles_kept.load("far"), "the key is asked for again"


async def test_what_runs_can_be_kept_but_not_exchanged(page, full):
    profiles_kept.keep(Profile(full.model), "other")
    page.profiles.hide()
    page.profiles.show()
    for running in (True, False):
        page.profiles.show_chosen(full, running)
        page.profiles.fill_menu()
        usable = {action.text(): action.isEnabled() for action in page.profiles.menu.actions()}
        assert usable["Save as…"]
        assert page.profiles.choice.isEnabled() == usable["Take a vLLM command…"] == (not running)


async def test_removing_asks_first(page, full, until, qtbot):
    profiles_kept.keep(full, "old")
    page.open(inspect(full.model))
    page.forms["original"].show_profile(full)
    page.profiles.hide()
    page.profiles.show()
    await until(lambda: page.profiles.name == "old")
    page.profiles.fill_menu()
    assert any("old" in action.text() for action in page.profiles.menu.actions())
    page.profiles.ask_removal()
    remove = next(each for each in page.profiles.question.buttons() if each.text() == "Remove")
    qtbot.mouseClick(remove, Qt.MouseButton.LeftButton)
    assert profiles_kept.listing() == () and page.profiles.name == ""


async def test_a_pasted_command_says_what_changed_before_it_is_taken(page, model, until):
    page.profiles.paste()
    dialog = page.profiles.pasting
    assert not dialog.take_button.isEnabled()
    dialog.text.setPlainText("vllm serve")
    assert "names no model" in dialog.notes.text() and not dialog.take_button.isEnabled()
    dialog.text.setPlainText(f"vllm serve '{model}' --scheduler-policy priority --swap-space 4 \\\n --block-size 32")
    assert "--scheduling-policy today" in dialog.notes.text() and "--swap-space is gone" in dialog.notes.text()
    dialog.take_button.click()
    form = page.forms["original"]
    await until(
        lambda: form.folder is not None and form.profile() == Profile(model, scheduling="priority", block_size=32)
    )


async def test_other_forms_are_written_to_files(page, full, tmp_path, until, told):
    page.open(inspect(full.model))
    page.forms["original"].show_profile(full)
    await until(lambda: page.command.text)
    page.profiles.write("compose", tmp_path / "compose.yaml")
    (service,) = yaml.safe_load((tmp_path / "compose.yaml").read_text())["services"].values()
    assert str(full.model) in service["command"]
    page.profiles.write("systemd", tmp_path / "m.service")
    assert "ExecStart=" in (tmp_path / "m.service").read_text()
    page.profiles.write("systemd", tmp_path / "m.service" / "below")
    assert "could not be written" in str(told[-1])


async def test_what_the_engine_lacks_is_off_with_the_reason_unless_it_is_set(page, full):
    form = page.forms["original"]
    old = replace(FACTS, version="0.9.0", flags=FLAGS - {"--attention-backend", "--kv-cache-dtype"})
    page.show_facts(old)
    assert not form.options.attention.isEnabled() and "--attention-backend" in form.options.attention.toolTip()
    assert form.options.batched.isEnabled() and not form.options.batched.toolTip()
    form.show_profile(replace(full, attention=""))
    assert form.options.kv_dtype.isEnabled(), "a choice that is set can be taken back"
    assert not form.options.attention.isEnabled()


async def test_it_speaks_chinese_and_every_control_has_a_name(page, full):
    language.choose("zh_CN")
    try:
        options = page.forms["original"].options
        assert options.scheduling.itemText(1) == "按优先级" and page.profiles.choice.currentText() == "无配置"
    finally:
        language.choose("en")
    named = (options.kv_dtype, options.adapters, options.template, page.profiles.choice, page.profiles.more,
             page.profiles.pasting.text, page.profiles.naming.name)  # fmt: skip
    assert all(part.accessibleName() for part in named)
