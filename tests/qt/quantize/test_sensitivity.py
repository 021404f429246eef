"""The sensitivity and the mix of bits on the Quantize page: scanned or kept, drawn, taken and taken back."""

import asyncio
from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QHelpEvent
from PySide6.QtWidgets import QToolTip

from ui import language, theme
from ui.quantize.strip_card import MIX, PLAN, SENSITIVITY
from ui.widgets.error_scale import luminance, width_color
from workbench import allocation, jobs, moments_kept, sensitivities
from workbench.allocation import Target
from workbench.catalog.folder import inspect
from workbench.errors import WorkbenchError
from workbench.events import Advanced, Finished, Stage
from workbench.quant_events import ModuleStarted, SensitivityMeasured
from workbench.recipe import KEEP, LAYERED, PRESETS, Rule, with_group_size

GATE = "model.layers.3.mlp.gate_proj"
WORST = "model.layers.11.mlp.down_proj"
GROUPS = {True: 32, False: 64}  # of attention and MLP


def measured_of(linear):
    group, hurt = GROUPS[linear.in_attention], 100.0 if linear.name == WORST else 0.1 + 0.01 * linear.block
    return SensitivityMeasured(
        linear.name, linear.block, group, not linear.in_attention,
        {f"{bits}/{group}": hurt / 4**bits for bits in (2, 3, 4, 8)},
        {f"{bits}/{group}": 0.5 / 4**bits for bits in (2, 3, 4, 8)},
    )  # fmt: skip


class Scan:
    """Stands in for the worker: tells half of the layers, waits for `go`, and keeps the scan as the real one does."""

    def __init__(self, model):
        self.model, self.specs, self.ended, self.go = model, [], 0, asyncio.Event()
        self.fails: WorkbenchError | None = None

    async def run(self, folder, on_event, _settings, _ask=None):
        self.specs.append(jobs.spec_of(folder))
        found = [measured_of(linear) for linear in self.model.linears]
        try:
            if self.fails:
                raise self.fails
            on_event(Stage("Measuring the sensitivity", len(found)))
            for done, event in enumerate(found[:105], 1):
                on_event(event)
                on_event(Advanced(done))
            await self.go.wait()
            for event in found[105:]:
                on_event(event)
            keep(self.model, found)
            on_event(Finished("sensitivity.json"))
        finally:
            self.ended += 1


def keep(model, found=None, unreached=(), recipe=LAYERED):
    folder = moments_kept.folder_of(model.folder, recipe)
    folder.mkdir(parents=True, exist_ok=True)
    sensitivities.keep(folder, found or [measured_of(linear) for linear in model.linears], unreached)


@pytest.fixture
def scan(model, monkeypatch):
    made = Scan(model)
    monkeypatch.setattr(jobs, "run", made.run)
    return made


@pytest.fixture
async def scanned(page, model, scan, until):
    """The page with a model whose scan is kept, looking at the sensitivity."""
    keep(model)
    page.open(model)
    page.view.left.show_view(SENSITIVITY)
    await until(lambda: page.choosing.scans.missing == 0)
    page.redraw()
    return page


def cell(page, name):
    return page.view.strip._cells[page.view.strip._places[name]]


async def proposed(page, until, bits):
    page.view.left.show_view(MIX)
    page.view.left.target.bits.setValue(bits)
    await until(lambda: page.choosing.mixes.proposal or page.choosing.mixes.error)
    page.redraw()
    return page.choosing.mixes.proposal


async def test_a_scan_shows_how_far_it_is_and_fills_the_strip_as_it_goes(page, model, scan, until):
    page.open(model)
    left = page.view.left
    left.show_view(SENSITIVITY)
    await until(left.scan.isVisible)
    assert not (left.figures.isVisible() or left.legend.isVisible()) and scan.specs == []
    assert cell(page, GATE).db is None and "not measured" in str(cell(page, GATE).words)
    left.scan.scan.click()
    await until(lambda: "105 of 210" in left.scan.words.text())
    assert left.scan.bar.value() == 500 and "left" in left.scan.words.text()
    assert cell(page, GATE).state == "done" and cell(page, "model.layers.29.mlp.down_proj").db is None
    assert [str(status.sentence) for status in page.statuses()] == ["Scanning the sensitivity"]
    assert page.statuses()[0].share == 0.5
    scan.go.set()
    await until(lambda: not left.scan.isVisible())
    assert left.figures.isVisible() and left.legend.isVisible() and page.statuses() == [] and jobs.listing() == []
    assert scan.specs[0]["model"] == str(model.folder)
    assert all(cell(page, linear.name).db is not None for linear in model.linears)


