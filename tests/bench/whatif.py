"""How soon a what-if answers for a layer of 4096 × 4096: `python tests/bench/whatif.py [SIZE]`, on an idle machine.

Through the same loop as the resident worker, from the line in its file to the answer: wall and CPU seconds of the
first question about a layer, which also loads it, of each choice that a click may then change, and of the whole
answers. Ends with status 1 where a first answer takes longer than a second.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))
from large_layer import ATTENTION, MLP, write_layer

from workbench import whatif
from workbench.events import Event
from workbench.quant_events import WhatIf
from workbench.quantization import resident
from workbench.recipe import PRESETS, Choice

GOAL_S = 1.0
RTN = Choice(method="rtn", group_size=128, symmetric=False)
AWQ = replace(RTN, method="awq")
LAYERS = (f"{ATTENTION}.q_proj", f"{MLP}.down_proj")
QUESTIONS = {
    "the layer is new: rtn": RTN,
    "rtn, 3 bits": replace(RTN, bits=3),
    "awq": AWQ,
    "awq again": AWQ,
    "awq, 3 bits": replace(AWQ, bits=3),
    "awq, group 32": replace(AWQ, group_size=32),
    "awq, symmetric": replace(AWQ, symmetric=True),
    "awq, no clip search": replace(AWQ, clip=False),
    "awq, no scale search": replace(AWQ, scale=False),
    "gptq": replace(RTN, method="gptq"),
    "gptq, 3 bits": replace(RTN, method="gptq", bits=3),
    "awq+gptq": replace(RTN, method="awq+gptq"),
    "awq+gptq, damping": replace(RTN, method="awq+gptq", damping=0.05),
}


def main(size: int) -> int:
    threads, load = os.cpu_count(), os.getloadavg()[0]
    print(f"{size} × {size}, {threads} processors, load {load:.1f}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory(dir=os.environ.get("LATHE_BENCH")) as place:
        os.environ["LATHE_HOME"] = place
        recipe, job = PRESETS["layered"], Path(place) / "job"
        job.mkdir()
        folder = write_layer(Path(place) / "model", size, recipe)
        events = resident.run(whatif.spec(folder, recipe), job)
        slowest = 0.0
        for number, ((name, question), layer) in enumerate(product(QUESTIONS.items(), LAYERS)):
            began, cpu = time.perf_counter(), time.process_time()
            first = _ask(events, job, number, layer, question)
            wall = time.perf_counter() - began
            slowest = max(slowest, wall)
            print(f"{layer.rpartition('.')[2]:10} {name:24} {wall:5.2f} s  {time.process_time() - cpu:5.2f} CPU-s  "
                  f"in the loop {wall - first.seconds:4.2f} s  {'final' if first.final else f'{first.rows} rows'}  "
                  f"error {first.output_error:.5f}", flush=True)  # fmt: skip
        for name in ("awq", "gptq", "awq+gptq"):
            began, cpu = time.perf_counter(), time.process_time()
            last = _ask(events, job, 1000, LAYERS[0], QUESTIONS[name], final=True)
            wall, cpu = time.perf_counter() - began, time.process_time() - cpu
            print(f"{'whole':10} {name:24} {wall:5.2f} s  {cpu:5.2f} CPU-s  error {last.output_error:.5f}", flush=True)
    print(f"slowest first answer {slowest:.2f} s (goal {GOAL_S} s)")
    return int(slowest > GOAL_S)


def _ask(events: Iterator[Event], job: Path, number: int, layer: str, choice: Choice, final: bool = False) -> WhatIf:
    """The first answer to the question, or the final one."""
    with (job / whatif.REQUESTS).open("a") as requests:
        requests.write(json.dumps({"id": number, "module": layer, "choice": asdict(choice)}) + "\n")
    for event in events:
        if isinstance(event, WhatIf) and event.id == number and (event.final or not final):
            return event
    raise AssertionError("the worker ended")


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 4096))
