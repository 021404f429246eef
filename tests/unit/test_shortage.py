"""Full disks, no memory, names that are no text: told in a sentence wherever they are met."""

import errno
import json
import os
import subprocess
import sys

import programs
import pytest

from workbench import amend, jobs, quant_report
from workbench.allocation import Target
from workbench.errors import WorkbenchError, of_system
from workbench.events import Advanced, Failed, Finished, Note, decode, encode
from workbench.recipe import RTN, to_dict
from workbench.settings import Settings
from workbench.waiting_line import WaitingLine

FAKE = """
import errno
from workbench.events import Advanced
ERRORS = {
    "torch": RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you tried"),
    "gpu": RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    "thread": RuntimeError("can't start new thread"),
    "library": ImportError("libx.so: failed to map segment from shared object"),
    "python": MemoryError(),
    "disk": OSError(errno.ENOSPC, "No space left on device"),
    "rust": Exception("Error while serializing: I/O error: No space left on device (os error 28)"),
    "other": ValueError("first line\\nsecond"),
}
def run(spec, folder):
    yield Advanced(1)
    raise ERRORS[spec["error"]]
"""
MAIN = "import sys; from pathlib import Path; from workbench import jobs, worker; jobs.KINDS['starter'] = 'fake:run'; "
MAIN += "sys.exit(worker.main(Path(sys.argv[1])))"


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def worker(tmp_path, error):
    """A worker whose job ends with `error`: its folder, what it says on stdout, its status."""
    (tmp_path / "fake.py").write_text(FAKE)
    folder = jobs.create("starter", {"error": error})
    return folder, lambda: subprocess.run(
        [sys.executable, "-c", MAIN, str(folder)], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("torch", "not enough memory"), ("gpu", "not enough memory"), ("thread", "not enough memory"),
        ("library", "not enough memory"), ("python", "not enough memory"), ("disk", "disk is full"),
        ("rust", "disk is full"), ("other", "unexpected error"),
    ],
)  # fmt: skip
def test_what_a_library_raises_is_told(tmp_path, error, told):
    folder, run = worker(tmp_path, error)
    done = run()
    last = decode(done.stdout.splitlines()[-1])
    assert done.returncode == 1 and told in last.message and last.hint
    assert last.values.get("error", "first line") == "first line"
    assert list(jobs.replay(folder))[-1] == last


def test_a_full_disk_under_the_job_itself_is_told(tmp_path):
    folder, run = worker(tmp_path, "other")
    (folder / "events.jsonl").symlink_to("/dev/full")
    done = run()
    last = decode(done.stdout.splitlines()[-1])
    assert done.returncode == 1 and isinstance(last, Failed) and last.message == "The disk is full."


async def test_a_worker_that_was_killed_says_what_kills(tmp_path):
    folder = jobs.create("starter", {})
    (folder / "events.jsonl").symlink_to("/dev/full")  # nor can it be kept, which is no second error
    program = programs.write(tmp_path / "python", "import os\nos.kill(os.getpid(), 9)")
    with pytest.raises(WorkbenchError, match=r"killed.*memory") as caught:
        await jobs.run(folder, lambda event: None, Settings(engine_python=str(program)))
    assert "finished blocks" in caught.value.hint


def test_only_what_the_system_lacks_is_called_so():
    assert of_system(OSError(errno.EDQUOT, "quota")) and of_system(OSError(errno.ENOMEM, "memory"))
    assert of_system(OSError(errno.EACCES, "rights")) is None and of_system(ValueError("memory")) is None


def test_a_name_that_is_no_text_is_refused(tmp_path):
    with pytest.raises(WorkbenchError, match="not in UTF-8") as caught:
        jobs.create("starter", {"model": os.fsdecode(b"/m\xff")})
    assert str(caught.value).encode()


def test_names_with_the_line_ends_of_unicode(tmp_path):
    """U+2028 and U+0085 end a line for str.splitlines, but not in JSON."""
    folder = jobs.create("starter", {"model": "a\u2028b"})
    told = [Note("{name}", {"name": "a\u2028b\u0085c"}), Advanced(1), Finished("x\u2029y", 3)]
    for event in told:
        jobs._append(folder, event)
    assert list(jobs.replay(folder)) == told and jobs.listing()[0].state == "finished"
    line = {"from_block": 1, "recipe": to_dict(RTN) | {"name": "a\u2028b"}}
    (folder / "amendments.jsonl").write_text(json.dumps(line, ensure_ascii=False) + '\n{"from_block": 2')
    assert [amendment.recipe.name for amendment in amend.read(folder)] == ["a\u2028b"]


