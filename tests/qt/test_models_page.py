import asyncio
import json
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel

from ui import language
from ui.models_found import look
from ui.models_page import ModelsPage
from ui.models_table import FITS, Row
from ui.widgets.stored_weights import precision_of
from workbench.catalog import fit
from workbench.catalog.devices import Device
from workbench.catalog.folder import Model, Unreadable, inspect
from workbench.engine.facts import EngineFacts
from workbench.errors import WorkbenchError
from workbench.events import Advanced, Failed, Finished, Stage

LARGE = Device("RTX 9000", "gpu", 24_000_000_000, 22_000_000_000, 1e12)
SMALL = Device("GTX 1", "gpu", 2_000_000_000, 1_900_000_000, 1e11)


def write_model(folder: Path, layers: int = 2, **config) -> Path:
    """A Llama of zeros that the catalog can read."""
    folder.mkdir(parents=True)
    shapes = {"model.embed_tokens.weight": (256, 64), "model.norm.weight": (64,)}
    for block in range(layers):
        at = f"model.layers.{block}"
        shapes |= {f"{at}.self_attn.{name}_proj.weight": (64, 64) for name in "qkvo"}
        shapes |= {f"{at}.mlp.{name}_proj.weight": (128, 64) for name in ("gate", "up")}
        shapes[f"{at}.mlp.down_proj.weight"] = (64, 128)
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))
    given = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": layers, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
        "vocab_size": 256, "max_position_embeddings": 2048, "tie_word_embeddings": True,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(given | config))
    return folder


@pytest.fixture
def model(tmp_path) -> Model:
    return inspect(write_model(tmp_path / "library" / "tiny-llama"))


@pytest.fixture
async def page(settings, tasks, notices, qtbot):
    made = ModelsPage(settings, tasks, notices)
    made.resize(1280, 720)
    made.show()
    yield made
    made.close()


def rows_of(*models, device=LARGE) -> list[Row]:
    return [Row(each, fit.by_precision(each, device) if isinstance(each, Model) else {}) for each in models]


def texts(widget) -> str:
    return "\n".join(each.text() for each in widget.findChildren(QLabel) if each.isVisible())


async def test_before_the_first_scan_it_says_that_it_looks(page):
    assert "Looking for models" in texts(page)


async def test_an_empty_library_offers_three_ways_the_starter_first(page):
    page.show_found([], [LARGE])
    assert "No models yet" in texts(page)
    assert page.none.starter.isVisible() and page.none.starter.property("kind") == "primary"
    assert not page.quantize_button.isVisible()


async def test_a_scan_finds_what_lies_in_the_folders(page, settings, tmp_path, until):
    write_model(tmp_path / "模型 库/ünï 'quote' & co/m1")
    settings.model_folders = (str(tmp_path / "模型 库"),)
    page.rescan()
    await until(lambda: page.rows)
    assert [row.model.name for row in page.rows] == ["m1"]
    assert "ünï 'quote' & co" in texts(page.details)
    assert page.quantize_button.isEnabled() and page.serve_button.isEnabled()


async def test_the_figures_of_a_model(page, model):
    page.show_found(rows_of(model), [LARGE])
    shown = texts(page.details)
    for expected in ("tiny-llama", "LlamaForCausalLM", "2,048", "256", "BF16"):
        assert expected in shown
    assert page.table.rows.rows[0].cells()[:4] == ("tiny-llama", "98,368", "197 kB", "2,048")


async def test_badges_say_what_fits_and_by_how_much_it_does_not(model):
    large = replace(model, parameters=7_600_000_000, weight_bytes=15_200_000_000)
    (row,) = rows_of(large, device=SMALL)
    needed = row.fits["FP16"].needed
    assert 15.2e9 < needed < 16.5e9, "the weights and what an engine takes beside them"
    told = next(text for text, _ in row.badges() if text.startswith("FP16"))
    assert told == f"FP16 ✕ {needed / 1e9:.1f} > {row.fits['FP16'].available / 1e9:.1f}"
    assert [text for text, _ in rows_of(model)[0].badges()] == ["FP16 ●", "INT8 ●", "INT4 ●"]


async def test_the_context_slider_moves_the_memory(page, model):
    page.show_found(rows_of(model), [LARGE])
    details = page.details
    before = details._waterfall.parts[1].estimate
    details._slider.setValue(0)
    assert details._waterfall.parts[1].estimate == before // 4  # 512 of 2,048 tokens
    assert "512 tokens" in texts(details)


async def test_precision_changes_the_weights_and_their_colour(page, model):
    page.show_found(rows_of(model), [LARGE])
    plain = page.details._waterfall.parts[0]
    page.details._precisions.buttons()[2].click()
    packed = page.details._waterfall.parts[0]
    assert packed.estimate < plain.estimate
    assert (plain.colour, packed.colour) == ("original", "quantized")


