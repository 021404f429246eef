"""A change of mind while a quantization goes on: wanted for the blocks to come, handed over, taken."""

import asyncio
from dataclasses import replace

import pytest
from quantize_parts import BLOCKS, done, reopened, story

from ui import language
from workbench import amend, jobs, recipe
from workbench.events import Note, Stage, encode
from workbench.quant_events import Amended, ModuleStarted
from workbench.recipe import LAYERED, PRESETS, with_group_size, with_rules


class Worker:
    """Stands in for the process: `tell` writes an event into the job and reports it."""

    def __init__(self):
        self.folder, self._on_event = None, None

    async def run(self, folder, on_event, _settings, _ask=None):
        self.folder, self._on_event = folder, on_event
        await asyncio.sleep(60)

    def tell(self, *events):
        with (self.folder / "events.jsonl").open("a") as file:
            for event in events:
                print(encode(event), file=file)
                self._on_event(event)


@pytest.fixture
def worker(monkeypatch):
    made = Worker()
    monkeypatch.setattr(jobs, "run", made.run)
    return made


@pytest.fixture
async def going(page, model, worker, until):
    """A run whose blocks 0 to 4 have been begun."""
    page.open(model)
    page.start()
    await until(lambda: worker.folder)
    worker.tell(Stage("Quantizing", 210))
    for block in range(5):
        worker.tell(ModuleStarted(f"model.layers.{block}.self_attn.q_proj", block))
        worker.tell(done(f"model.layers.{block}.self_attn.q_proj", block))
    page.choose("model.layers.9.mlp.gate_proj")
    page.redraw()
    yield worker
    page.cancel()
    await until(lambda: not page.running)


def pick(box, value):
    box.setCurrentIndex(box.findData(value))
    box.activated.emit(box.currentIndex())


def bits(plan, block, role="gate"):
    return next(p.choice.bits for p in plan.linears if p.linear.block == block and p.linear.role == role)


async def test_a_block_to_come_can_be_changed_and_one_begun_cannot(page, going):
    form = page.view.details.chosen.form
    assert form.isVisible() and not page.view.amend.isVisible()
    page.choose("model.layers.4.mlp.gate_proj")
    page.redraw()
    assert not form.isVisible(), "its block has been begun"


async def test_the_change_is_wanted_first_and_applied_by_the_button(page, going, until):
    form, bar = page.view.details.chosen.form, page.view.amend
    pick(form.bits, 8)
    page.redraw()
    assert bar.isVisible() and bar.apply.text() == "Apply from block 5"
    assert bar.words.text().startswith("2 layers not begun would change"), "gate and up load as one"
    assert page.draft.recipe == LAYERED and not list(amend.read(going.folder))
    changing = [cell for cell in page._cells.all() if cell.state == "changing"]
    assert [cell.label for cell in changing] == ["GPTQ 8"] * 2 and "would change" in str(changing[0].words)
    bar.apply.click()
    await until(lambda: bar.words.text() == "The change waits for block 5.")
    (line,) = amend.read(going.folder)
    assert line.from_block == 5 and bits(amend.current(going.folder), 9) == 8
    assert not bar.apply.isVisible() and any(cell.state == "changing" for cell in page._cells.all())


async def test_what_the_job_took_is_the_plan_from_then_on(page, going, until):
    pick(page.view.details.chosen.form.bits, 8)
    page.view.amend.apply.click()
    await until(lambda: page.choosing.amending.waits == 5)
    taken = amend.current(going.folder).recipe
    going.tell(
        Amended(5, recipe.to_dict(taken)), Note("From block {block} on the changed recipe is used.", {"block": 5})
    )
    assert not page.view.amend.isVisible() and bits(page.draft.plan, 9) == 8 and bits(page.draft.plan, 8) == 4
    assert page.draft.recipe == taken and not any(cell.state == "changing" for cell in page._cells.all())
    page.redraw()
    assert "From block 5 on" in page.view.notes.fold.summary.full
    assert page.view.strip.changes == (5,)


async def test_a_second_change_takes_the_first_along(page, going, until):
    """The last change is what the job goes by: it must hold what was handed over just before."""
    pick(page.view.details.chosen.form.bits, 8)
    page.view.amend.apply.click()
    await until(lambda: page.choosing.amending.waits == 5)
    page.choose("model.layers.9.mlp.down_proj")
    page.redraw()
    pick(page.view.details.chosen.form.bits, 8)
    first = next(amend.read(going.folder)).recipe
    taken = amend.combined(page.draft.plan, first, 5).recipe
    going.tell(Amended(5, recipe.to_dict(taken)))  # the job was quicker than the second thought
    assert page.view.amend.words.text().startswith("1 layer not begun would change")
    page.view.amend.apply.click()
    await until(lambda: page.choosing.amending.waits == 5)
    plan = amend.current(going.folder)
    assert bits(plan, 9) == bits(plan, 9, "down") == 8 and bits(plan, 8) == 4


