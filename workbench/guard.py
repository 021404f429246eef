"""Stands between the window and a child, and ends the child's whole tree when the window is gone.

Run as a script of the standard library alone: `python -I -S guard.py GRACE_S RECORD FOLDER COMMAND...`. Its stdin is a
pipe from the window that nobody writes to: when it closes, however it closes, the tree is ended; so it is on SIGTERM.
As child subreaper it inherits every descendant whose parent died, also those in sessions of their own. FOLDER is the
tree's own place for temporary files (its TMPDIR); it goes with the tree, and so does its shared memory.
"""

import ctypes
import json
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SWEEP_S = 0.5  # how old the record of the tree may be
AFTER_S = 1.0  # what the rest of a tree gets when its head ended by itself
KILLED_S = 3.0  # after SIGKILL only a process stuck in the kernel is left
ENDING = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
PREFIX = "lathe-"  # of each FOLDER's name, so that nothing else is ever removed
SHARED = "/dev/shm"


def main(grace_s: float, record: Path, folder: Path, command: list[str]) -> int:
    """Run `command` to its end or ours; its exit status, 128 + n when signal n ended it."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wakened, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in {signal.SIGCHLD, *ENDING}:
        signal.signal(number, lambda *_: None)
    older = {f"{SHARED}/{name}" for name in os.listdir(SHARED)} if os.path.isdir(SHARED) else set()
    head = _start(command)
    left = {"folder": str(folder), "shared": []}
    recorded: list[list] = []
    status = None
    while status is None:
        tree = [identity(pid) for pid in descendants(os.getpid())]
        living = [each for each in tree if each]
        open_now = shared(pid for pid, *_ in living) - older
        if living != recorded or not open_now <= set(left["shared"]):
            recorded = living
            left["shared"] = sorted(open_now.union(left["shared"]))
            _write(record, {"command": command, "processes": recorded, **left})
        ready = select.select([0, wakened], [], [], SWEEP_S)[0]
        if (0 in ready and _closed()) or (wakened in ready and ENDING & set(os.read(wakened, 4096))):
            break
        status = _reap().get(head)
    if end_tree(AFTER_S if status is not None else grace_s):
        tidy(left)
        record.unlink(missing_ok=True)  # else it stays, for the next start to find what is stuck
    if status is None:
        return 128 + signal.SIGTERM
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def end_tree(grace_s: float) -> bool:
    """Terminate from the top down, so that each process may end its own children first; after the grace kill."""
    told: set[int] = set()
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline:
        told -= _reap().keys()
        if not descendants(os.getpid()):
            return True
        for pid in children(os.getpid()):  # the children of one that ended become ours and have their turn
            if pid not in told:
                _signal(pid, signal.SIGTERM)
                told.add(pid)
        time.sleep(0.02)
    deadline = time.monotonic() + KILLED_S
    while time.monotonic() < deadline:
        _reap()
        if not (tree := descendants(os.getpid())):
            return True
        for pid in tree:
            _signal(pid, signal.SIGKILL)
        time.sleep(0.02)
    return False


def descendants(pid: int) -> list[int]:
    """Every living process below `pid`, parents before their children."""
    tree = [pid]
    for parent in tree:
        tree += children(parent)
    return [each for each in tree[1:] if identity(each)]


def children(pid: int) -> list[int]:
    """The children of all threads of `pid`; none when it is gone."""
    found: list[str] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    for task in tasks:
        try:
            found += Path(f"/proc/{pid}/task/{task}/children").read_text().split()
        except OSError:
            if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
                return _children_by_parent(pid)  # a kernel without CONFIG_PROC_CHILDREN
    return [int(each) for each in found]


def identity(pid: int) -> list | None:
    """[pid, start in clock ticks after boot, command line]; None when it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    if fields[0] in (b"Z", b"X"):
        return None
    return [pid, int(fields[19]), " ".join(command.decode(errors="replace").split("\0")).strip()]


def shared(pids: Iterable[int]) -> set[str]:
    """The files of shared memory that these processes hold, or that OpenMP keeps for them."""
    found = set()
    for pid in pids:
        registered = f"{SHARED}/__KMP_REGISTERED_LIB_{pid}_{os.getuid()}"  # held by no descriptor
        if os.path.exists(registered) and identity(pid):  # a zombie uses it no more
            found.add(registered)
        try:
            for name in os.listdir(f"/proc/{pid}/fd"):
                held = os.readlink(f"/proc/{pid}/fd/{name}")
                if held.startswith(SHARED + "/") and os.path.exists(held):
                    found.add(held)
        except OSError:  # it is gone or another user's, or closed that file just now
            continue
    return found


def tidy(left: dict) -> None:
    """Remove what an ended tree left: its temporary files and its shared memory, unless somebody else holds that.

    `left`: "folder" and "shared", as in a record.
    """
    folder = Path(left.get("folder", ""))
    if folder.name.startswith(PREFIX) and folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder, ignore_errors=True)
    if files := set(left.get("shared", ())):
        for file in files - shared(int(name) for name in os.listdir("/proc") if name.isdigit()):
            with suppress(OSError):
                os.unlink(file)


def boot() -> str:
    """Pids and start ticks mean something within one boot only."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _start(command: list[str]) -> int:
    guard = os.getpid()
    head = os.fork()
    if head:
        return head
    try:
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and that would be inherited
            signal.signal(number, signal.SIG_DFL)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == guard:  # else it died before the signal was asked for
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode(errors="surrogateescape"))
    finally:
        os._exit(127)


def _closed() -> bool:
    try:
        return not os.read(0, 4096)
    except OSError:
        return True


def _reap() -> dict[int, int]:
    """The wait status of every child that ended, adopted ones too."""
    ended = {}
    try:
        while (waited := os.waitpid(-1, os.WNOHANG))[0]:
            ended[waited[0]] = waited[1]
    except ChildProcessError:
        pass
    return ended


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError:  # it changed its user; nothing we may end
        pass


def _write(record: Path, content: dict) -> None:
    content = {"boot": boot(), "guard": identity(os.getpid()), **content}
    beside = record.with_suffix(".tmp")
    try:
        beside.write_text(json.dumps(content), encoding="utf-8")
        beside.replace(record)
    except OSError:  # a full disk must not end the engine
        beside.unlink(missing_ok=True)


def _children_by_parent(pid: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(name))
    return found


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]))
