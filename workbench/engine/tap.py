"""Our end of the tap: reports of the engine's cores from a private Unix socket, handed on as events."""

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path

from workbench.core_events import BlockMap, RequestsDone, StepsDone, UsageOnly
from workbench.events import Event, decode

SWITCH = "LATHE_TAP"
NAME = "tap"  # of the socket, in the engine's own folder for temporary files, which only its user may enter
LONGEST = 2**20  # bytes of a report; one that comes as a file may be longer
LONGEST_FILE = 2**26
AT_ONCE = 32  # a flood leaves the window its turn


class Listener:
    """Open between `open` and `close`, on the running loop. `heard` says whether a core has reported."""

    def __init__(self, on_event: Callable[[Event], None]):
        self.heard = False
        self._on_event = on_event
        self._socket: socket.socket | None = None

    def open(self, folder: Path) -> None:
        """Listen in `folder`. Where that fails the engine runs without a tap, and an event says why."""
        socket_ = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            socket_.setblocking(False)
            socket_.bind(str(folder / NAME))
            os.chmod(folder / NAME, 0o600)
        except OSError as error:
            socket_.close()
            self._on_event(UsageOnly("The socket for the block map cannot be opened: {reason}", {"reason": str(error)}))
            return
        self._socket = socket_
        asyncio.get_running_loop().add_reader(socket_.fileno(), self._read)

    def close(self) -> None:
        """Listen no more; the engine notices and keeps nothing from then on."""
        if self._socket:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _read(self) -> None:
        for _ in range(AT_ONCE):
            if self._socket is None:  # whoever took the last event closed us
                return
            try:
                line, files, _, _ = socket.recv_fds(self._socket, LONGEST, 1)
            except BlockingIOError:
                return
            try:
                for each in files:
                    with open(each, "rb") as file:
                        line = os.pread(file.fileno(), LONGEST_FILE, 0)
                event = decode(line.decode())
                if not isinstance(event, BlockMap | StepsDone | RequestsDone):
                    raise ValueError(type(event).__name__)
            except (OSError, ValueError, LookupError, TypeError) as error:  # another version of ours in the engine
                self._on_event(UsageOnly("The engine's reports cannot be read: {reason}", {"reason": repr(error)}))
                continue
            self.heard = True
            self._on_event(event)