async def test_all_blocks_means_those_to_come(page, going, until):
    form, bar = page.view.details.chosen.form, page.view.amend
    pick(form.scope, True)
    pick(form.bits, 8)
    assert bar.words.text().startswith(f"{2 * (BLOCKS - 5)} layers")
    going.tell(ModuleStarted("model.layers.5.self_attn.q_proj", 5))
    assert bar.words.text().startswith(f"{2 * (BLOCKS - 6)} layers") and bar.apply.text() == "Apply from block 6"
    bar.apply.click()
    await until(lambda: page.choosing.amending.waits == 6)
    plan = amend.current(going.folder)
    assert bits(plan, 5) == 4 and bits(plan, 6) == 8


async def test_a_recipe_and_patterns_can_be_wanted_and_keep_the_calibration(page, going):
    page.choosing.take_recipe(replace(PRESETS["int8"], samples=7))
    assert page.choosing.amending.wanted.recipe.samples == LAYERED.samples
    assert page.view.recipes.isEnabled() and "8" in page.view.summary.text()
    page.choosing.take_recipe(with_rules(LAYERED, ("*.o_proj",), replace(LAYERED.attention, bits=8, symmetric=True)))
    assert page.view.amend.words.text().startswith(f"{BLOCKS - 5} layers")


async def test_a_conflict_is_told_in_the_sentences_of_a_plan(page, going):
    page.choosing.take_recipe(with_group_size(LAYERED, 128))
    conflicts = page.view.conflicts
    assert "linear layers" in conflicts.banners[0].sentence.text() and not page.view.amend.apply.isEnabled()
    page.view.amend.apply.click()
    assert not list(amend.read(going.folder))
    next(fix for fix in conflicts.fixes if fix.text() == "Use 64 where needed, 128 elsewhere").click()
    assert page.view.amend.apply.isEnabled() and not conflicts.isVisible()


async def test_discarding_leaves_the_run_as_it_is(page, going):
    pick(page.view.details.chosen.form.bits, 8)
    page.view.amend.discard.click()
    page.redraw()
    assert not page.view.amend.isVisible() and page.view.details.chosen.form.bits.currentData() == 4


async def test_a_change_that_comes_too_late_says_so(page, going):
    pick(page.view.details.chosen.form.bits, 8)
    going.tell(ModuleStarted("model.layers.9.self_attn.q_proj", 9))
    assert "all been begun" in page.view.amend.words.text() and not page.view.amend.apply.isEnabled()


async def test_a_job_that_cannot_take_it_says_why(page, going, until, monkeypatch):
    pick(page.view.details.chosen.form.bits, 8)
    monkeypatch.setattr(jobs, "listing", list)
    page.view.amend.apply.click()
    await until(lambda: "The job has ended" in page.view.amend.words.text())
    language.choose("zh_CN")
    assert "5" in page.view.amend.apply.text() and "The job" not in page.view.amend.words.text()


async def test_a_change_not_taken_is_told_by_the_notes_and_waits_no_more(page, going, until):
    pick(page.view.details.chosen.form.bits, 8)
    page.view.amend.apply.click()
    await until(lambda: page.choosing.amending.waits == 5)
    going.tell(Note("A change of the recipe was not taken: {reason}", {"reason": "x"}, "warning"))
    going.tell(ModuleStarted("model.layers.5.self_attn.q_proj", 5))
    assert not page.view.amend.isVisible()


async def test_the_end_of_the_run_ends_what_was_wanted(page, going, until):
    pick(page.view.details.chosen.form.bits, 8)
    page.cancel()
    await until(lambda: not page.running)
    assert page.choosing.shown is page.draft and not page.view.amend.isVisible() and bits(page.draft.plan, 9) == 4


async def test_a_changed_job_is_shown_again_as_it_became(page, model, tmp_path):
    changed = with_rules(LAYERED, ("model.layers.9.mlp.gate_proj", "model.layers.9.mlp.up_proj"), recipe.Choice(bits=8))
    (tmp_path / "result").mkdir()
    events = story(model, str(tmp_path / "result"))
    events.insert(5, Amended(7, recipe.to_dict(changed)))
    reopened(page, model, tmp_path, *events)
    assert page.view.strip.changes == (7,) and bits(page.draft.plan, 9) == 8
    page.show_layer("model.layers.9.mlp.gate_proj")
    page.redraw()
    assert "8 bit" in page.view.details.chosen.heading.full
    assert "from block 7" in page.view.left.changed.text()