@pytest.mark.parametrize("content", ["{", "[5]", '[{"model": 1}]', "[" * 100_000, "5"])
def test_a_damaged_queue_is_set_aside(own_home, content):
    own_home.mkdir()
    (own_home / "queue.json").write_text(content)
    assert WaitingLine().entries == []
    assert (own_home / "queue.damaged").read_text() == content


def lathe(tmp_path, *arguments, **env):
    done = subprocess.run(
        [sys.executable, "-m", "workbench.cli", *map(str, arguments)], capture_output=True, timeout=60,
        env={**os.environ, "LATHE_LANGUAGE": "en", **env},
    )  # fmt: skip
    assert b"Traceback" not in done.stderr, done.stderr.decode(errors="replace")
    return done


def test_a_terminal_without_our_letters(tiny, tmp_path):
    named = tiny.rename(tmp_path / "模型")
    for language in ("en", "zh_CN"):
        done = lathe(tmp_path, "plan", named, PYTHONIOENCODING="ascii", LATHE_LANGUAGE=language)
        assert done.returncode == 0 and b"up_proj" in done.stdout
    told = json.loads(lathe(tmp_path, "inspect", named, "--json", PYTHONIOENCODING="ascii").stdout.decode("ascii"))
    assert told["name"] == "模型"


def test_folders_that_are_no_text(tiny, tmp_path):
    named = os.fsdecode(os.fsencode(tmp_path) + b"/m\xff")
    tiny.rename(named)
    assert json.loads(lathe(tmp_path, "inspect", named, "--json").stdout)["format"] == "safetensors"
    done = lathe(tmp_path, "quantize", named, "-o", tmp_path / "out")
    assert done.returncode == 1 and b"not in UTF-8" in done.stderr


def test_programs_get_a_document_of_an_error_too(tiny, tmp_path):
    done = lathe(tmp_path, "inspect", tmp_path / "none", "--json")
    assert done.returncode == 1 and set(json.loads(done.stdout)) == {"error", "hint"} and b"no folder" in done.stderr
    done = lathe(tmp_path, "plan", tiny, "--group-size", "7", "--json")
    assert done.returncode == 1 and "Group size" in json.loads(done.stdout)["error"]


@pytest.mark.parametrize("bits", ["nan", "inf", "-1"])
def test_bits_that_are_none(bits):
    with pytest.raises(WorkbenchError, match="Bits on average"):
        Target(bits=float(bits))


WHOLE = '{"kind": "quantize", "spec": {"model": "m", "output": "o", "recipe": {}}, "created": 0}'


@pytest.mark.parametrize(
    "content",
    [
        "", "5", "[]", "null", "{}", "[" * 100_000, WHOLE.replace("0}", "1e400}"), WHOLE.replace("0}", '"x"}'),
        '{"kind": "quantize", "spec": 5, "created": 0}', WHOLE.replace('"m"', "5").replace("0}", "[]}"),
    ],
)  # fmt: skip
def test_one_damaged_job_hides_no_other(own_home, content):
    """The list of all jobs used to fail, and with it every command that looks for one."""
    good, bad = jobs.create("starter", {}), jobs.create("starter", {})
    (bad / "job.json").write_text(content)
    assert [job.folder for job in jobs.listing()] == [good]
    for ask in (quant_report.of_job, amend.current):
        with pytest.raises(WorkbenchError):
            ask(bad)


@pytest.mark.parametrize(
    "line", ["5", "[]", "null", "{", '{"kind": "Nope"}', '{"kind": "Stage", "x": 1}', "[" * 100_000]
)
def test_a_damaged_line_ends_a_replay(line):
    folder = jobs.create("starter", {})
    (folder / "events.jsonl").write_text(f"{encode(Advanced(1))}\n{line}\n{encode(Advanced(2))}\n")
    assert list(jobs.replay(folder)) == [Advanced(1)] and jobs.listing()[0].state == "interrupted"


@pytest.mark.parametrize("report", ["{", "5", '{"modules": 5}', "[" * 100_000])
def test_a_damaged_report_is_made_once_more(tiny, report):
    spec = {"model": str(tiny), "output": str(tiny.parent / "out"), "recipe": to_dict(RTN)}
    folder = jobs.create("quantize", spec)
    (folder / "report.json").write_text(report)
    page = quant_report.of_job(folder)
    assert (
        str(tiny.parent / "out") in page.read_text()
        and json.loads((folder / "report.json").read_text())["modules"] == []
    )
