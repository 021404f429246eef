"""The tap's two ends without vLLM: a scheduler of the same shape in this process, a real socket between them."""

import asyncio
import socket
import stat
import time
from types import SimpleNamespace as Thing

import numpy as np
import pytest

from workbench.core_events import BlockMap, RequestsDone, StepsDone, UsageOnly
from workbench.engine import plugin_scheduler, plugin_tap, plugin_words
from workbench.engine.tap import NAME, Listener
from workbench.engine_events import EngineReady, EngineSample
from workbench.events import decode, encode
from workbench.measure import series
from workbench.runs import EngineRun

BLOCKS, SIZE = 12, 16


class Scheduler:
    """As much of vLLM's as the tap reads. `step` plans `tokens` by request, of which `outputs` come out."""

    def __init__(self, rank=0, at_first=lambda scheduler: None):
        pool = Thing(
            blocks=[Thing(ref_cnt=0, _block_hash=None, block_id=n) for n in range(BLOCKS)], enable_caching=True
        )
        pool.get_num_free_blocks = lambda: sum(block.ref_cnt == 0 for block in pool.blocks[1:])
        pool.null_block = pool.blocks[0]
        pool.null_block.ref_cnt = 3  # vLLM does not maintain its own block's count
        self.manager = Thing(block_size=SIZE, req_to_blocks={})
        self.kv_cache_manager = Thing(block_pool=pool, coordinator=Thing(single_type_managers=(self.manager,)))
        self.vllm_config = Thing(parallel_config=Thing(data_parallel_index=rank))
        self.running, self.waiting, self.requests = [], [], {}
        self.blocks = pool.blocks
        at_first(self)

    def hold(self, name, *numbers, computed=0):
        for number in numbers:
            self.blocks[number].ref_cnt += 1
        self.manager.req_to_blocks[name] = list(numbers)
        self.running.append(Thing(request_id=name, num_computed_tokens=computed))
        self.requests[name] = self.running[-1]

    def end_all(self):
        for block in self.blocks[1:]:
            block.ref_cnt = 0
        self.running, self.requests, self.manager.req_to_blocks = [], {}, {}

    def schedule(self, plan):
        return plan

    def update_from_output(self, scheduler_output, model_runner_output):
        return model_runner_output


def planned(new=None, old=None, drafts=None, preempted=()):
    """A step's plan: `new` and `old` are tokens by request; `old` ones as (tokens, answered so far)."""
    old = old or {}
    tokens = {**(new or {}), **{name: count for name, (count, _) in old.items()}}
    return Thing(
        scheduled_new_reqs=[Thing(req_id=name, block_ids=()) for name in new or ()],
        scheduled_cached_reqs=Thing(
            req_ids=list(old), num_output_tokens=[answered for _, answered in old.values()],
            new_block_ids=[None] * len(old),
        ),
        num_scheduled_tokens=tokens, total_num_scheduled_tokens=sum(tokens.values()),
        scheduled_spec_decode_tokens=drafts or {}, preempted_req_ids=set(preempted),
    )  # fmt: skip


def gave(**tokens):
    """The step's outputs: how many tokens each request got; negative for its last ones."""
    began_s = time.monotonic()
    events = [Thing(type=1, timestamp=began_s - 0.3), Thing(type=2, timestamp=began_s - 0.1)]
    outputs = [
        Thing(request_id=name, new_token_ids=[0] * abs(n), events=events, finish_reason=1 if n < 0 else None)
        for name, n in tokens.items()
    ]
    return {0: Thing(outputs=outputs)}


@pytest.fixture
def heard(tmp_path):
    """What arrived at a listener in `tmp_path`; it is read by the test's loop."""
    events = []
    listener = Listener(events.append)

    async def open_():
        listener.open(tmp_path)
        return events, listener

    return open_


@pytest.fixture
def tap_of():
    """Makes schedulers that report in a folder; their taps end with the test."""
    made = []

    def make(folder, *arguments):
        made.append(plugin_scheduler.tapped(Scheduler, str(folder / NAME))(*arguments))
        return made[-1]

    yield make
    for each in made:
        if each._tap:
            each._tap.close()