async def test_cancel_ends_the_worker_and_a_failure_is_said_where_the_scan_is_offered(page, model, scan, until, told):
    page.open(model)
    left = page.view.left
    left.show_view(SENSITIVITY)
    await until(left.scan.isVisible)
    left.scan.scan.click()
    await until(lambda: "105 of 210" in left.scan.words.text())
    left.scan.cancel.click()
    await until(lambda: scan.ended == 1 and left.scan.scan.isVisible())
    await until(lambda: cell(page, GATE).db is None)  # nothing was kept
    assert jobs.listing() == [] and told == []
    scan.fails = WorkbenchError("There is not enough memory.", "Close other programs.")
    left.scan.scan.click()
    await until(lambda: left.scan.words.text() == "There is not enough memory. Close other programs.")
    assert left.scan.scan.isVisible() and told == []


async def test_a_kept_scan_needs_no_worker_and_follows_the_groups(scanned, scan, model, until):
    page, left = scanned, scanned.view.left
    assert scan.specs == [] and left.figures.isVisible() and not left.scan.isVisible()
    page.choosing.take_choice(GATE, replace(LAYERED.mlp, bits=8, group_size=64), False)
    await asyncio.sleep(0.1)
    assert page.choosing.scans.missing == 0, "the scan is of all widths at the same groups"
    page.choosing.take_recipe(with_group_size(LAYERED, 32))
    await until(lambda: left.scan.isVisible())
    page.redraw()
    assert cell(page, GATE).db is None, "at other groups nothing was measured"
    assert cell(page, "model.layers.3.self_attn.q_proj").db is not None
    assert left.scan.words.text() == "90 layers are not measured at the recipe's groups."
    page.choosing.take_recipe(LAYERED)
    await until(lambda: not left.scan.isVisible())
    assert cell(page, GATE).db is not None and scan.specs == []


async def test_the_strip_reads_the_damage_or_the_error_at_each_width(scanned, qtbot):
    page, left = scanned, scanned.view.left
    damage = (0.1 + 0.03) / 4**4
    assert cell(page, GATE).figure == f"{1000 * damage:.1f}" and "mnat" in left.legend._left.text()
    assert left.figures.cells[4][1].text() != left.figures.cells[2][1].text()
    page.show_layer(GATE)
    page.redraw()
    assert left.figures.name.text() == "3 · mlp.gate_proj"
    assert left.figures.cells[4][0].text() == "27.1", "10 log10(4^4 / 0.5) dB"
    before = cell(page, GATE).db
    qtbot.mouseClick(left.choice._widths.button(8), Qt.MouseButton.LeftButton)
    assert cell(page, GATE).db == pytest.approx(before + 24.08, abs=0.01)
    left.choice._combo.setCurrentIndex(1)
    left.choice._combo.activated.emit(1)
    assert cell(page, GATE).figure == "" and "dB" in left.legend._left.text()
    language.choose("zh_CN")
    words = str(cell(page, GATE).words)
    assert "dB" in words and "位" in words and "好" in left.legend._left.text()


async def test_layers_that_lose_nothing_or_everything_do_not_break_the_scale(page, model, scan, until):
    """H45: a layer of zeros, one that was never reached, and one whose damage is beyond all others."""
    found = {linear.name: measured_of(linear) for linear in model.linears}
    none, all_ = found[GATE], found[WORST]
    found[GATE] = replace(none, damage=dict.fromkeys(none.damage, 0.0), output_errors={})
    found[WORST] = replace(all_, damage=dict.fromkeys(all_.damage, 1e9))
    keep(model, list(found.values())[:-1], [model.linears[-1].name])
    page.open(model)
    page.view.left.show_view(SENSITIVITY)
    await until(lambda: page.choosing.scans.missing == 0)
    page.redraw()
    assert (cell(page, GATE).state, cell(page, GATE).label) == ("planned", "0")
    assert "4 bit: – dB, 0 mnat" in str(cell(page, GATE).words).replace("0.0 mnat", "0 mnat")
    assert "not measured" in str(cell(page, model.linears[-1].name).words)
    assert page.view.strip.scale.low_db == -90.0 and not page.grab().isNull()


