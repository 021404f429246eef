"""Choices tried on the Quantize page before a run: asked of a worker that stays, kept or discarded."""

import asyncio
import json

import pytest

from workbench import jobs, moments_kept, whatif
from workbench.errors import WorkbenchError
from workbench.events import Advanced, Finished, Stage
from workbench.quant_events import MomentsKept, WhatIf, WhatIfRefused
from workbench.recipe import LAYERED, Choice

GATE = "model.layers.3.mlp.gate_proj"


class Worker:
    """Stands in for the processes: `asked` are the questions, `jobs` the kinds that were started and not ended."""

    def __init__(self):
        self.asked: list[dict] = []
        self.started: list[str] = []
        self.ended: list[str] = []
        self.error: float | None = 1e-3
        self.refuses = False
        self.fails: WorkbenchError | None = None
        self.gathered = asyncio.Event()

    async def run(self, folder, on_event, _settings, _ask=None):
        kind = json.loads((folder / "job.json").read_text())["kind"]
        self.started.append(kind)
        try:
            if self.fails:
                raise self.fails
            await (self._answer(folder, on_event) if kind == "whatif" else self._gather(on_event))
        finally:
            self.ended.append(kind)

    async def _answer(self, folder, on_event):
        at = 0
        while True:
            file = folder / whatif.REQUESTS
            lines = file.read_text().splitlines() if file.exists() else []
            for line in lines[at:]:
                self.asked.append(json.loads(line))
                on_event(self.reply(self.asked[-1]))
            at = len(lines)
            await asyncio.sleep(0.01)

    async def _gather(self, on_event):
        on_event(Stage("Gathering calibration statistics", 30))
        on_event(Advanced(3))
        await self.gathered.wait()
        self.error = 1e-3
        on_event(MomentsKept(3, 4096))
        on_event(Finished(""))

    def reply(self, request):
        choice, name = Choice(**request["choice"]), request["module"]
        if self.refuses:
            values = {"size": choice.group_size, "width": 576, "name": name}
            return WhatIfRefused(
                request["id"], name, "Groups of {size} do not divide the {width} inputs of {name}.",
                "Choose another group size.", values,
            )  # fmt: skip
        return WhatIf(
            id=request["id"], module=name, method=choice.method, bits=choice.bits, group_size=choice.group_size,
            symmetric=choice.symmetric, shape=(1536, 576), bytes=123_000, low=-0.5, high=0.5, before=(1, 8, 1),
            after=(0, 9, 1), levels=tuple(range(2**choice.bits)), not_finite=0, weight_error=1e-3,
            output_error=self.error, plain_output_error=self.error and 4 * self.error, kurtosis=4.0, outliers=0.01,
            clipped=0.001, rows=1536, final=True, compensated=True, estimated=False, seconds=0.1,
        )  # fmt: skip


@pytest.fixture
def worker(monkeypatch):
    made = Worker()
    monkeypatch.setattr(jobs, "run", made.run)
    monkeypatch.setattr(moments_kept, "gathered", lambda model, recipe: True)
    return made


def shown(page, name=GATE):
    page.show_layer(name)
    page.redraw()
    return page.view.details.chosen


def pick(box, value):
    box.setCurrentIndex(box.findData(value))
    box.activated.emit(box.currentIndex())


async def test_a_tried_choice_is_shown_and_not_written(page, model, worker, until):
    page.open(model)
    details = shown(page)
    size, before = details.figures["size"].accessibleName(), page.view.summary.text()
    pick(details.form.bits, 8)
    await until(lambda: "0.0040 → 0.0010" in details.figures["error"].accessibleName())
    assert len(details.plot.curves()["levels"][0]) == 2 * 256, "the grid of the tried bits"
    assert "123 kB" in details.figures["size"].accessibleName() != size
    assert "30.0 dB" in details.figures["sqnr"].accessibleName()
    assert "tried" in details.heading.full and "8 bit" in details.heading.full
    assert "(+885 kB)" in details.trial.outcome.text() and details.trial.isVisible()
    assert not details.trial.state.isVisible()
    assert page.draft.recipe == LAYERED and page.view.summary.text() == before
    assert worker.started == ["whatif"], "the statistics are there"
    assert worker.asked[0]["module"] == GATE and worker.asked[0]["choice"]["bits"] == 8


async def test_keep_writes_the_rule_and_the_prediction_stays(page, model, worker, until):
    page.open(model)
    details = shown(page)
    pick(details.form.bits, 8)
    await until(lambda: page.choosing.tries.answer(GATE, page.choosing.tries.of(GATE).choice))
    page.redraw()
    details.trial.keep.click()
    page.redraw()
    changed = {entry.linear.name for entry in page.draft.plan.linears if entry.choice.bits == 8}
    assert changed == {GATE, GATE.replace("gate", "up")}
    assert not details.trial.isVisible() and details.form.bits.currentData() == 8
    assert "0.0040 → 0.0010" in details.figures["error"].accessibleName()
    page.choose("model.layers.4.mlp.gate_proj")
    await until(lambda: worker.asked[-1]["module"] == "model.layers.4.mlp.gate_proj")
    assert worker.asked[-1]["choice"]["bits"] == 4, "a worker that is there tells of the plan's choice, too"


