"""Jobs as folders: real children that stand in for the worker, and the real worker where no torch is needed."""

import asyncio
from pathlib import Path

import programs
import pytest

from workbench import jobs, paths
from workbench.errors import WorkbenchError
from workbench.events import Advanced, Cancelled, Failed, Finished, Note, Stage, decode, encode
from workbench.settings import Settings


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))


def interpreter(tmp_path: Path, body: str) -> Settings:
    """Settings whose engine interpreter is a program that does `body` with the job's `folder`."""
    opening = (
        "import os, sys, time\nfrom pathlib import Path\nfolder = Path(sys.argv[3])\n"
        "def report(line):\n    print(line, flush=True)\n    open(folder / 'events.jsonl', 'a').write(line + chr(10))\n"
    )
    program = programs.write(tmp_path / "python", opening + body)
    return Settings(engine_python=str(program))


async def test_events_arrive_in_order_and_are_replayed(tmp_path):
    events = [Stage("Scanning", 2), Advanced(1), Finished("/x", 3)]
    body = "\n".join(f"report({encode(event)!r})" for event in events)
    folder = jobs.create("quantize", {"model": "m"})
    seen = []
    await jobs.run(folder, seen.append, interpreter(tmp_path, body))
    assert seen == events
    assert list(jobs.replay(folder)) == events
    assert [job.state for job in jobs.listing()] == ["finished"]


async def test_a_failure_is_raised_as_the_worker_said_it(tmp_path):
    line = encode(Failed("{name} is not finite.", "Choose another model.", {"name": "q_proj"}))
    folder = jobs.create("quantize", {})
    with pytest.raises(WorkbenchError, match="q_proj is not finite") as caught:
        await jobs.run(folder, lambda event: None, interpreter(tmp_path, f"report({line!r})\nsys.exit(1)"))
    assert caught.value.hint == "Choose another model."
    assert [job.state for job in jobs.listing()] == ["failed"]


async def test_a_killed_worker_is_a_failure_in_the_file_too(tmp_path):
    folder = jobs.create("quantize", {"output": str(tmp_path / "out")})
    body = f"(Path({str(tmp_path)!r}) / f'.out.partial-{{os.getpid()}}').mkdir()\nos.kill(os.getpid(), 9)"
    seen = []
    with pytest.raises(WorkbenchError, match="137"):
        await jobs.run(folder, seen.append, interpreter(tmp_path, body))
    assert isinstance(seen[-1], Failed)
    assert isinstance(list(jobs.replay(folder))[-1], Failed)
    assert not list(tmp_path.glob(".out.partial-*"))


async def test_cancel_ends_the_worker_within_two_seconds_and_leaves_nothing(tmp_path):
    """The worker ignores SIGTERM and has begun to write; a stranger's folder beside it stays."""
    body = (
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"(Path({str(tmp_path)!r}) / f'.out [1].partial-{{os.getpid()}}').mkdir()\n"
        f"report({encode(Stage('Working'))!r})\ntime.sleep(60)"
    )
    stranger = tmp_path / ".out [1].partial-notes"
    stranger.mkdir()
    folder = jobs.create("quantize", {"output": str(tmp_path / "out [1]")})
    begun = asyncio.Event()
    task = asyncio.create_task(jobs.run(folder, lambda event: begun.set(), interpreter(tmp_path, body)))
    await asyncio.wait_for(begun.wait(), 10)
    assert len(list(tmp_path.glob(".out*partial-*"))) == 2
    loop = asyncio.get_running_loop()
    before_s = loop.time()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert loop.time() - before_s < 2
    assert list(tmp_path.glob(".out*partial-*")) == [stranger]
    assert list(jobs.replay(folder))[-1] == Cancelled()


def test_an_event_of_another_version_is_read_without_the_fields_that_are_gone():
    line = encode(Stage("Working", 3))
    assert decode(line[:-1] + ',"former":1}') == decode(line) == Stage("Working", 3)


async def test_lines_that_are_no_events_are_passed_over(tmp_path):
    body = "print('a library prints')\nprint('{\"kind\": \"Nothing\"}')\n" + f"report({encode(Note('x'))!r})"
    seen = []
    await jobs.run(jobs.create("quantize", {}), seen.append, interpreter(tmp_path, body))
    assert seen == [Note("x")]


def test_a_cut_line_ends_the_replay():
    folder = jobs.create("quantize", {})
    (folder / "events.jsonl").write_text(encode(Stage("a")) + "\n" + encode(Finished("/p"))[:-4])
    assert list(jobs.replay(folder)) == [Stage("a")]
    assert jobs.listing()[0].state == "interrupted"


def test_a_folder_that_is_no_job_is_not_listed():
    (paths.inside_home("jobs") / "notes").mkdir()
    assert jobs.listing() == []


async def test_the_real_worker_says_in_a_sentence_what_it_cannot_do(tmp_path):
    """The folder's job.json names a kind that no worker has."""
    folder = jobs.create("quantize", {})
    (folder / "job.json").write_text('{"kind": "polish", "spec": {}, "created": 0}')
    with pytest.raises(WorkbenchError, match="polish"):
        await jobs.run(folder, lambda event: None, Settings())
    assert (folder / "worker.log").read_text().count("Traceback") == 1