async def test_another_model_offers_its_own_contexts(page, model):
    longer = replace(model, folder=model.folder.parent / "longer", name="longer", context=32768)
    page.show_found(rows_of(model, longer), [LARGE])
    page.table.pick(longer.folder)
    await asyncio.sleep(0.1)
    assert page.details._slider.maximum() == 6
    page.table.pick(model.folder)
    await asyncio.sleep(0.1)
    assert page.details._slider.maximum() == 2


async def test_problems_disable_actions_and_say_why(page, tmp_path):
    packed = write_model(
        tmp_path / "packed",
        quantization_config={"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True},
    )
    page.show_found(rows_of(inspect(packed)), [LARGE])
    assert not page.quantize_button.isEnabled() and page.serve_button.isEnabled()
    assert page.table.rows.rows[0].cells()[4] == "INT4 g32" and "4-bit AWQ, group 32" in texts(page.details)
    assert "4-bit AWQ, group 32" in page.quantize_button.toolTip()
    assert "4-bit AWQ, group 32" in page.reason.text() and page.reason.isVisible()


async def test_names_keep_their_room_beside_a_long_precision(page, tmp_path):
    packed = write_model(
        tmp_path / "SmolLM2-135M-Instruct-INT4-layered-again",
        quantization_config={
            "quant_method": "compressed-tensors",
            "config_groups": {
                str(size): {"weights": {"num_bits": 4, "group_size": size}, "targets": ["Linear"]} for size in (32, 64)
            },
        },
    )
    page.show_found(rows_of(inspect(packed)), [LARGE])
    table = page.table
    table.resize(830, 300)
    assert table.rows.rows[0].cells()[4] == "INT4 g32/64"
    told = table.rows.data(table.rows.index(0, 4), Qt.ItemDataRole.ToolTipRole)
    assert "compressed-tensors" in told and "group 32" in told and "group 64" in told
    assert table.columnWidth(0) > 280 and table.textElideMode() == Qt.TextElideMode.ElideMiddle


@pytest.mark.parametrize(
    ("stored", "precision"),
    [
        ({"quant_method": "fp8"}, "FP8"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "INT4"),
        (None, "BF16"),
    ],
)
def test_the_short_name_of_a_precision_tells_floats_from_integers(tmp_path, stored, precision):
    model = inspect(write_model(tmp_path / "m", **({"quantization_config": stored} if stored else {})))
    assert precision_of(model) == precision


async def test_an_unreadable_folder_is_listed_with_its_reason(page, tmp_path):
    broken = Unreadable(tmp_path / "broken", WorkbenchError("{name} holds no model.", "Choose another.", name="broken"))
    page.show_found([Row(broken)], [LARGE])
    await asyncio.sleep(0.05)
    assert "broken holds no model." in texts(page.details) and "Choose another." in texts(page.details)
    assert not page.quantize_button.isEnabled() and not page.serve_button.isEnabled()


async def test_quantize_and_serve_hand_on_the_model(page, model, qtbot):
    page.show_found(rows_of(model), [LARGE])
    with qtbot.waitSignal(page.quantize_picked) as picked:
        page.quantize_button.click()
    assert picked.args == [model]
    with qtbot.waitSignal(page.serve_picked) as picked:
        page.serve_button.click()
    assert picked.args == [model]


async def test_a_rescan_keeps_the_choice(page, model):
    other = replace(model, folder=model.folder.parent / "other", name="other")
    page.show_found(rows_of(model, other), [LARGE])
    page.table.pick(other.folder)
    page.show_found(rows_of(replace(model), replace(other)), [LARGE])
    assert page.table.current().model.name == "other"


async def test_an_opened_folder_is_remembered_and_current(page, model, settings, until):
    page.open_path(model.folder)
    await until(lambda: page.rows)
    assert settings.recent == (str(model.folder),)
    assert page.table.current().folder == model.folder


async def test_a_result_is_listed_wherever_it_was_written(page, model, settings, tmp_path, until):
    settings.model_folders = (str(model.folder.parent),)
    elsewhere = write_model(tmp_path / "elsewhere" / "result")
    page.list_also(model.folder)
    page.list_also(elsewhere)
    await until(lambda: page.rows and len(page.rows) == 2)
    assert settings.recent == (str(elsewhere),)


async def test_the_starter_job_shows_its_progress_and_ends_in_the_list(page, job, until, model):
    released = asyncio.Event()

    async def story(emit):
        emit(Stage("Starting", 10))
        emit(Advanced(4))
        await released.wait()
        emit(Finished(str(model.folder)))

    created = job(story)
    page.show_found([], [LARGE])
    page.none.starter.click()
    await until(lambda: page.none.bar.isVisible() and page.none.bar.value() == 400)
    assert not page.none.starter.isEnabled() and page.would_lose() is not None
    assert page.statuses()[0].share == 0.4
    page.settings.recent = (str(model.folder),)
    released.set()
    await until(lambda: page.rows)
    assert page.table.current().folder == model.folder
    assert created == [("starter", {})] and page.would_lose() is None


async def test_cancelling_the_starter_is_not_an_error(page, job, until, told, qtbot):
    job(lambda emit: asyncio.sleep(60))
    page.show_found([], [LARGE])
    page.none.starter.click()
    await until(lambda: page.none.cancel.isVisible())
    qtbot.mouseClick(page.none.cancel, Qt.MouseButton.LeftButton)
    await until(page.none.starter.isEnabled)
    assert told == [] and page.statuses() == []


async def test_a_failed_starter_is_told_and_can_be_tried_again(page, job, until, told):
    async def story(emit):
        emit(Failed("x", "y"))
        raise WorkbenchError("There is no way to the hub.", "Check the network.")

    job(story)
    page.show_found([], [LARGE])
    page.none.starter.click()
    await until(lambda: told)
    assert str(told[0].sentence) == "There is no way to the hub."
    await until(page.none.starter.isEnabled)


async def test_it_speaks_chinese_at_once(page, model):
    page.show_found(rows_of(model), [LARGE])
    language.choose("zh_CN")
    await asyncio.sleep(0.1)
    assert page.heading.text() == "模型" and page.quantize_button.text() == "量化"
    assert page.table.rows.headerData(FITS, Qt.Orientation.Horizontal) == "能否容纳"
    assert "嵌入与输出头共享" in texts(page.details)


def test_looking_lists_the_readable_first_and_is_quick(tmp_path):
    write_model(tmp_path / "z-good")
    (tmp_path / "a-bad").mkdir()
    (tmp_path / "a-bad" / "config.json").write_text("{")
    rows, devices = look([tmp_path], None)
    assert [row.model is not None for row in rows] == [True, False]
    assert set(rows[0].fits) == {"FP16", "INT8", "INT4"} and devices


ENGINE = EngineFacts(
    "/usr/bin/python3", "0.32.0", "2.11.0", True, frozenset(), True, None,
    frozenset({"awq", "gptq", "auto_gptq", "compressed-tensors", "fp8"}),
)  # fmt: skip
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}