async def test_discard_and_going_back_by_hand_leave_the_recipe(page, model, worker, until):
    page.open(model)
    details = shown(page)
    pick(details.form.bits, 8)
    page.redraw()
    details.trial.discard.click()
    page.redraw()
    assert details.form.bits.currentData() == 4 and not details.trial.isVisible()
    pick(details.form.symmetric, False)
    page.redraw()
    assert details.trial.isVisible()
    pick(details.form.symmetric, True)
    page.redraw()
    assert not details.trial.isVisible() and page.draft.recipe == LAYERED


async def test_a_try_stays_with_its_layer(page, model, worker):
    page.open(model)
    pick(shown(page).form.bits, 8)
    details = shown(page, "model.layers.9.self_attn.q_proj")
    assert details.form.bits.currentData() == 4 and not details.trial.isVisible()
    assert shown(page).form.bits.currentData() == 8 and details.trial.isVisible()


async def test_damping_refinement_clip_and_scale_can_be_tried(page, model, worker, until):
    page.open(model)
    form = shown(page).form
    assert not form.scale.isEnabled() and form.damping.isEnabled(), "GPTQ has damping and no scale"
    form.refine.click()
    await until(lambda: worker.asked and worker.asked[-1]["choice"]["refine"] is True)
    form.clip.click()
    await until(lambda: worker.asked and worker.asked[-1]["choice"]["clip"] is False)
    form.damping.setValue(5)
    page.redraw()
    await until(lambda: worker.asked and worker.asked[-1]["choice"]["damping"] == 0.05)
    form = shown(page, "model.layers.3.self_attn.q_proj").form
    assert form.scale.isEnabled() and not form.damping.isEnabled() and not form.refine.isEnabled()
    form.scale.click()
    await until(lambda: worker.asked[-1]["module"].endswith("q_proj"))
    assert worker.asked[-1]["choice"]["scale"] is False and worker.asked[-1]["choice"]["damping"] == 0.01


async def test_the_choice_can_be_for_all_blocks(page, model, worker):
    page.open(model)
    details = shown(page)
    pick(details.form.scope, True)
    pick(details.form.bits, 8)
    page.redraw()
    details.trial.keep.click()
    changed = [entry for entry in page.draft.plan.linears if entry.choice.bits == 8]
    assert len(changed) == 60 and {entry.linear.role for entry in changed} == {"gate", "up"}


async def test_statistics_are_gathered_first_and_the_error_follows(page, model, worker, until, monkeypatch):
    monkeypatch.setattr(moments_kept, "gathered", lambda model, recipe: False)
    worker.error = None
    page.open(model)
    details = shown(page)
    assert worker.started == [], "nothing runs before something is tried"
    pick(details.form.bits, 8)
    await until(lambda: "block 3 of 30" in details.trial.state.text())
    assert "– → –" in details.figures["error"].accessibleName() and len(details.plot.curves()["levels"][0])
    assert page.statuses()[0].share == 0.1
    worker.gathered.set()
    await until(lambda: "0.0040 → 0.0010" in details.figures["error"].accessibleName())
    await until(lambda: not details.trial.state.isVisible())
    assert sorted(worker.started) == ["statistics", "whatif"] and page.statuses() == []


async def test_a_refusal_and_a_failure_are_said(page, model, worker, until, told):
    worker.refuses = True
    page.open(model)
    details = shown(page)
    pick(details.form.group, 128)
    await until(lambda: "do not divide" in details.trial.state.text())
    details.trial.discard.click()
    worker.fails = WorkbenchError("There is no torch.", "Install it.")
    page.choosing.tries.drop()
    pick(shown(page).form.bits, 8)
    await until(lambda: details.trial.state.text() == "There is no torch. Install it.")
    assert details.trial.keep.isEnabled() and told == []


async def test_a_run_another_model_and_the_end_take_the_worker_away(page, model, worker, until, tasks):
    page.open(model)
    pick(shown(page).form.bits, 8)
    await until(lambda: worker.asked)
    page.open(model)
    await until(lambda: worker.ended == ["whatif"])
    assert page.choosing.tries.of(GATE) is None
    await until(lambda: shown(page).form.bits.currentData() == 4)  # drawn with the next frame
    pick(shown(page).form.bits, 8)
    await until(lambda: len(worker.asked) == 2)
    await tasks.stop_all()
    assert worker.ended == ["whatif", "whatif"]
    assert [job.kind for job in jobs.listing()] == [], "nothing stays on disk"
