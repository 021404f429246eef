"""The Quantize page from picking a model to the result, fed with events instead of a job."""

import asyncio
from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from quantize_parts import BLOCKS, SHAPES, reopened, story

from ui import language
from workbench import jobs, recipe
from workbench.errors import WorkbenchError
from workbench.events import Failed, encode
from workbench.quant_events import Histogram
from workbench.recipe import LAYERED, Choice, Rule, with_group_size

# -- before a run


def test_without_a_model_it_says_where_to_pick_one(page, qtbot):
    assert page.view.currentIndex() == 0 and not page.primary.isVisible()
    empty = page.view.widget(0)
    assert empty.sentence.text() == "Nothing to quantize yet"
    with qtbot.waitSignal(page.models_wanted, timeout=1000):
        empty.findChild(type(page.primary)).click()


def test_a_model_is_planned_at_once(page, model):
    page.open(model)
    assert page.primary.isEnabled() and page.heading.text() == "small"
    assert page.view.summary.text().startswith("4.3 bits avg · 11")
    assert page.view.setup.output.text().endswith("small-INT4-layered")
    assert page.view.strip.chosen_name == "model.layers.0.self_attn.q_proj"


def test_each_cell_says_shape_size_and_the_pattern_that_decides(page, model):
    page.open(model)
    page.choosing.take_recipe(replace(LAYERED, rules=(Rule("*.o_proj", Choice(bits=8)),)))
    told = {cell.name: cell.words for cell in page._cells.all()}
    shape = "{} × {}".format(*SHAPES["self_attn.o_proj"])
    assert f" · {shape} · GPTQ · 8 bit" in told["model.layers.7.self_attn.o_proj"]
    assert "kB · by the rule *.o_proj · not quantized yet" in told["model.layers.7.self_attn.o_proj"]
    assert "rule" not in told["model.layers.7.self_attn.q_proj"]
    assert page.view.details.chosen.heading.toolTip().endswith("model.layers.0.self_attn.q_proj · 576 × 576")


def test_group_128_is_refused_and_one_click_mends_it(page, model, qtbot):
    page.open(model)
    page.choosing.take_recipe(with_group_size(LAYERED, 128))
    conflicts = page.view.conflicts
    assert not page.primary.isEnabled()
    assert "180 linear layers" in conflicts.banners[0].sentence.text()
    cells = page._cells.all()
    assert sum(cell.state == "conflict" for cell in cells) == 180
    assert {cell.column for cell in cells if cell.state != "conflict"} == {"mlp.down_proj"}
    mixed = next(fix for fix in conflicts.fixes if fix.text() == "Use 64 where needed, 128 elsewhere")
    qtbot.mouseClick(mixed, Qt.MouseButton.LeftButton)
    assert page.primary.isEnabled() and not page.draft.plan.conflicts
    sizes = {planned.linear.role: planned.choice.group_size for planned in page.draft.plan.linears}
    assert sizes["down"] == 128 and set(sizes.values()) == {64, 128}


@pytest.mark.parametrize("number, kept, size", [(0, 0, {64}), (2, 180, {128})])
def test_every_way_out_leads_to_a_plan_that_runs(page, model, qtbot, number, kept, size):
    page.open(model)
    page.choosing.take_recipe(with_group_size(LAYERED, 128))
    page.view.conflicts.fixes[number].click()
    plan = page.draft.plan
    assert not plan.conflicts and page.primary.isEnabled()
    assert sum(planned.choice.kept for planned in plan.linears) == kept
    assert {planned.choice.group_size for planned in plan.quantized} == size


async def test_a_choice_for_one_module_takes_its_siblings_along(page, model, job):
    job(lambda emit: asyncio.sleep(60))
    page.open(model)
    page.show_layer("model.layers.3.mlp.gate_proj")
    page.redraw()
    form = page.view.details.chosen.form
    form.bits.setCurrentIndex(form.bits.findData(8))
    form.bits.activated.emit(form.bits.currentIndex())
    page.redraw()
    page.view.details.chosen.trial.keep.click()
    changed = [planned.linear.name for planned in page.draft.plan.linears if planned.choice.bits == 8]
    assert changed == ["model.layers.3.mlp.gate_proj", "model.layers.3.mlp.up_proj"]
    assert page.primary.isEnabled(), "siblings that differ would be a conflict"
    assert page.view.recipes.choice.currentText() == "Layered, changed"


async def test_a_choice_for_all_blocks_and_eight_bits_drop_the_zero_point(page, model, job):
    job(lambda emit: asyncio.sleep(60))
    page.open(model)
    page.show_layer("model.layers.3.self_attn.k_proj")
    page.redraw()
    form = page.view.details.chosen.form
    form.scope.setCurrentIndex(1)
    form.bits.setCurrentIndex(form.bits.findData(8))
    form.bits.activated.emit(form.bits.currentIndex())
    page.redraw()
    page.view.details.chosen.trial.keep.click()
    changed = [planned for planned in page.draft.plan.linears if planned.choice.bits == 8]
    assert len(changed) == 3 * BLOCKS and {planned.linear.role for planned in changed} == {"q", "k", "v"}
    assert all(planned.choice.symmetric for planned in changed)


