"""Connections kept by name; their keys in the keyring or in memory, and never in a file."""

import json
import stat

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked, PasswordDeleteError

from workbench import keys, paths
from workbench.engine import connections
from workbench.engine.connections import Connection
from workbench.errors import WorkbenchError

KEY = "sk-very-secret"


class InMemory(KeyringBackend):
    """A keyring without a system behind it."""

    priority = 5

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}

    def set_password(self, service, username, password):
        self.kept[service, username] = password

    def get_password(self, service, username):
        return self.kept.get((service, username))

    def delete_password(self, service, username):
        if self.kept.pop((service, username), None) is None:
            raise PasswordDeleteError


class Locked(InMemory):
    def set_password(self, service, username, password):
        raise KeyringLocked

    get_password = delete_password = lambda self, *_: (_ for _ in ()).throw(KeyringLocked())


class Broken(InMemory):
    """Its service went away, which its library tells with an error of its own."""

    def set_password(self, service, username, password):
        raise RuntimeError

    get_password = delete_password = lambda self, *_: (_ for _ in ()).throw(RuntimeError())


class InAFile(InMemory):
    """As keyrings.alt has them: what it keeps could be read in a file."""

    priority = 0.5


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(keys, "_this_run", {})
    return tmp_path


@pytest.fixture
def ring():
    before, ours = keyring.get_keyring(), InMemory()
    keyring.set_keyring(ours)
    yield ours
    keyring.set_keyring(before)


def written(folder) -> str:
    return "".join(path.read_text() for path in folder.rglob("*") if path.is_file())


def test_a_connection_comes_back_with_its_key(ring, home):
    kept = connections.keep(Connection(" work ", "https://m", "big"))
    assert keys.save(kept.name, KEY).lasting
    assert connections.find("work") == Connection("work", "https://m", "big") == connections.listing()[0]
    assert keys.load("work") == KEY and ring.kept == {("Lathe", "work"): KEY}
    assert KEY not in written(home)
    assert json.loads(connections.file_of("work").read_text()) == {"url": "https://m", "model": "big"}
    assert not connections.file_of("work").stat().st_mode & stat.S_IXUSR
    connections.remove("work")
    assert connections.listing() == () and ring.kept == {} and keys.load("work") == ""


@pytest.mark.parametrize("kind", [Locked, Broken, InAFile, None])
def test_without_a_keyring_the_key_lasts_as_long_as_the_program(kind, ring, home):
    from keyring.backends.fail import Keyring

    keyring.set_keyring(kind() if kind else Keyring())
    saved = keys.save("work", KEY)
    assert not saved.lasting and "until Lathe ends" in str(saved.note)
    assert keys.load("work") == KEY and KEY not in written(home)
    keys._this_run.clear()  # the next run
    assert keys.load("work") == ""


def test_a_keyring_that_fails_is_told_where_a_key_may_stay_in_it(ring):
    keyring.set_keyring(Broken())
    with pytest.raises(WorkbenchError, match="could not be removed"):
        keys.forget("work")


def test_without_the_package_as_well(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "keyring", None)
    assert not keys.save("work", KEY).lasting and keys.load("work") == KEY
    keys.forget("work")
    assert keys.load("work") == ""


def test_an_empty_key_forgets_the_old_one(ring):
    keys.save("work", KEY)
    keys.save("work", "")
    assert ring.kept == {}


def test_names_and_files_that_will_not_do(home):
    with pytest.raises(WorkbenchError, match="cannot be a name"):
        connections.keep(Connection("a/b", "http://m"))
    assert connections.find("../settings") is None and connections.find("none") is None
    with pytest.raises(WorkbenchError, match="no connection called none"):
        connections.remove("none")
    broken = connections.file_of("broken")
    connections.keep(Connection("good", "http://m"))
    broken.write_text('{"url": "http://m", "key": "k"}')
    assert [each.name for each in connections.listing()] == ["good"]
    with pytest.raises(WorkbenchError, match="cannot be read"):
        connections.find("broken")
    assert paths.home() in broken.parents


def test_a_key_from_the_environment(monkeypatch):
    monkeypatch.setenv("WORK_KEY", f" {KEY}\n")
    assert keys.from_environment("WORK_KEY") == KEY
    monkeypatch.delenv("WORK_KEY")
    with pytest.raises(WorkbenchError, match="WORK_KEY is not set"):
        keys.from_environment("WORK_KEY")