async def test_pointer_and_keys_tell_a_layers_figures(scanned, qtbot, monkeypatch):
    page, strip = scanned, scanned.view.strip
    told = []
    monkeypatch.setattr(QToolTip, "showText", lambda _where, text, *_: told.append(text))
    point = strip.rect_of(WORST).center()
    strip.event(QHelpEvent(QHelpEvent.Type.ToolTip, point, QPoint(0, 0)))
    assert told[0].startswith("block 11 · mlp.down_proj") and "4 bit: 27.1 dB, 391 mnat" in told[0]
    page.show_layer(GATE)
    qtbot.keyClick(strip, Qt.Key.Key_Down)
    assert "block 4 · mlp.gate_proj" in strip.accessibleDescription() and "mnat" in strip.accessibleDescription()
    assert page.view.left.figures.name.text() == "4 · mlp.gate_proj"


async def test_bits_and_size_are_two_units_of_one_target(scanned, model, until):
    page, target = scanned, scanned.view.left.target
    made = await proposed(page, until, 5.0)
    page.redraw()
    assert made.bits <= 5.0 and target.bits.value() == 5.0
    assert target.size.value() == pytest.approx(made.plan.predicted_bytes / 1e9, abs=0.001)
    assert f"{made.bits:.2f}" in target.outcome.text() and "nats" in target.outcome.text()
    target.size.setValue(0.130)
    await until(lambda: page.choosing.mixes.proposal and page.choosing.mixes.proposal is not made)
    page.redraw()
    made = page.choosing.mixes.proposal
    assert made.plan.predicted_bytes <= 130_000_000 and target.size.value() == 0.130
    assert target.bits.value() == pytest.approx(made.bits, abs=0.006)
    kept = sensitivities.kept(model, LAYERED).found.values()
    assert made.recipe == allocation.propose(model, LAYERED, kept, Target(size=130_000_000)).recipe, (
        "as lathe plan does"
    )


async def test_the_mix_stands_on_the_strip_before_it_is_used(scanned, until):
    page, left = scanned, scanned.view.left
    made = await proposed(page, until, 5.0)
    widths = {entry.linear.name: allocation.bits_of(entry.choice) for entry in made.plan.linears}
    assert {name: cell(page, name).bits for name in widths} == widths and widths[WORST] == 8
    assert "in the recipe: GPTQ · 4 bit" in str(cell(page, WORST).words)
    assert left.counts.accessibleName() == " · ".join(
        f"{bits} bit × {count}" for bits, count in sorted(allocation.counts(made.plan).items())
    )
    assert page.draft.recipe == LAYERED and left.target.use.isVisible()
    left.target.discard.click()
    page.redraw()
    assert cell(page, WORST).bits == 4 and not left.target.use.isVisible() and page.draft.recipe == LAYERED
    assert left.target.bits.value() == pytest.approx(allocation.average_bits(page.draft.plan), abs=0.006)


async def test_a_used_mix_is_rules_that_can_be_changed_and_taken_out(scanned, model, until):
    page, left = scanned, scanned.view.left
    made = await proposed(page, until, 5.0)
    left.target.use.click()
    page.redraw()
    assert page.draft.recipe == made.recipe and page.draft.recipe.rules
    assert page.view.recipes.choice.currentText() == "layered-5bit, not saved"
    assert page.draft.plan.predicted_bytes == made.plan.predicted_bytes
    assert left.target.undo.isVisible() and not left.target.use.isVisible()
    left.target.undo.click()
    page.redraw()
    assert page.draft.recipe == LAYERED and not left.target.undo.isVisible()
    await proposed(page, until, 5.0)
    left.target.use.click()
    page.choosing.take_choice(WORST, KEEP, False)
    assert page.draft.recipe.rules != made.recipe.rules and Rule(WORST, KEEP) in page.draft.recipe.rules
    page.redraw()
    left.target.undo.click()
    page.redraw()
    assert page.draft.recipe == replace(LAYERED, rules=(Rule(WORST, KEEP),)), "what was edited since stays"
    assert not left.target.undo.isVisible()


