"""Is a quantization that was killed twice and resumed the same, byte for byte, as one that ran through?

`python tests/bench/resume.py MODEL [--samples 4]`. Kills the whole program at one block and only its worker at another,
both with SIGKILL, goes on each time with `lathe resume`, and compares every file of weights with those of a run that
began anew. Ends with status 1 when they differ, or when a finished block was made a second time.
"""

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import psutil

from workbench import jobs
from workbench.events import Note
from workbench.quant_events import ModuleDone, ModuleStarted
from workbench.words import Sentence

LIMIT_S = 900
LIBRARIES = ("torch", "transformers", "safetensors")


def start(arguments: list[str], log: Path) -> subprocess.Popen:
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-c", "from workbench.cli import main; main()", *arguments],
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


def kill_in(block: int, program: subprocess.Popen, before: set[Path], *, whole: bool) -> Path:
    """End the newest job in the middle of this block: the program or its worker. Returns the job when all is gone."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until and program.poll() is None:
        time.sleep(0.2)
        for folder in {job.folder for job in jobs.listing()} - before:
            begun = [event for event in jobs.replay(folder) if isinstance(event, ModuleStarted)]
            if not begun or begun[-1].block < block or not begun[-1].name.endswith("up_proj"):
                continue
            worker = psutil.Process(int((folder / "pid").read_text().split()[0]))
            os.kill(program.pid if whole else worker.pid, signal.SIGKILL)
            program.wait(30)
            worker.wait(30)
            return folder
    raise SystemExit(f"block {block} was not reached")


def made(folder: Path) -> list[int]:
    """The blocks that a job finished itself, in their order."""
    modules = Counter()
    began = set()
    for event in jobs.replay(folder):
        if isinstance(event, ModuleStarted):
            began.add(event.block)
        elif isinstance(event, ModuleDone) and event.block in began:
            modules[event.block] += 1
    most = max(modules.values(), default=0)
    return sorted(block for block, count in modules.items() if count == most)


def weights(folder: Path) -> dict[str, str]:
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.glob("*.safetensors"))
    }  # fmt: skip


def main(model: Path, recipe: str, samples: int, kills: list[int]) -> int:
    with tempfile.TemporaryDirectory(dir=os.environ.get("LATHE_BENCH")) as place:
        folder, log, began = Path(place), Path(place) / "log", time.monotonic()
        os.environ["LATHE_HOME"] = str(folder / "home")
        common = ["--recipe", recipe, "--samples", str(samples), "--no-measure-rtn"]
        known: set[Path] = set()
        program = start(["quantize", str(model), "-o", str(folder / "killed"), *common], log)
        for number, block in enumerate(kills):
            job = kill_in(block, program, known, whole=number % 2 == 0)
            known.add(job)
            print(
                f"killed in block {block}; finished blocks: {made(job)}; {time.monotonic() - began:.0f} s", flush=True
            )
            assert not (folder / "killed").exists()
            program = start(["resume", job.name], log)
        if program.wait(LIMIT_S):
            raise SystemExit(log.read_text()[-3000:])
        last = next(job.folder for job in jobs.listing() if job.folder not in known)
        known.add(last)
        everything = [*(block for job in sorted(known) for block in made(job))]
        notes = [event for event in jobs.replay(last) if isinstance(event, Note) and "taken over" in event.message]
        print(*(str(Sentence(note.message, note.values)) for note in notes))
        fresh = start(["quantize", str(model), "-o", str(folder / "whole"), "--fresh", *common], log)
        if fresh.wait(LIMIT_S):
            raise SystemExit(log.read_text()[-3000:])
        killed, whole = weights(folder / "killed"), weights(folder / "whole")
        left = [entry.name for entry in folder.iterdir() if "partial" in entry.name]
        layers = json.loads((model / "config.json").read_text())["num_hidden_layers"]
    for name in sorted(killed | whole):
        print(f"{name}: killed {killed.get(name, '–')[:16]}, in one go {whole.get(name, '–')[:16]}")
    print(f"blocks made, over all {len(known)} runs: {len(everything)} of {layers}; left behind: {left or 'nothing'}")
    print(f"{model.name}, {recipe}, {samples} samples, {time.monotonic() - began:.0f} s", end=" ")
    print(*(f"{name} {version(name)}" for name in LIBRARIES))
    return int(killed != whole or sorted(everything) != list(range(layers)) or bool(left))


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("model", type=Path)
    options.add_argument("--recipe", default="layered")
    options.add_argument("--samples", type=int, default=4, help="calibration samples of 512 tokens")
    options.add_argument("--kill", type=int, nargs="+", default=[7, 19], metavar="BLOCK")
    given = options.parse_args()
    sys.exit(main(given.model.resolve(), given.recipe, given.samples, given.kill))