def test_showing_a_choice_changes_nothing(page, model):
    page.open(model)
    for role in SHAPES:
        page.show_layer(f"model.layers.5.{role}")
        page.redraw()
    assert page.draft.recipe == LAYERED


def test_output_that_is_there_already_is_a_conflict(page, model, tmp_path):
    page.open(model)
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "config.json").write_text("{}")
    page.view.setup.output.setText(str(taken))
    page.view.setup.output.editingFinished.emit()
    assert not page.primary.isEnabled()
    assert str(taken) in page.view.conflicts.banners[0].sentence.text()
    (fix,) = page.view.conflicts.fixes
    assert fix.text() == "Write to taken-2"
    fix.click()
    assert page.primary.isEnabled() and page.view.setup.output.text() == str(tmp_path / "taken-2")
    assert page.draft.recipe == LAYERED


def test_a_free_name_is_proposed(page, model, settings):
    (settings.library[0] / "small-INT4-layered").mkdir()
    page.open(model)
    assert page.draft.output.name == "small-INT4-layered-2"


async def test_any_layer_can_be_looked_at_before_a_run(page, model, job, until):
    name = "model.layers.4.mlp.up_proj"
    counts = (1, 5, 100, 5, 1)
    created = job(Histogram(name, (1536, 576), -0.3, 0.3, counts, 2, 6.0, 0.004))
    page.open(model)
    page.choose(name)
    page.choose(name)
    details = page.view.details.chosen
    await until(lambda: details.plot.remark == "2 not finite")
    assert created == [("histogram", {"model": str(model.folder), "module": name})]
    assert "6" in details.figures["kurtosis"].accessibleName()
    page.choose("model.layers.4.mlp.down_proj")
    page.choose(name)
    await asyncio.sleep(0.4)
    assert len(created) == 1, "what is known is not read again, what is passed over not at all"


async def test_a_look_that_fails_says_why(page, model, job, until):
    async def fails(emit):
        raise WorkbenchError("The file is damaged.", "Fetch it again.")

    job(fails)
    page.open(model)
    page.choose("model.layers.4.mlp.up_proj")
    await until(lambda: page.view.details.chosen.waiting.text() == "The file is damaged. Fetch it again.")
    assert page.view.details.chosen.look.isVisible()


# -- a run


async def test_a_run_from_the_button_to_the_result(page, model, job, until, qtbot, tmp_path):
    result = tmp_path / "result"
    result.mkdir()
    created = job(*story(model, str(result)))
    page.open(model)
    page.choosing.take_output(tmp_path / "elsewhere")
    qtbot.mouseClick(page.primary, Qt.MouseButton.LeftButton)
    assert page.view.progress.isVisible() and not page.primary.isEnabled()
    assert not page.view.setup.isVisible(), "the text is being read"
    await until(lambda: page.view.result.isVisible())
    kind, spec = created[-1]
    assert kind == "quantize" and spec["output"] == str(tmp_path / "elsewhere") and spec["measure_rtn"]
    assert recipe.from_dict(spec["recipe"]) == page.draft.recipe
    original, quantized, plain = page.view.result.texts()
    assert (original[3], quantized[2:4], plain[2:4]) == ("32.9", ["0.11", "35.7"], ["0.43", "45.4"])
    assert quantized[1] == "114 MB"
    assert not page.view.progress.isVisible() and not page.view.setup.isVisible()
    with qtbot.waitSignal(page.finished, timeout=1000) as told:
        page.view.result.serve.click()
    assert told.args == [model.folder, result]


async def test_the_view_follows_until_another_cell_is_chosen(page, model, job, until):
    gate = asyncio.Event()

    async def slowly(emit):
        events = story(model, modules=9)
        for event in events[:13]:
            emit(event)
        await gate.wait()
        for event in events[13:]:
            emit(event)
        await asyncio.sleep(60)

    job(slowly)
    page.open(model)
    page.start()
    last = model.linears[3].name
    await until(lambda: page.view.strip.chosen_name == last)
    assert page.view.details.chosen.heading.full.startswith("block 0 · self_attn.o_proj · GPTQ · 4 bit")
    page.choose(model.linears[1].name)
    gate.set()
    await until(lambda: len(page.run.modules) == 9)
    page.redraw()
    assert page.view.strip.chosen_name == model.linears[1].name
    assert (
        page.view.progress.words.text().startswith("Quantizing") or "block 2 of 30" in page.view.progress.words.text()
    )
    page.cancel()
    await until(lambda: not page.running)


