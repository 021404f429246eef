"""Runs each quantization in a child process of its own, several at a time, and keeps what it told."""

import ctypes
import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import footprint
import standings
from rivals import Run
from standings import Measure

from workbench.catalog import headers
from workbench.guard import PR_SET_PDEATHSIG

HERE = Path(__file__).parent
END_WITH_US = partial(ctypes.CDLL(None).prctl, PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


@dataclass(slots=True)
class Done:
    """A finished run, its folder, and what its child told (see footprint.py) with the stored bits."""

    run: Run
    folder: Path
    told: dict[str, Any]

    @property
    def measures(self) -> dict[str, Measure]:
        """By kind of held text, once it is measured."""
        return {kind: Measure(*values) for kind, values in self.told.get("measures", {}).items()}

    def keep(self) -> None:
        (self.folder / "told.json").write_text(json.dumps(self.told), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Children:
    """Starts children and waits for them. `theirs` is the interpreter of the other tools; no quantization is started,
    and what still runs is ended, when time.monotonic() has reached `ends_at`."""

    model: Path
    theirs: str | None
    place: Path
    jobs: int
    ends_at: float
    cpu: bool = False

    def quantize(self, runs: list[Run]) -> list[Done]:
        """Those that ended well, in their order; of the others the end of their log is printed."""
        with ThreadPoolExecutor(self.jobs) as pool:
            return [done for done in pool.map(self._quantize, runs) if done]

    def measure(self, done: list[Done], held: dict[str, list[str]], tokens: int) -> list[Done]:
        """Those that are measured on every kind of text: `held` has the files of each; `tokens` is the most of each."""
        left = [one for one in done if one.measures.keys() != held.keys()]
        size = max(1, min(8, -(-len(left) // self.jobs)))  # the original is run once for so many
        with ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(lambda at: self._measure(left[at : at + size], held, tokens), range(0, len(left), size)))
        return [one for one in done if one.measures.keys() == held.keys()]

    def _quantize(self, run: Run) -> Done | None:
        own = "recipe" in run.spec
        done = Done(run, self.place / "".join(letter if letter.isalnum() else "-" for letter in run.name), {})
        asked, kept = hashlib.sha256(json.dumps(run.spec).encode()).hexdigest(), done.folder / "told.json"
        if kept.is_file():
            done.told = json.loads(kept.read_text(encoding="utf-8"))
            if done.told.get("asked", asked) == asked:
                return done
        began = time.monotonic()
        if began >= self.ends_at:
            return None
        result = done.folder / "model"
        spec = run.spec | {"model": str(self.model), "output": str(result), "replace": True}
        command = [sys.executable if own else str(self.theirs), str(HERE / ("ours.py" if own else "theirs.py"))]
        done.told = self._told(command, spec, done.folder / "quantizing", run.name, self.ends_at - began)
        if not done.told:
            return None
        print(f"done: {run.name}, {time.monotonic() - began:.0f} s with imports", flush=True)
        if "bits" not in done.told:
            done.told["bits"] = standings.stored_bits(headers.read(result / "model.safetensors"))
        done.told["asked"] = asked
        done.keep()
        return done

    def _measure(self, some: list[Done], held: dict[str, list[str]], tokens: int) -> None:
        folders = [str(one.folder / "model") for one in some]
        spec = {"model": str(self.model), "candidates": folders, "held": held, "tokens": tokens}
        command = [sys.executable, str(HERE / "measured.py")]
        told = self._told(command, spec, some[0].folder / "measuring", f"measuring {some[0].run.name} and on")
        for one in some:
            if own := told.get("measures", {}).get(str(one.folder / "model")):
                one.told["measures"] = own
                one.keep()

    def _told(
        self, command: list[str], spec: dict[str, Any], at: Path, name: str, limit_s: float = math.inf
    ) -> dict[str, Any]:
        """What the child told; empty where it did not end well or in time."""
        at.parent.mkdir(parents=True, exist_ok=True)
        given, log = at.with_suffix(".json"), at.with_suffix(".log")
        given.write_text(json.dumps(spec), encoding="utf-8")
        environment = os.environ | {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
        if self.cpu:
            environment["CUDA_VISIBLE_DEVICES"] = ""
        try:
            with log.open("wb") as output:
                subprocess.run(
                    [*command, str(given)], stdout=output, stderr=subprocess.STDOUT, env=environment, check=True,
                    preexec_fn=END_WITH_US, timeout=None if limit_s == math.inf else limit_s,
                )  # fmt: skip
            return footprint.told_in(log.read_text(encoding="utf-8", errors="replace"))
        except (subprocess.SubprocessError, ValueError) as error:
            print(f"FAILED: {name}: {str(error)[-200:]}")
            print("\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-12:]), flush=True)
            return {}


def versions(done: list[Done]) -> Iterator[str]:
    """Each tool's libraries; runs that were kept may be of another machine."""
    for one in done:
        yield f"{one.run.tool}: " + ", ".join(f"{name} {number}" for name, number in one.told["versions"].items())
