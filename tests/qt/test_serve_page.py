"""The Serve page: slots, command, what does not fit before the start, what failed after it."""

import json
import re
import struct
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton, QApplication, QComboBox, QLabel, QLineEdit

sys.path.append(str(Path(__file__).parents[1] / "unit"))

import fake_engine

from ui import language
from ui.serve_page import ServePage
from workbench.catalog.capacity import Device
from workbench.catalog.folder import inspect
from workbench.engine import memory_kept
from workbench.engine.facts import EngineFacts
from workbench.engine.profile import Profile, Speculation
from workbench.engine_events import EngineLog, EngineMemory, EnginePhase, EngineReady, EngineSample, StartExpected
from workbench.events import Failed

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 30, "hidden_size": 576,
    "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
    "max_position_embeddings": 8192, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
}  # fmt: skip
PACKED = {
    "quant_method": "compressed-tensors", "format": "pack-quantized",
    "config_groups": {"all": {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 32, "symmetric": True}}},
}  # fmt: skip


def folder_of(place, name, **config):
    """A model folder of which the weights are a hole."""
    folder = place / name
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    size = 49152 * 576 * 2
    tensor = {"model.embed_tokens.weight": {"dtype": "BF16", "shape": [49152, 576], "data_offsets": [0, size]}}
    header = json.dumps(tensor).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)
    return folder


@pytest.fixture
def original(tmp_path):
    return folder_of(tmp_path, "small")


@pytest.fixture
def quantized(tmp_path):
    return folder_of(tmp_path, "small-int4", quantization_config=PACKED)


@pytest.fixture
def page(settings, tasks, notices, engines, qtbot):
    made = ServePage(settings, tasks, notices, engines)
    qtbot.addWidget(made)
    facts = fake_engine.FACTS | {"flags": frozenset(fake_engine.FACTS["flags"]), "python": "/opt/python"}
    made.show_facts(EngineFacts(**facts))
    made.show_devices([Device("CPU", "cpu", 24_000_000_000, 20_000_000_000, packed_kernel=False)])
    made.resize(1280, 900)
    made.show()
    return made


async def test_empty_says_what_to_do_and_offers_no_start(page):
    page.redraw()
    assert page.empty.isVisible() and not page.start_button.isEnabled()
    assert page.command.text == "" and not page.command.copy_button.isEnabled()


async def test_a_model_goes_to_its_side_and_shows_its_command(page, original, quantized, qtbot):
    page.open(inspect(original))
    page.open(inspect(quantized))
    page.redraw()
    assert page.slots["original"].model.folder == original and page.slots["quantized"].model.folder == quantized
    assert all(card.isVisible() for card in page.cards.values())
    assert page.start_button.text() == "Start both"
    assert str(quantized) in page.command.text and "vllm.entrypoints.openai.api_server" in page.command.text
    assert 'VLLM_API_KEY="$LATHE_KEY"' in page.command.text
    assert "unpacked" in page.cards["quantized"].remarks.text()
    assert not page.cards["original"].remarks.isVisible()
    qtbot.mouseClick(page.command.copy_button, Qt.MouseButton.LeftButton)
    assert QApplication.clipboard().text() == page.command.text


async def test_the_command_follows_the_form(page, original, until, qtbot):
    page.open(inspect(original))
    form = page.forms["original"]
    form.context.setValue(4096)
    await until(lambda: "--max-model-len 4096" in page.command.text)
    form.drafting.list.choose("ngram")
    form.drafting.tokens.setValue(6)
    await until(lambda: '"num_speculative_tokens": 6' in page.command.text)
    assert '"method": "ngram"' in page.command.text and form.drafting.low.isVisible()
    form.drafting.list.choose(None)
    await until(lambda: "--speculative-config" not in page.command.text)
    assert not form.drafting.low.isVisible() and not form.drafting.tokens.isVisible()
    form.extra.setText("--no-such-flag 1")
    form.extra.textEdited.emit("")
    await until(lambda: "--no-such-flag" in page.command.remark.text())


async def test_a_form_gives_back_the_profile_it_was_given(page, original, quantized):
    profile = Profile(
        original,
        name="name",
        dtype="bfloat16",
        context=2048,
        memory_share=0.5,
        kv_gib=2.0,
        max_sequences=8,
        block_size=32,
        speculation=Speculation("draft_model", 3, quantized),
        port=8123,
        extra=("--seed", "1 2"),
    )
    page.forms["original"].show_profile(profile)
    assert page.forms["original"].profile() == profile


