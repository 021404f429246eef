"""The client of the what-if worker, with a real child in the worker's place."""

import asyncio
from pathlib import Path

import programs
import pytest

from workbench import jobs, whatif
from workbench.choice import Choice
from workbench.cli_whatif import bytes_of
from workbench.errors import WorkbenchError
from workbench.quant_events import WhatIf, WhatIfRefused
from workbench.recipe import PRESETS
from workbench.settings import Settings

# Answers every question once it has all of them, so that the order is the test's and not the clock's.
CHILD = """import json, sys, time
sys.path.insert(0, {root!r})
from pathlib import Path
from workbench.events import Finished, encode
from workbench.quant_events import WhatIf, WhatIfRefused
folder = Path(sys.argv[3])
lines = []
while True:
    text = (folder / "requests.jsonl").read_text() if (folder / "requests.jsonl").exists() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    if lines and lines[-1].get("close"):
        break
    time.sleep(0.02)
for line in lines[:-1]:
    choice = line["choice"]
    if choice["method"] == "keep":
        print(encode(WhatIfRefused(line["id"], line["module"], "No {{name}}.", "", {{"name": "x"}})), flush=True)
        continue
    for final in (False, True):
        print(encode(WhatIf(line["id"], line["module"], choice["method"], choice["bits"], choice["group_size"],
            choice["symmetric"], (2, 2), 8, -1.0, 1.0, (4,), (4,), (0.0,), 0, 0.1, 0.2, 0.3, 0.0, 0.0, 0.0, 2, final,
            final, False, 0.1)), flush=True)
print(encode(Finished(str(folder))), flush=True)
"""


@pytest.fixture
def trials(tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))
    program = programs.write(tmp_path / "python", CHILD.format(root=str(Path(whatif.__file__).parents[1])))
    seen = []
    made = whatif.Trials(tmp_path, PRESETS["layered"], Settings(engine_python=str(program)), seen.append)
    made.seen = seen  # what was handed on
    return made


async def test_only_the_newest_question_about_a_layer_counts(trials):
    first = trials.ask("a", Choice(bits=3))
    other = trials.ask("b", Choice(bits=8))
    last = trials.ask("a", Choice(bits=4))
    assert first < other < last and trials.waiting("a") and trials.waiting("b") and not trials.waiting("c")
    trials.close()
    await trials.run()
    assert trials.answers["a"].bits == 4 and trials.answers["a"].final
    assert trials.answers["b"].bits == 8
    assert not trials.waiting("a") and not trials.waiting("b")
    assert {event.id for event in trials.seen if isinstance(event, WhatIf)} == {other, last}


async def test_a_refusal_takes_the_place_of_the_answer(trials):
    trials.ask("a", Choice(method="keep"))
    trials.close()
    await trials.run()
    assert isinstance(trials.refused["a"], WhatIfRefused) and not trials.waiting("a") and not trials.answers


async def test_nothing_of_it_stays_on_disk_however_it_ends(trials):
    trials.ask("a", Choice())
    trials.close()
    await trials.run()
    assert jobs.listing() == []
    trials.ask("a", Choice())  # it has ended: no folder comes back
    assert jobs.listing() == []


async def test_cancel_ends_the_worker_at_once(trials):
    task = asyncio.create_task(trials.run())
    await asyncio.sleep(0.5)
    loop = asyncio.get_running_loop()
    before_s = loop.time()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert loop.time() - before_s < 2
    assert jobs.listing() == []


@pytest.mark.parametrize(
    ("text", "size"), [("8GB", 8 * 10**9), ("1.5 GiB", 3 * 2**29), ("500mb", 5 * 10**8), ("7", 7), ("2g", 2 * 10**9)]
)
def test_sizes_as_people_write_them(text, size):
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["", "GB", "8 pigs", "-3GB"])
def test_what_is_no_size_is_said(text):
    with pytest.raises(WorkbenchError, match="is not a size"):
        bytes_of(text)
