"""The one place that starts children: under the guard, never through a shell, their output line by line."""

import asyncio
import codecs
import io
import os
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from workbench import guard, leftovers
from workbench.errors import WorkbenchError

LINE_LIMIT = 16 * 2**20  # a longer line is handed over in pieces
TAIL_LINES = 40
START_S = 30  # the fork of a busy machine
DRAIN_S = 1.0
LONGEST_FOLDER = 40  # bytes


class ProcessEnded(WorkbenchError):
    """A child that was not cancelled ended with another status than 0.

    `code` is its exit status, 128 + n when signal n ended it; `tail` its last lines.
    """

    def __init__(self, code: int, tail: Sequence[str]):
        super().__init__(
            "The process ended with status {code}.", "The last lines of its log tell more: {last}", code=code,
            last=next((line.strip() for line in reversed(tail) if line.strip()), "–"),
        )  # fmt: skip
        self.code = code
        self.tail = tuple(tail)


async def run(
    command: Sequence[str],
    *,
    log: Path | None,
    on_line: Callable[[str], None],
    env: Mapping[str, str] | None = None,
    grace_s: float = 8.0,
    merge_stderr: bool = False,
    on_start: Callable[[int], None] = lambda pid: None,
    on_folder: Callable[[Path], None] = lambda folder: None,
) -> None:
    """Run `command` to its end and hand over the lines of its stdout; raises ProcessEnded when it fails.

    stderr is added to `log` (None: dropped), or with `merge_stderr` handed over too and all of it added to `log`.
    `env` is the whole environment; `on_start` gets the guard's pid, below which the tree hangs, and
    `on_folder`, before that, the tree's folder for temporary files, which only this user may enter. Cancelling
    terminates the whole tree, kills what is left after `grace_s` seconds, and returns when nothing of it lives.
    """
    if not shutil.which(command[0]):
        raise WorkbenchError(
            "The program {program} does not exist or may not be run.", "Choose another interpreter in the settings.",
            program=command[0],
        )  # fmt: skip
    record = leftovers.folder() / f"{uuid4().hex}.json"
    # In a packaged window sys.executable is the window itself; then the child's interpreter runs the guard too.
    python = command[0] if getattr(sys, "frozen", False) else sys.executable
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    if log:
        log.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as files:
        own = tempfile.mkdtemp(prefix=guard.PREFIX, dir=_short_folder())
        files.callback(shutil.rmtree, own, ignore_errors=True)  # a guard that was killed at once has not recorded it
        on_folder(Path(own))
        guarded = [python, "-I", "-S", guard.__file__, str(grace_s), str(record), own, *command]
        kept = files.enter_context(log.open("ab", buffering=0)) if log else None
        start = log.stat().st_size if log else 0
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        cancellations = task.cancelling()
        starting = asyncio.ensure_future(loop.subprocess_exec(
            lambda: _Child(loop), *guarded, env=_environment(env, own),
            start_new_session=True,  # so that Ctrl+C reaches only us
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT if merge_stderr else kept or asyncio.subprocess.DEVNULL,
        ))  # fmt: skip
        await outlast(starting, START_S)  # a start that is cancelled half-way ends like any other run, below
        transport, child = await starting
        reading = asyncio.create_task(_read(child.stdout, on_line, tail, kept if merge_stderr else None))
        try:
            if task.cancelling() > cancellations:
                raise asyncio.CancelledError
            on_start(transport.get_pid())
            await asyncio.wait([reading, child.exited], return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()  # on_line raised: end the child, then tell
            code = await asyncio.shield(child.exited)
        finally:
            transport.get_pipe_transport(0).close()
            if not await outlast(child.exited, grace_s + guard.KILLED_S + 2):
                transport.kill()
                await outlast(child.exited, 2)
            if stuck := record.exists():  # the guard was killed, or could not end all
                await outlast(asyncio.create_task(asyncio.to_thread(_end_recorded, record)), 15)
            try:
                await asyncio.wait([reading], timeout=DRAIN_S if stuck else None)  # what is stuck may hold the pipe
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
                transport.close()
        if not reading.cancelled():
            reading.result()
    if code:
        lines = _tail(log, start) if log and not merge_stderr else tuple(tail)
        raise ProcessEnded(128 - code if code < 0 else code, lines)


class _Child(asyncio.subprocess.SubprocessStreamProtocol):
    """`exited` gets the exit status when the process ended; asyncio's own wait also waits for its pipes to close."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        super().__init__(limit=2**16, loop=loop)
        self.exited: asyncio.Future[int] = loop.create_future()

    def process_exited(self) -> None:
        self.exited.set_result(self._transport.get_returncode())
        super().process_exited()


async def outlast(work: asyncio.Future, limit_s: float) -> bool:
    """Wait for `work` whatever cancellations come in between; False when it outlasted the limit."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit_s
    while not work.done() and loop.time() < deadline:
        with suppress(asyncio.CancelledError):
            await asyncio.wait([work], timeout=deadline - loop.time())
    return work.done()


async def _read(
    stream: asyncio.StreamReader, on_line: Callable[[str], None], tail: deque[str], kept: BinaryIO | None
) -> None:
    """Hand over lines until the stream ends. A carriage return, as progress bars write it, ends a line too."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")(errors="replace"), translate=True)
    newlines = str.maketrans("\r", "\n")
    pending: list[str] = []
    length = 0

    def hand_over(line: str) -> None:
        tail.append(line)
        on_line(line)

    while chunk := await stream.read(2**16):
        if kept:
            with suppress(OSError):  # a full disk must not end the child
                kept.write(chunk)
        first, *others = decoder.decode(chunk).translate(newlines).split("\n")
        pending.append(first)
        length += len(first)
        for other in others:
            hand_over("".join(pending))
            pending, length = [other], len(other)
        if length > LINE_LIMIT:
            hand_over("".join(pending))
            pending, length = [], 0
        await asyncio.sleep(0)  # a flood of output leaves the window its turn
    if rest := "".join([*pending, decoder.decode(b"", final=True)]):
        hand_over(rest)


def _short_folder() -> str:
    """Where temporary files go; a Unix socket's whole path has at most 107 bytes, and engines put theirs there."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= LONGEST_FOLDER else "/tmp"


def _environment(env: Mapping[str, str] | None, own: str) -> dict[str, str]:
    whole = dict(os.environ if env is None else env)
    # What torch compiled is for later runs too; without this it would be put into TMPDIR. It must not come first: torch
    # sets it anew, and setproctitle, with which vLLM names its processes, finds its place by the first variable.
    whole.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"torchinductor_{os.getuid()}"))
    return whole | {"TMPDIR": own}


def _end_recorded(record: Path) -> None:
    leftovers.end(leftovers.read(record), grace_s=1.0)
    leftovers.forget(record)


def _tail(log: Path, start: int) -> tuple[str, ...]:
    with log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - 2**16))
        return tuple(file.read().decode(errors="replace").splitlines()[-TAIL_LINES:])