async def test_another_target_starts_below_the_mix_in_the_recipe(scanned, until):
    page, left = scanned, scanned.view.left
    await proposed(page, until, 9.0)
    left.target.use.click()
    page.redraw()
    assert page.choosing.scans.missing == 0, "the mix itself needs no scan of its own"
    again = await proposed(page, until, 5.0)
    assert again.base == LAYERED and again.bits <= 5.0


async def test_what_cannot_be_reached_is_a_sentence_with_the_nearest(scanned, until):
    page, target = scanned, scanned.view.left.target
    assert await proposed(page, until, 3.5) is None
    assert "3.5 bits on average cannot be reached: the smallest mix takes 4." in target.outcome.text()
    assert "allow 2 and 3 bits" in target.outcome.text()
    assert not target.use.isEnabled() and target.discard.isVisible()
    target.low.click()
    await until(lambda: page.choosing.mixes.proposal)
    page.redraw()
    made = page.choosing.mixes.proposal
    assert made.bits <= 3.5 and {2, 3} & set(allocation.counts(made.plan)) and target.use.isEnabled()


async def test_layers_without_a_sensitivity_are_said(page, model, scan, until):
    keep(model, [measured_of(linear) for linear in model.linears if linear.name != WORST], [WORST])
    page.open(model)
    page.view.left.show_view(MIX)
    await until(lambda: page.choosing.scans.missing == 0)
    made = await proposed(page, until, 5.0)
    assert made.unmeasured == (WORST,)
    assert "1 layer has no sensitivity and keeps the recipe's choice." in page.view.left.target.outcome.text()


async def test_another_recipe_makes_the_proposal_way_and_another_model_all_of_it(scanned, until, tmp_path):
    page, left = scanned, scanned.view.left
    await proposed(page, until, 5.0)
    page.choosing.take_recipe(PRESETS["awq"])
    assert page.choosing.mixes.proposal is None and page.choosing.mixes.target is None
    page.open(inspect(page.draft.model.folder))
    await until(lambda: page.choosing.scans.missing == 0)
    assert not page.choosing.mixes.inside and left.view == MIX


async def test_a_run_shows_the_plan_and_locks_the_target(scanned, until, monkeypatch):
    page, left = scanned, scanned.view.left
    left.show_view(MIX)

    async def run(_folder, on_event, _settings, _ask=None):
        on_event(ModuleStarted(GATE, 3))
        await asyncio.sleep(60)

    monkeypatch.setattr(jobs, "run", run)
    page.start()
    await until(lambda: page.job.going)
    page.redraw()
    assert left.view == PLAN
    left.show_view(MIX)
    await until(lambda: page.choosing.scans.missing == 0)
    page.redraw()
    assert not left.target.bits.isEnabled() and not left.target.low.isEnabled()


async def test_a_real_scan_of_a_tiny_model_feeds_the_mix(page, write_tiny, until):
    """The real worker, its real events, and a plan from them."""
    model = inspect(write_tiny(positions=256))
    page.open(model)
    page.choosing.take_recipe(replace(with_group_size(LAYERED, 32), samples=4, length=64))
    left = page.view.left
    left.show_view(SENSITIVITY)
    left.scan.scan.click()
    await until(lambda: page.choosing.scans.missing == 0 or page.choosing.scans.error, timeout_s=90)
    assert page.choosing.scans.error is None
    page.redraw()
    assert {cell(page, linear.name).state for linear in model.linears} == {"done"}
    made = await proposed(page, until, 6.0)
    assert made.bits <= 6.0 and made.damage < made.base_damage and not made.plan.conflicts
    left.target.use.click()
    assert page.draft.recipe == made.recipe


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_fewer_bits_always_stand_out_more(qapp, scheme):
    theme.apply(qapp, scheme)
    light = [luminance(width_color(bits)) for bits in (8, 4, 3, 2)]
    kept = width_color(16)
    theme.apply(qapp, "dark")
    assert light == sorted(light, reverse=scheme == "light") and len(set(light)) == 4
    assert kept.blue() > kept.red(), "what stays has the original's hue"