async def test_a_context_that_does_not_fit_is_told_before_the_start(page, tmp_path, qtbot):
    page.open(inspect(folder_of(tmp_path, "long", max_position_embeddings=131072)))
    page.forms["original"].dtype.setCurrentText("bfloat16")
    page.forms["original"].dtype.activated.emit(1)
    page.redraw()
    warning = page.cards["original"].warning
    said = warning.sentence.text()
    assert "131,072" in said and "2.81 GiB" in said and "1.00 GiB" in said and "46,603" in said
    use = next(each for each in warning.findChildren(QAbstractButton) if each.text().startswith("Use"))
    qtbot.mouseClick(use, Qt.MouseButton.LeftButton)
    chosen = page.forms["original"].profile().context
    assert 40_000 < chosen <= 46_603
    page.redraw()
    assert page.cards["original"].warning is None


def play(engines, side, *events):
    """Events of an engine that is not there."""
    for event in events:
        engines.run(side).apply(event)
    engines.changed.emit(side)


async def test_the_engines_own_figures_are_laid_over_the_estimate(page, engines, original, monkeypatch):
    page.open(inspect(original))
    page.redraw()
    card = page.cards["original"]
    before = card.memory.waterfall
    assert not before.is_measured and before.sizeHint().height() == 26 * len(before.parts)
    assert "the KV cache holds 23,296" in card.memory.text()
    monkeypatch.setattr(engines, "state", lambda side: "ready" if side == "original" else "stopped")
    play(
        engines, "original", EnginePhase("starting", 10), EnginePhase("weights", 30), EnginePhase("warmup", 42),
        EngineMemory(overhead=2_000_000_000, kv_bytes=2**30, kv_tokens=23296, context=8192, concurrency=2.84,
                     others=5_000_000_000),
        EngineReady("http://127.0.0.1:1", "k", "small", 1, 32.0, 3.0),
        EngineSample(60, kv_usage=0.1, kv_blocks=182, kv_block_size=128, kv_tokens=23296),
    )  # fmt: skip
    page.redraw()
    parts = {str(part.name): (part.estimate, part.measured) for part in card.memory.waterfall.parts}
    weights = 4 * 49152 * 576
    assert parts == {
        "Other programs": (4_000_000_000, 5_000_000_000), "Weights": (weights, None),
        "Overhead": (2_100_000_000, 2_000_000_000), "KV cache": (2**30, 2**30),
        "Free": (17_900_000_000 - weights - 2**30, 17_000_000_000 - weights - 2**30),
    }  # fmt: skip
    assert "23,296 tokens, as estimated: 2.84 conversations of 8,192" in card.memory.text()
    waterfall = card.memory.waterfall
    assert waterfall.sizeHint().height() == 26 * 6, "a line of headings above the five parts"
    assert "Overhead 2.1 GB, Measured 2.0 GB" in waterfall.accessibleDescription()
    assert "Weights 113 MB, Measured –" in waterfall.accessibleDescription()
    waterfall.resize(600, waterfall.sizeHint().height())
    drawn = waterfall.grab().toImage()
    waterfall.show_parts([replace(part, measured=None) for part in waterfall.parts], 24_000_000_000)
    waterfall.resize(600, drawn.height())
    assert waterfall.grab().toImage() != drawn
    assert [segment.seconds for segment in card.timeline.segments] == [20, 12, 3]
    assert not any(segment.running for segment in card.timeline.segments)
    assert card.progress.text() == "Ready after 32.0 s, warmed up after 35.0 s."
    assert card.chat_button.isVisible() and card.stop_button.isVisible() and not card.start_button.isVisible()
    assert page.start_button.text() == "Stop" and not page.forms["original"].isEnabled()


