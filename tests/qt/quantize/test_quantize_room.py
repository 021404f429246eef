"""The Quantize page with little room, and with much to show at once."""

import asyncio
import time
from dataclasses import replace
from itertools import pairwise

from PySide6.QtCore import QPoint, QTimer
from PySide6.QtWidgets import QComboBox, QDoubleSpinBox
from quantize_parts import done

from workbench.events import Advanced, Stage, encode
from workbench.quant_events import ModuleStarted
from workbench.recipe import Choice

GATE = "model.layers.3.mlp.gate_proj"


async def test_two_cards_in_a_try_squeeze_no_control(page, model, job, until):
    """A laptop's 1366 × 768 with a banner above and one below: the cards scroll, Keep stays."""
    job(lambda emit: asyncio.sleep(60))
    page.resize(1242, 500)
    page.open(model)
    page.choose(GATE)
    page.view.strip._set_pin(page.view.strip._places["model.layers.0.self_attn.q_proj"])
    for name in (GATE, "model.layers.0.self_attn.q_proj"):
        page.choosing.try_choice(name, Choice(method="awq", bits=3), True)
    page.redraw()
    await asyncio.sleep(0.1)
    for card in (page.view.details.chosen, page.view.details.pinned):
        for control in (*card.form.findChildren(QComboBox), *card.form.findChildren(QDoubleSpinBox)):
            assert control.height() >= control.minimumSizeHint().height(), control.accessibleName()
            right = control.mapTo(card, QPoint(control.width(), 0)).x()
            assert right <= card.width(), f"{control.accessibleName()} is cut at the side"
        assert card.trial.keep.visibleRegion().boundingRect().height() == card.trial.keep.height()


async def test_tensors_of_fifty_million_values_do_not_slow_the_window(page, model, job, until):
    """What the window gets of a tensor is as long for a large one; a layer each 5 ms leaves it responsive."""
    bell = tuple(50_331_648 // 120 for _ in range(120))
    large = {
        "shape": (8192, 6144), "before": bell, "after": bell[::-1], "bits": 8,
        "levels": tuple(step / 256 for step in range(-128, 128)),
    }  # fmt: skip
    assert len(encode(replace(done(GATE, 3), **large))) < 10_000
    ticks: list[float] = []

    async def run(emit):
        emit(Stage("Quantizing", len(model.linears)))
        for number, linear in enumerate(model.linears, 1):
            emit(ModuleStarted(linear.name, linear.block))
            emit(replace(done(linear.name, linear.block), **large))
            emit(Advanced(number))
            await asyncio.sleep(0.005)

    job(run)
    page.open(model)
    page.show()
    ticker = QTimer(interval=5)
    ticker.timeout.connect(lambda: ticks.append(time.monotonic()))
    ticker.start()
    page.start()
    await until(lambda: len(page.run.modules) == len(model.linears), 30)
    ticker.stop()
    gaps = sorted(after - before for before, after in pairwise(ticks))
    assert gaps[int(len(gaps) * 0.95)] < 0.1 and gaps[-1] < 0.5
