"""A job is a folder: job.json says what, events.jsonl what happened, worker.log what the libraries printed.

The worker process writes the events; the window only reads them, so reopening a job is replaying its file.
"""

import asyncio
import json
import os
import shutil
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from workbench import admission, job_needs, json_file, named_files, paths, process
from workbench.admission import Ask
from workbench.errors import WorkbenchError
from workbench.events import Cancelled, Event, Failed, Finished, decode, encode
from workbench.settings import Settings

# Each kind is a generator of events in a module that only the worker imports.
KINDS = {
    "quantize": "workbench.quantization.pipeline:run",
    "quality": "workbench.measure.quality:run",
    "histogram": "workbench.quantization.look:run",
    "export": "workbench.quantization.export:run",
    "adapt": "workbench.quantization.adapt:run",
    "starter": "workbench.catalog.starter:run",
    "statistics": "workbench.quantization.statistics:run",
    "whatif": "workbench.quantization.resident:run",
    "sensitivity": "workbench.quantization.sensitivity:run",
}

# The worker must be gone within 2 s of a cancel; this is what it gets to clean up.
GRACE_S = 1.2
DAMAGED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)  # what reading anybody's JSON may raise
WAITING = "waiting"  # the file that notes who runs a job until its worker does


@dataclass(frozen=True, slots=True)
class Job:
    """One job folder as it stands; `state` is running, finished, failed, cancelled or interrupted."""

    folder: Path
    kind: str
    spec: Mapping[str, Any]
    created: datetime
    state: str


def create(kind: str, spec: Mapping[str, Any]) -> Path:
    """A new job folder under the home folder, ready to run."""
    assert kind in KINDS, kind
    jobs = paths.inside_home("jobs")
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    for number in range(1000):
        folder = jobs / f"{stamp}-{kind}-{number}"
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        _write(folder / "job.json", {"kind": kind, "spec": dict(spec), "created": time.time()})
        return folder
    raise AssertionError(f"a thousand jobs in one second in {jobs}")


def again(folder: Path) -> Path:
    """A new job that does what an ended one was asked to do, changes on the way included."""
    job = json_file.read(folder / "job.json")
    new = create(job["kind"], job["spec"])
    if (folder / "amendments.jsonl").is_file():
        shutil.copyfile(folder / "amendments.jsonl", new / "amendments.jsonl")
    return new


async def run(folder: Path, on_event: Callable[[Event], None], settings: Settings, ask: Ask = admission.anyway) -> None:
    """Run the job in a worker of the engine interpreter until it ended; its failure is raised.

    `ask` is asked where its memory is held by others; what that raises ends it before it began. Cancelling ends the
    worker and removes what it had begun to write before this returns.
    """
    failure: Failed | None = None

    def on_line(line: str) -> None:
        nonlocal failure
        try:
            event = decode(line)
        except DAMAGED:
            return  # a library printed before the worker took stdout for itself
        if isinstance(event, Failed):
            failure = event
        on_event(event)

    command = [settings.interpreter, "-m", "workbench.worker", str(folder)]
    job = json_file.read(folder / "job.json")
    kind, spec = job["kind"], job["spec"]
    name = Path(spec.get("model") or spec.get("original") or "").name
    waits = folder / WAITING
    named_files.write_text(f"{os.getpid()} {psutil.Process().create_time()}", waits)

    def on_start(pid: int) -> None:
        begun(pid)
        waits.unlink(missing_ok=True)

    try:
        needs = await asyncio.to_thread(job_needs.of, kind, spec)
        async with admission.place(kind, name, needs, ask, on_event, partial(job_needs.smaller, kind, spec)) as begun:
            await process.run(command, log=folder / "worker.log", on_line=on_line, grace_s=GRACE_S, on_start=on_start)
    except asyncio.CancelledError:
        _sweep(folder)
        _append(folder, Cancelled())
        raise
    except WorkbenchError as error:
        _sweep(folder)
        if failure is None:  # killed, out of memory, or it never started
            failure = _without_word(error, _tail(folder / "worker.log"))
            _append(folder, failure)
            on_event(failure)
    if failure is not None:
        raise WorkbenchError(failure.message, failure.hint, **failure.values)