async def test_the_estimate_is_what_the_last_start_took(page, engines, original, settings, monkeypatch):
    profile = Profile(original)
    took = EngineMemory(overhead=1_500_000_000, kv_bytes=2**30, kv_tokens=23296, context=8192, concurrency=2.84)
    memory_kept.remember(profile, settings.interpreter, Device("CPU", "cpu", 1, 1), took)
    page.open(inspect(original))
    page.redraw()
    view = page.cards["original"].memory
    assert {str(part.name): part.estimate for part in view.waterfall.parts}["Overhead"] == 1_500_000_000
    assert "Estimated from what the last such start took." in view.text()
    # What an engine took counts for the next one as soon as it has ended.
    monkeypatch.setattr(engines, "state", lambda side: "ready")
    play(engines, "original", EnginePhase("starting", 1))
    memory_kept.remember(
        profile, settings.interpreter, Device("CPU", "cpu", 1, 1), replace(took, overhead=1_400_000_000)
    )
    page.redraw()
    assert {str(part.name): part.estimate for part in view.waterfall.parts}["Overhead"] == 1_500_000_000
    monkeypatch.setattr(engines, "state", lambda side: "stopped")
    engines.changed.emit("original")
    page.redraw()
    assert {str(part.name): part.estimate for part in view.waterfall.parts}["Overhead"] == 1_400_000_000


async def test_h22_a_start_that_cannot_fit_is_refused_before_the_engine(
    page, engines, original, settings, tmp_path, until, qtbot
):
    settings.engine_python = str(fake_engine.install(tmp_path, ("print", "started"), ("exit", 1)))
    page.open(inspect(original))
    page.forms["original"].show_profile(Profile(original, context=60000))
    page.redraw()
    qtbot.mouseClick(page.start_button, Qt.MouseButton.LeftButton)
    card = page.cards["original"]
    await until(card.failure.isVisible, 20)
    assert "60,000 tokens need 2.57 GiB of KV cache and 1.00 GiB are there" in card.failure.sentence.text()
    assert card.retry_button.text() == "Start with 23,168 tokens"
    assert not (tmp_path / "started.json").exists()
    qtbot.mouseClick(card.retry_button, Qt.MouseButton.LeftButton)
    await until((tmp_path / "started.json").exists, 20)
    argv = fake_engine.logged(tmp_path)["argv"]
    assert argv[argv.index("--max-model-len") + 1] == "23168"
    await until(lambda: engines.state("original") == "failed", 20)


async def test_a_failure_has_its_cause_the_status_the_log_and_a_length_that_fits(
    page, engines, original, settings, tmp_path, until, qtbot
):
    refusal = (
        "ValueError: To serve at least one request with the models's max seq len (131072), (2.81 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (1.0 GiB). Based on the available memory, the "
        "estimated maximum model length is 30208."
    )
    settings.engine_python = str(fake_engine.install(tmp_path, ("print", refusal), ("exit", 1)))
    page.open(inspect(original))
    page.forms["original"].show_profile(Profile(original, kv_gib=2.0))  # by our own count 30,208 tokens fit into it
    page.redraw()
    qtbot.mouseClick(page.start_button, Qt.MouseButton.LeftButton)
    card = page.cards["original"]
    await until(card.failure.isVisible, 20)
    assert "131072" in card.failure.sentence.text() and "2.81 GiB" in card.failure.sentence.text()
    assert card.progress.text() == "It ended with status 1."
    assert card.retry_button.text() == "Start with 30,208 tokens"
    qtbot.mouseClick(card.failure.log_button, Qt.MouseButton.LeftButton)
    assert refusal in card.failure._log.toPlainText()
    qtbot.mouseClick(card.retry_button, Qt.MouseButton.LeftButton)
    assert engines.profile("original").context <= 30208
    assert engines.state("original") == "starting"
    await until(lambda: engines.state("original") == "failed", 20)
    assert "30208" in fake_engine.logged(tmp_path)["argv"]


async def test_a_start_shows_what_earlier_ones_make_one_expect(page, engines, original, monkeypatch):
    page.open(inspect(original))
    monkeypatch.setattr(engines, "state", lambda side: "starting" if side == "original" else "stopped")
    now_s = time.monotonic()
    play(
        engines, "original", StartExpected({"starting": 20.0, "weights": 8.0, "warmup": 3.0}),
        EnginePhase("starting", now_s - 22), EnginePhase("weights", now_s - 2),
    )  # fmt: skip
    page.redraw()
    timeline = page.cards["original"].timeline
    starting, weights, warmup = timeline.segments
    assert (starting.expected, starting.length) == (20.0, starting.seconds), "what is over is as long as it was"
    assert weights.running and 2 <= weights.seconds < 3 and weights.length == 8.0
    assert warmup.seconds is None and warmup.length == 3.0
    assert "Warm-up: – s, usually 3.00 s" in timeline.accessibleDescription()
    tall = timeline.sizeHint().height()
    timeline.show_segments([replace(each, expected=None) for each in timeline.segments])
    assert "usually" not in timeline.accessibleDescription() and timeline.sizeHint().height() < tall
    timeline.show_segments([starting, weights, warmup])
    assert page.cards["original"].progress.text() == "About 9 s left, by earlier starts."
    timeline.resize(500, timeline.sizeHint().height())
    before = timeline.grab().toImage()
    timeline.show_segments([replace(warmup, seconds=1.0, running=True)])
    assert timeline.grab().toImage() != before