async def test_what_is_drawn_comes_from_the_event(page, model, job, until):
    job(*story(model, modules=1))
    page.open(model)
    page.start()
    await until(lambda: page.run.modules and not page.running)
    page.redraw()
    details = page.view.details.chosen
    assert len(details.plot.curves()["after"][1]) == 120
    assert details.figures["error"].accessibleName().endswith("0.0040 → 0.0010")
    assert details.figures["clipped"].accessibleName() == "clipped: 0.02 %"
    assert details.figures["scale"].accessibleName() == "AWQ scale: 0.6–1.8"
    cell = next(cell for cell in page._cells.all() if cell.name == model.linears[0].name)
    assert cell.state == "done" and "SQNR 30.0 dB" in cell.words


async def test_cancel_is_no_error_and_the_page_can_start_again(page, model, job, told, until, qtbot):
    job(lambda emit: asyncio.sleep(60))
    page.open(model)
    page.start()
    await until(page.view.progress.cancel.isVisible)
    qtbot.mouseClick(page.view.progress.cancel, Qt.MouseButton.LeftButton)
    assert not page.view.progress.cancel.isEnabled() and "Ending" in page.view.progress.words.text()
    await until(page.primary.isEnabled)
    await until(page.view.notes.cancelled.isVisible)
    assert told == [] and not page.view.progress.isVisible() and page.would_lose() is None


async def test_a_failure_says_cause_and_next_step_and_loses_nothing(page, model, job, told, until):
    failed = Failed("There is not enough memory.", "Close other programs, or use fewer calibration tokens.")

    async def fails(emit):
        for event in story(model, modules=2):
            emit(event)
        emit(failed)
        raise WorkbenchError(failed.message, failed.hint)

    job(fails)
    page.open(model)
    page.start()
    await until(page.view.failure.isVisible)
    assert page.view.failure.sentence.text() == "There is not enough memory."
    assert page.view.again.isEnabled() and told == [], "said once, on the page"
    assert len(page.run.modules) == 2 and page.draft.recipe == LAYERED


async def test_another_model_does_not_push_a_run_away(page, model, job, told, until):
    job(lambda emit: asyncio.sleep(60))
    page.open(model)
    page.start()
    page.open(replace(model, name="other"))
    assert page.draft.model.name == "small" and len(told) == 1
    assert "small" in str(page.would_lose())
    page.cancel()
    await until(lambda: not page.running)


# -- afterwards


async def test_a_finished_job_is_shown_again_from_its_folder(page, model, tmp_path):
    result = tmp_path / "result"
    result.mkdir()
    reopened(page, model, tmp_path, *story(model, str(result)))
    assert page.view.result.isVisible() and page.view.result.texts()[1][2] == "0.11"
    assert page.view.strip.chosen_name == model.linears[8].name
    assert sum(cell.state == "done" for cell in page._cells.all()) == 9
    assert "rounded plainly: x" in page.view.notes.fold.summary.full
    assert not page.view.conflicts.isVisible(), "its own output is not in its way"


async def test_a_job_whose_original_is_gone_is_still_shown(page, model, tmp_path, told):
    spec = {"model": str(tmp_path / "gone"), "output": str(tmp_path / "r"), "recipe": recipe.to_dict(LAYERED)}
    folder = jobs.create("quantize", spec)
    events = story(model, str(tmp_path / "r"))
    (folder / "events.jsonl").write_text("".join(encode(event) + "\n" for event in events))
    page.reopen(folder)
    assert len(told) == 1 and len(page._cells.all()) == 9
    assert not page.view.result.serve.isEnabled()


def test_every_text_follows_the_language(page, model):
    page.open(model)
    language.choose("zh_CN")
    page.redraw()
    assert page.primary.text() == "量化"
    assert "第 0 块" in page.view.details.chosen.heading.full


def test_every_control_is_named_and_reachable(page, model):
    from PySide6.QtWidgets import QAbstractButton, QAbstractSpinBox, QComboBox, QLineEdit

    page.open(model)
    for kind in (QAbstractButton, QComboBox, QAbstractSpinBox, QLineEdit):
        for control in page.findChildren(kind):
            if control.isVisible() and not control.objectName().startswith("qt_"):
                assert control.accessibleName() or getattr(control, "text", str)(), control
                assert control.focusPolicy() & Qt.FocusPolicy.TabFocus, control


def test_the_chosen_cell_is_scrolled_into_view(page, model):
    page.resize(1290, 420)
    page.open(model)
    page.show_layer("model.layers.29.mlp.down_proj")
    cell = page.view.strip.rect_of("model.layers.29.mlp.down_proj")
    assert page.view.strip.visibleRegion().contains(cell.center())


async def test_fitting_to_the_original_is_part_of_the_recipe(page, model):
    page.open(model)
    page.choosing.take_recipe(recipe.BEST)
    box = page.view.setup.original
    assert box.isChecked()
    box.click()
    assert page.draft.recipe.targets == "own" and not box.isChecked()
    box.click()
    assert page.draft.recipe.targets == "original" and page.draft.recipe.samples == recipe.BEST.samples