def replay(folder: Path) -> Iterator[Event]:
    """The events of a job in their order; a line cut by a crash ends them."""
    try:
        content = (folder / "events.jsonl").read_bytes()
    except FileNotFoundError:
        return
    lines = content.decode(errors="replace").split("\n")  # not splitlines(): a name may hold Unicode's other line ends
    for line in lines:
        try:
            yield decode(line)
        except DAMAGED:
            return


def change(folder: Path, spec: Mapping[str, Any]) -> None:
    """Ask something else of a job that has not begun."""
    job = json_file.read(folder / "job.json")
    _write(folder / "job.json", job | {"spec": dict(spec)})


def spec_of(folder: Path) -> dict[str, Any]:
    """What the job was asked to do. Raises WorkbenchError where its file is gone or damaged."""
    try:
        return dict(json_file.read(folder / "job.json")["spec"])
    except (OSError, *DAMAGED) as error:
        raise damaged(folder) from error


def damaged(folder: Path) -> WorkbenchError:
    return WorkbenchError(
        "{path} is no job, or its job.json is damaged.", "Start a new one; what it made is not touched.",
        path=str(folder),
    )  # fmt: skip


def listing() -> list[Job]:
    """All jobs, newest first. A folder that is no job is passed over."""
    found = []
    for folder in paths.inside_home("jobs").iterdir():
        try:
            job = json_file.read(folder / "job.json")
            kind, spec, created = str(job["kind"]), dict(job["spec"]), datetime.fromtimestamp(job["created"])
            found.append(Job(folder, kind, spec, created, _state(folder)))
        except (OSError, OverflowError, *DAMAGED):
            continue
    return sorted(found, key=lambda job: job.created, reverse=True)


def _state(folder: Path) -> str:
    match next(iter(deque(replay(folder), maxlen=1)), None):
        case Finished():
            return "finished"
        case Failed():
            return "failed"
        case Cancelled():
            return "cancelled"
    return "running" if _lives(folder / "pid") or _lives(folder / WAITING) else "interrupted"


def _lives(noted: Path) -> bool:
    """Whether the process that is noted in this file still runs."""
    try:
        number, started = noted.read_text().split()
        return psutil.Process(int(number)).create_time() == float(started)
    except (OSError, ValueError, psutil.Error):
        return False


def _sweep(folder: Path) -> None:
    """Remove what a killed worker had begun to write beside its output."""
    output = spec_of(folder).get("output")
    if not output:
        return
    target = Path(output)
    for left in target.parent.glob(f".{_escaped(target.name)}.partial-*"):
        pid = left.name.rpartition("-")[2]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(left, ignore_errors=True)


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _without_word(error: WorkbenchError, log: str) -> Failed:
    """Why a worker ended that could not say it."""
    if isinstance(error, process.ProcessEnded) and error.code == 128 + signal.SIGKILL:
        return Failed(
            "The worker was killed (status {code}), as the system does when memory runs out.",
            "Close other programs, or use fewer calibration tokens; finished blocks are taken over.",
            error.values, details=log,
        )  # fmt: skip
    return Failed(error.message, error.hint_template, error.values, details=log)


def _append(folder: Path, event: Event) -> None:
    """Add what the worker could not; on a full disk the job counts as interrupted."""
    with suppress(OSError), (folder / "events.jsonl").open("ab") as events:
        events.write(f"{encode(event)}\n".encode())


def _write(path: Path, content: Mapping[str, Any]) -> None:
    try:
        named_files.write_text(json.dumps(content, indent=1, ensure_ascii=False), path)
    except UnicodeEncodeError as error:
        name = next((str(value) for value in content["spec"].values() if not _is_text(str(value))), "–")
        raise WorkbenchError(
            "The name {name} is not in UTF-8.",
            "Rename the file or folder.",
            name=name.encode(errors="replace").decode(),
        ) from error


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _tail(log: Path, size: int = 4000) -> str:
    try:
        return log.read_bytes()[-size:].decode(errors="replace")
    except OSError:
        return ""