async def test_silence_is_told_and_stop_works(page, engines, original, settings, tmp_path, until, qtbot, monkeypatch):
    settings.engine_python = str(fake_engine.install(tmp_path, ("print", "one line"), ("sleep", 600)))
    page.open(inspect(original))
    qtbot.mouseClick(page.cards["original"].start_button, Qt.MouseButton.LeftButton)
    card = page.cards["original"]
    await until(lambda: card.last_line.text() == "one line", 20)
    monkeypatch.setattr(engines, "silent_s", lambda side: 34.2)
    await until(lambda: card.progress.text() == "Still loading, no output for 34 s.")
    assert page.statuses() and page.logs()[0].path.exists()
    qtbot.mouseClick(card.stop_button, Qt.MouseButton.LeftButton)
    await until(lambda: card.light.word.text() == "stopped", 10)
    assert card.start_button.isVisible()


async def test_a_pair_is_opened_from_its_folders(page, original, quantized, until):
    page.open_pair(original, quantized)
    await until(lambda: all(page.slots[side].model for side in ("original", "quantized")))
    assert page.forms["original"].folder == original and page.tabs["quantized"].isChecked()


async def test_a_folder_without_a_model_is_told_and_leaves_the_slot_empty(page, tmp_path, told, until):
    page.forms["original"].model.picked.emit(tmp_path)
    await until(lambda: told)
    assert page.slots["original"].model is None


async def test_everything_is_named_and_follows_the_language(page, engines, original, quantized):
    page.open(inspect(original))
    page.open(inspect(quantized))
    play(engines, "original", EngineLog("x"), Failed("The memory ran out.", "Close other programs, or choose a smaller KV cache or model."))  # fmt: skip  # noqa: E501
    page.redraw()
    for kind in (QAbstractButton, QComboBox, QLineEdit):
        nameless = [
            each for each in page.findChildren(kind)
            if kind is not QLineEdit or each.objectName() != "qt_spinbox_lineedit"
            if not each.accessibleName() and each.focusPolicy() != Qt.FocusPolicy.NoFocus
        ]  # fmt: skip
        assert nameless == []
    language.choose("zh_CN")
    page.redraw()
    foreign = re.compile(r"\b(start|stop|choose|model|memory|folder|automatic|weights|free|command|key)\b", re.I)
    texts = [each.text() for kind in (QLabel, QAbstractButton) for each in page.findChildren(kind)]
    texts += [box.itemText(index) for box in page.findChildren(QComboBox) for index in range(box.count())]
    assert [text for text in texts if foreign.search(text)] == []


def test_a_long_name_in_the_model_box_loses_its_middle(page, tmp_path):
    form = page.forms["quantized"]
    folder = folder_of(tmp_path, "SmolLM2-135M-Instruct-INT4-layered")
    form.model.show_folder(folder)
    form.model.box.setFixedWidth(170)
    assert form.model.box.seen.startswith("Smol") and form.model.box.seen.endswith("layered")
    assert "…" in form.model.box.seen and form.model.box.toolTip() == str(folder)


async def test_a_checkpoint_made_elsewhere_is_described_and_refused_before_the_start(page, tmp_path, quantized):
    stored = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": True}
    page.open(inspect(folder_of(tmp_path, "theirs", quantization_config=stored)))
    page.redraw()
    weights = page.cards["quantized"].weights
    assert weights.isVisible() and weights.description.text().startswith("GPTQ: 4-bit integers")
    assert "no longer loads weights in activation order" in weights.verdict.text()
    language.choose("zh_CN")
    assert "GPTQ" in weights.description.text() and "no longer" not in weights.verdict.text()
    language.choose("en")
    page.open(inspect(quantized))
    assert "can serve it" in weights.verdict.text() and not weights.hint.isVisible()
    page.open(inspect(folder_of(tmp_path, "plain")))
    page.redraw()
    assert not page.cards["original"].weights.isVisible()
