"""The tap inside vLLM's engine core: tells a listener which block holds what, and what each step computed.

After a step the core's own thread reads what its scheduler holds, at most ten times a second and never more than a
hundredth of its time, and sends it without waiting: what the listener has no room for is dropped, and without a
listener nothing is kept. Reading fails where a vLLM is built otherwise; then plugin_scheduler ends the tap.
"""

import base64
import errno
import os
import socket
import threading
import time
import zlib
from collections.abc import Iterable

import numpy as np

from workbench.core_events import BlockMap, RequestsDone, StepsDone
from workbench.engine.plugin_blocks import Blocks
from workbench.events import Event, encode

PERIOD_S = 0.1
SHARE = 0.01
RETRY_S = 1.0
KEPT = 2000  # steps and requests between two reports

_QUEUED, _SCHEDULED = 1, 2  # vLLM's EngineCoreEventType


class Tap:
    """What one scheduler did since the last report, and its way to the listener."""

    def __init__(self, scheduler, path: str):
        self.scheduler = scheduler
        self.path = path
        manager = scheduler.kv_cache_manager
        self.pool = manager.block_pool
        self.blocks: Blocks | None = None  # read when somebody listens
        self.managers = getattr(getattr(manager, "coordinator", None), "single_type_managers", ())
        parallel = scheduler.vllm_config.parallel_config
        self.rank = getattr(parallel, "data_parallel_index", getattr(parallel, "data_parallel_rank", 0))
        self.steps: list[tuple] = []
        self.requests: list[tuple] = []
        self.missed = 0
        self.count = 0
        self.due_s = self.retry_s = 0.0
        self._open: dict[str, list] = {}
        self._socket: socket.socket | None = None
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()  # against the timer's thread

    def begin(self) -> None:
        """Tell a listener that is there already how things stand."""
        if self._is_heard(time.monotonic()):
            self._report()

    def close(self) -> None:
        """Report no more, and keep nothing."""
        with self._lock:
            self._let_go()

    def plan(self, scheduled) -> None:
        """Take what the scheduler planned for a step."""
        with self._lock:
            if self.blocks:
                self.blocks.take(scheduled)

    def step(self, scheduled, outputs) -> None:
        """Take what came of a planned step."""
        now_s = time.monotonic()
        with self._lock:
            self.count += 1
            if not self._is_heard(now_s):
                return
            if scheduled.total_num_scheduled_tokens:
                self._record(now_s, scheduled, outputs)
            told = now_s >= self.due_s and self._report()
        if not told and not self.scheduler.requests:
            self._report_later()

    def _record(self, now_s: float, scheduled, outputs) -> None:
        cached, tokens = scheduled.scheduled_cached_reqs, scheduled.num_scheduled_tokens
        drafts = scheduled.scheduled_spec_decode_tokens
        decode = 0
        for name, answered in zip(cached.req_ids, cached.num_output_tokens, strict=True):
            if answered and tokens[name] <= 1 + len(drafts.get(name, ())):
                decode += tokens[name]
        output = sum(self._advanced(now_s, each) for core in outputs.values() for each in core.outputs)
        self.steps.append((
            round(now_s, 4), scheduled.total_num_scheduled_tokens - decode, decode, output, len(tokens),
            *self._counts(), len(getattr(scheduled, "preempted_req_ids", None) or ()),
        ))  # fmt: skip
        if len(self.steps) > KEPT:
            del self.steps[0]
            self.missed += 1
        del self.requests[:-KEPT]
        if len(self._open) > 64 + 2 * len(self.scheduler.requests):  # aborted ones never end here
            self._open = {name: open_ for name, open_ in self._open.items() if name in self.scheduler.requests}

    def _advanced(self, now_s: float, output) -> int:
        """How many tokens one request got; at its end its times are kept."""
        count = len(output.new_token_ids)
        if not (began := self._open.get(output.request_id)):
            times = {int(each.type): each.timestamp for each in reversed(output.events or ())}
            queued_s, started_s = times.get(_QUEUED), times.get(_SCHEDULED)
            began = self._open[output.request_id] = [
                None if queued_s is None or started_s is None else round(started_s - queued_s, 6),
                None if started_s is None else round(now_s - started_s, 6),
                now_s, count, 0,
            ]  # fmt: skip
        began[4] += count
        if output.finish_reason is not None:
            queue_s, first_s, first_at_s, first, total = self._open.pop(output.request_id)
            if total:
                between_s = round((now_s - first_at_s) / (total - first), 6) if total > first else None
                self.requests.append((round(now_s, 4), queue_s, first_s, between_s, total))
        return count

    def _counts(self) -> tuple[int, int]:
        """(running, waiting)."""
        if counted := getattr(self.scheduler, "get_request_counts", None):
            return counted()
        return len(self.scheduler.running), len(self.scheduler.waiting)

    def _report(self) -> bool:
        """Whether all of it is out of our hands."""
        began_s, busy_s = time.monotonic(), time.thread_time()
        told = self._send(self._block_map(began_s)) and self._send_rest()
        self.due_s = began_s + max(PERIOD_S, (time.thread_time() - busy_s) / SHARE)
        return told

    def _report_later(self) -> None:
        """The core now sleeps until a request comes: the last state must not wait for that."""
        if self._timer:
            self._timer.cancel()
        self._timer = threading.Timer(max(0.0, self.due_s - time.monotonic()), self._report_rest, (self.count,))
        self._timer.daemon = True
        self._timer.start()

    def _report_rest(self, count: int) -> None:
        """In the timer's thread: only where the core has slept all along is what was read of one moment."""
        while count == self.count and not self.scheduler.requests:
            with self._lock:
                if self._socket is None:
                    return
                map_ = self._block_map(time.monotonic())
                if count != self.count or self.scheduler.requests or (self._send(map_) and self._send_rest()):
                    return
            time.sleep(PERIOD_S)

    def _send_rest(self) -> bool:
        if self.steps and self._send(StepsDone(*zip(*self.steps, strict=True), missed=self.missed, rank=self.rank)):
            self.steps, self.missed = [], 0
        if self.requests and self._send(RequestsDone(*zip(*self.requests, strict=True), rank=self.rank)):
            self.requests = []
        return not self.steps and not self.requests

    def _block_map(self, at_s: float) -> BlockMap:
        if self.blocks is None:
            self.blocks = Blocks(self.pool)
        self.blocks.refresh(self.scheduler.requests)
        held, hashed = self.blocks.held, self.blocks.hashed
        states = np.minimum(held, BlockMap.NULL - 1).astype(np.uint8) | (hashed * np.uint8(BlockMap.HASHED))
        states[self.pool.null_block.block_id] = BlockMap.NULL
        single = self.managers[0] if len(self.managers) == 1 else None
        return BlockMap(
            at_s=round(at_s, 4),
            total=len(held),
            used=int(np.count_nonzero(held)),
            cached=int(np.count_nonzero(hashed & (held == 0))),
            packed=base64.b64encode(zlib.compress(states.tobytes(), 1)).decode(),
            block_size=single.block_size if single else None,
            unfilled=_unfilled(single, self.scheduler.running) if single else None,
            groups=len(self.managers),
            rank=self.rank,
        )

    def _is_heard(self, now_s: float) -> bool:
        """Whether somebody listens; asked again once a second where nobody did."""
        if self._socket is None and now_s >= self.retry_s:
            self.retry_s = now_s + RETRY_S
            socket_ = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                socket_.setblocking(False)
                socket_.connect(self.path)
                self._socket = socket_
            except OSError:
                socket_.close()
        return self._socket is not None

    def _send(self, event: Event) -> bool:
        """Whether it is out of our hands; False: the listener is slow, later perhaps."""
        if self._socket is None:
            return True
        line = encode(event).encode()
        try:
            try:
                self._socket.send(line)
            except OSError as error:
                if error.errno != errno.EMSGSIZE:
                    raise
                _send_as_file(self._socket, line)
        except BlockingIOError:
            return False
        except OSError:
            self._let_go()
        return True

    def _let_go(self) -> None:
        if self._socket:
            self._socket.close()
        self._socket = self.blocks = None
        self.steps, self.requests, self.missed = [], [], 0


def _send_as_file(socket_: socket.socket, line: bytes) -> None:
    """For what no datagram holds (some 200 KiB): the map of a cache of many hundred thousand blocks."""
    with open(os.memfd_create("lathe-tap"), "wb", buffering=0) as file:
        file.write(line)
        socket.send_fds(socket_, [b"-"], [file.fileno()])


def _unfilled(manager, running: Iterable) -> int:
    """Token slots in the blocks of running requests that hold no token."""
    kept = manager.req_to_blocks
    slots = (len(kept.get(each.request_id, ())) * manager.block_size - each.num_computed_tokens for each in running)
    return sum(max(0, each) for each in slots)