async def until(met, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_the_map_tells_each_block_and_sums_to_the_usage(tmp_path, heard, tap_of):
    events, listener = await heard()

    def fill(scheduler):
        scheduler.hold("a", 1, 2, 3, computed=40)
        scheduler.hold("b", 1, 2, 5, computed=33)
        scheduler.hold("with a sliding window", computed=900)  # its first blocks were given back
        for number in (1, 2, 7, 8):
            scheduler.blocks[number]._block_hash = b"h"

    tap_of(tmp_path, 2, fill)
    await until(lambda: events)
    (map_,) = [event for event in events if isinstance(event, BlockMap)]
    held, hashed = series.blocks(map_)
    assert held.tolist() == [2, 2, 1, 0, 1, 0, 0, 0, 0, 0, 0]
    assert np.flatnonzero(hashed).tolist() == [0, 1, 6, 7]
    assert (map_.total, map_.used, map_.cached, map_.rank, map_.groups) == (BLOCKS, 4, 2, 2, 1)
    assert map_.unfilled == (48 - 40) + (48 - 33) and map_.block_size == SIZE
    assert decode(encode(map_)) == map_
    listener.close()


async def test_a_map_that_no_datagram_holds_comes_whole(tmp_path, heard, tap_of):
    """A million blocks in no order: 1.2 MB, where a Unix datagram takes 0.2."""
    events, listener = await heard()
    tap = tap_of(tmp_path)._tap
    random = np.random.default_rng(7)
    held, hashed = random.integers(0, 100, 1_000_000), random.random(1_000_000) < 0.5
    tap.blocks = Thing(held=held, hashed=hashed, refresh=lambda living: None)
    assert tap._report() and tap._socket
    await until(lambda: len(events) == 2)
    assert len(encode(events[1])) > 1_000_000
    found, again = series.blocks(events[1])
    assert np.array_equal(found, held[1:]) and np.array_equal(again, hashed[1:])
    listener.close()


async def test_steps_part_prompt_tokens_from_answers_and_drafts(tmp_path, heard, tap_of):
    events, listener = await heard()
    engine = tap_of(tmp_path)
    engine.hold("a", 1)
    engine.update_from_output(planned(new={"a": 30}), gave())
    engine.update_from_output(planned(old={"a": (12, 0)}, new={"b": 7}), gave(a=1, b=1))
    engine.update_from_output(planned(old={"a": (4, 1), "b": (9, 1)}, drafts={"a": [1, 2, 3]}), gave(a=3))
    engine.update_from_output(planned(old={"a": (1, 4)}, preempted=("b",)), gave(a=-1))
    engine.end_all()
    engine.update_from_output(planned(), gave())
    await until(lambda: any(isinstance(event, RequestsDone) for event in events))
    (steps,) = [event for event in events if isinstance(event, StepsDone)]
    # b's nine tokens after its first answer are what it computes anew after being put back.
    assert (steps.prefill, steps.decode) == ((30, 19, 9, 0), (0, 0, 4, 1))
    assert (steps.output, steps.requests, steps.preempted) == ((0, 2, 3, 1), (1, 2, 2, 1), (0, 0, 0, 1))
    assert (steps.running, steps.waiting, steps.missed) == ((1, 1, 1, 1), (0, 0, 0, 0), 0)
    (done,) = [event for event in events if isinstance(event, RequestsDone)]
    assert done.tokens == (5,) and done.queue_s == (pytest.approx(0.2, abs=1e-4),)
    assert done.first_s == (pytest.approx(0.1, abs=0.05),) and done.between_s[0] < 0.1
    listener.close()


async def test_ten_reports_a_second_at_most_and_the_last_state_comes_by_itself(tmp_path, heard, tap_of):
    events, listener = await heard()
    engine = tap_of(tmp_path)
    engine.hold("a", 1, 2)
    began_s = time.monotonic()
    while time.monotonic() < began_s + 0.45:
        engine.update_from_output(planned(old={"a": (1, 1)}), gave(a=1))
        await asyncio.sleep(0.002)
    engine.end_all()
    engine.update_from_output(planned(old={"a": (1, 1)}), gave(a=-1))
    took_s = time.monotonic() - began_s
    await until(lambda: [event.used for event in events if isinstance(event, BlockMap)][-1] == 0)
    maps = [event.at_s for event in events if isinstance(event, BlockMap)]
    assert len(maps) <= took_s * 10 + 3 and min(np.diff(maps)) > 0.09
    await until(lambda: sum(len(each.at_s) for each in events if isinstance(each, StepsDone)) == engine._tap.count)
    listener.close()


async def test_a_map_that_takes_long_comes_seldom(tmp_path, heard, monkeypatch, tap_of):
    _, listener = await heard()
    engine = tap_of(tmp_path)
    monkeypatch.setattr(
        engine._tap, "_block_map", lambda at_s, made=engine._tap._block_map: sum(range(2_000_000)) and made(at_s)
    )
    engine._tap.due_s = 0
    engine.update_from_output(planned(), gave())
    assert engine._tap.due_s - time.monotonic() > 0.5, "a hundredth of the time at most"
    listener.close()


async def test_nobody_who_listens_costs_nothing_and_a_slow_one_only_himself(tmp_path, heard, tap_of):
    engine = tap_of(tmp_path)  # nobody is there yet
    for _ in range(50):
        engine.update_from_output(planned(old={"a": (1, 1)}), gave(a=1))
    assert not engine._tap.steps and not engine._tap.requests and not engine._tap._open
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:  # takes in what fits and reads nothing
        deaf.bind(str(tmp_path / NAME))
        engine._tap.retry_s = 0
        busy_s = time.thread_time()
        for _ in range(3000):
            engine._tap.due_s = 0
            engine.update_from_output(planned(old={"a": (1, 1)}), gave(a=1))
        assert time.thread_time() - busy_s < 5
        assert len(engine._tap.steps) == plugin_tap.KEPT and engine._tap.missed > 0
    engine._tap.due_s = 0
    engine.update_from_output(planned(old={"a": (1, 1)}), gave(a=1))
    assert not engine._tap.steps and engine._tap._socket is None


async def test_the_socket_is_its_users_own_and_nobody_reads_it_after_the_end(tmp_path, heard):
    _, listener = await heard()
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600
    number = listener._socket.fileno()
    listener.close()
    assert not asyncio.get_running_loop().remove_reader(number), "the next file of this number is another's"


async def test_another_builds_scheduler_goes_on_without_the_tap(tmp_path, capsys):
    class Other(Scheduler):
        def __init__(self):
            super().__init__()
            del self.kv_cache_manager

    engine = plugin_scheduler.tapped(Other, str(tmp_path / NAME))()
    assert engine.update_from_output(planned(new={"a": 1}), {}) == {}
    line = capsys.readouterr().err.strip()
    told = plugin_words.usage_only("(EngineCore pid=7) " + line)
    assert "kv_cache_manager" in told.values["reason"]


async def test_a_step_that_cannot_be_read_ends_the_tap_alone(tmp_path, heard, capsys, tap_of):
    _, listener = await heard()
    engine = tap_of(tmp_path)
    tap = engine._tap
    outputs = gave(a=1)
    assert engine.update_from_output(Thing(total_num_scheduled_tokens=1), outputs) is outputs
    assert engine._tap is None and tap._socket is None and plugin_words.usage_only(capsys.readouterr().err)
    listener.close()


async def test_what_is_no_report_is_said_and_left(tmp_path, heard):
    events, listener = await heard()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        for line in (b"\xff\xfe", b"{}", b'{"kind":"Finished","path":"/etc"}', b'{"kind":"BlockMap","at":1}'):
            other.sendto(line, str(tmp_path / NAME))
    await until(lambda: len(events) == 4)
    assert all(isinstance(event, UsageOnly) for event in events) and not listener.heard
    listener.close()


def test_installing_twice_taps_once(tmp_path):
    class Config:
        def get_scheduler_cls(self):
            return Scheduler

    plugin_scheduler.install(Config, str(tmp_path / NAME))
    plugin_scheduler.install(Config, str(tmp_path / NAME))
    chosen = Config().get_scheduler_cls()
    assert chosen.__mro__[1] is Scheduler and chosen.__name__ == "Scheduler"


def test_a_run_leaves_the_warm_up_out_and_keeps_the_rest():
    def steps(at_s, missed=0):
        return StepsDone((at_s,), (5,), (0,), (1,), (1,), (1,), (0,), (0,), missed)

    run = EngineRun()
    run.state = "starting"
    run.apply(steps(1.0))
    run.apply(EngineSample(2.0))
    run.apply(EngineReady("http://127.0.0.1:1", "k", "m", 1, 1.0))
    run.apply(steps(1.9, missed=4))
    run.apply(steps(2.5, missed=2))
    run.apply(UsageOnly("why {reason}", {"reason": "x"}))
    assert (list(run.steps.at_s), run.steps.missed) == ([2.5], 2) and run.usage_only.values == {"reason": "x"}
    run.apply(BlockMap(3.0, 4, 1, 0, "", 16, 3))
    assert run.usage_only is None
    assert (list(run.blocks.used), list(run.blocks.usable), list(run.blocks.unfilled)) == ([1], [3], [3])