@pytest.mark.parametrize(
    "stored, described, refused",
    [
        (AWQ, "AWQ (gemm): 4-bit integers, group 128, with zero points", ""),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": True},
            "GPTQ", "no longer loads weights in activation order",
        ),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
            "bitsandbytes", "does not load",
        ),
        (
            {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
            "FP8", "cannot compute with 8-bit floats",
        ),
    ],
)  # fmt: skip
async def test_a_checkpoint_made_elsewhere_is_described_and_refused_with_the_reason(
    page, tmp_path, stored, described, refused
):
    model = inspect(write_model(tmp_path / "elsewhere", quantization_config=stored))
    page.show_found(rows_of(model), [LARGE])
    assert described in texts(page.details.weights) and not page.details.weights.verdict.isVisible()
    page.show_engine(ENGINE)
    shown = texts(page.details.weights)
    if refused:
        assert "✕ " in shown and refused in shown and page.details.weights.hint.isVisible()
        assert not page.serve_button.isEnabled() and refused in page.serve_button.toolTip()
        assert page.rows[0].badges()[0] == ("cannot be served", "rejected")
    else:
        assert "✓ vLLM 0.32.0 can serve it." in shown and page.serve_button.isEnabled()
    page.show_found(rows_of(model), [LARGE])
    assert bool(page.rows[0].refused) == bool(refused), "another scan asks nothing anew"


async def test_a_result_that_failed_its_check_is_marked_and_not_offered(page, tmp_path, until):
    folder = write_model(tmp_path / "x.failed", quantization_config=AWQ)
    (folder / "lathe-failed.json").write_text(json.dumps({"message": "It stays near the original", "values": {}}))
    page.show_found(rows_of(inspect(folder)), [LARGE])
    page.show_engine(ENGINE)
    await until(lambda: "This result failed a check" in texts(page.details))
    assert not page.serve_button.isEnabled()
    assert page.rows[0].badges()[0] == ("cannot be served", "rejected") and not page.rows[0].model.can_serve
    assert not page.details.weights.verdict.isVisible(), "what the engine could is beside the point"


async def test_another_model_is_weighed_at_a_precision_of_its_own(page, model, tmp_path, until):
    packed = inspect(write_model(tmp_path / "packed", quantization_config=AWQ))
    page.show_found(rows_of(model, packed), [LARGE])
    for folder, own in ((model.folder, "FP16"), (packed.folder, "INT4"), (model.folder, "FP16")):
        page.table.pick(folder)
        page.redraw()
        picked = page.details._precisions.checkedButton()
        assert picked.property("precision") == own
        await until(picked.isVisible)
