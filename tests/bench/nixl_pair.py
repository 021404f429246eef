"""NIXL alone between two processes, as two engines use it: how fast one reads blocks of the other's memory.

`python tests/bench/nixl_pair.py [--megabytes N] [--only NAME …]`. With two GPUs each process sees one of them, as
engines apart do; without any, both have memory of the processor. Each line is the best of three reads of the same
bytes, in blocks as small as one layer's part of a vLLM block and in large ones; what arrived is compared. Environments:
"ours" is what Lathe gives its engines; the others say what would be won or lost with other settings of UCX.
"""

import argparse
import json
import multiprocessing
import os
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from workbench.engine.facts import EngineFacts
from workbench.engine.handover import environment
from workbench.engine.profile import Profile
from workbench.engine.separation import Leg

BLOCKS = (16 * 1024, 1024 * 1024)  # bytes
READS = 3
LIMIT_S = 30.0


def environments(gpus: int) -> dict[str, dict[str, str]]:
    """What both processes get, by name."""
    facts = EngineFacts("", "", None, not gpus, frozenset(), False, None)
    ours = environment(Leg(Profile(Path("model"))), 0, facts)
    if not gpus:
        return {"ours": ours}
    anywhere = {name: value for name, value in ours.items() if name != "UCX_NET_DEVICES"}
    return {
        "ours": ours,
        "reads without NVLink": ours | {"UCX_CUDA_IPC_ENABLE_GET_ZCOPY": "on"},
        "any network device": anywhere,
        "no direct copies": ours | {"UCX_TLS": "^cuda_ipc"},
    }


def hold(env: dict[str, str], gpu: int | None, size: int, pipe: Any) -> None:
    """The process whose memory is read."""
    agent, memory, torch = _agent("holder", env, gpu, size)
    memory.copy_(torch.arange(size, device=memory.device, dtype=torch.int32).to(torch.uint8))
    _settled(torch, gpu)
    agent.register_memory(memory)
    pipe.send((agent.get_agent_metadata(), memory.data_ptr()))
    pipe.recv()


def read(env: dict[str, str], gpu: int | None, size: int, pipe: Any) -> None:
    """The process that reads; tells GB/s by the size of a block, or what went wrong."""
    import numpy

    agent, memory, torch = _agent("reader", env, gpu, size)
    agent.register_memory(memory)
    metadata, address = pipe.recv()
    began = time.perf_counter()
    holder = agent.add_remote_agent(metadata)
    holder = holder.decode() if isinstance(holder, bytes) else holder
    agent.make_connection(holder)
    found: dict[str, Any] = {"connect_s": time.perf_counter() - began}
    kind = "DRAM" if gpu is None else "VRAM"
    for block in BLOCKS:
        order = numpy.random.default_rng(0).permutation(size // block)
        sides = []
        for start, place in (("", memory.data_ptr()), (holder, address)):
            rows = numpy.zeros((len(order), 3), dtype=numpy.uint64)
            rows[:, 0] = place + numpy.arange(len(order), dtype=numpy.uint64) * block
            rows[:, 1] = block
            sides.append(agent.prep_xfer_dlist(start, rows, kind))
        taken = []
        for _ in range(READS):
            memory.zero_()
            _settled(torch, gpu)
            handle = agent.make_prepped_xfer("READ", sides[0], order.astype("int32"), sides[1], order.astype("int32"))
            began = time.perf_counter()
            state = agent.transfer(handle)
            while state == "PROC" and time.perf_counter() - began < LIMIT_S:
                state = agent.check_xfer_state(handle)
            taken.append(time.perf_counter() - began)
            if state != "DONE":
                found["error"] = f"{state} after {taken[-1]:.1f} s"
                break
            agent.release_xfer_handle(handle)
        if "error" in found:
            break
        expected = torch.arange(size, device=memory.device, dtype=torch.int32).to(torch.uint8)
        found[f"{block // 1024} KiB GB/s"] = size / min(taken) / 1e9
        found["equal"] = found.get("equal", True) and bool((memory == expected).all())
    pipe.send(found)


def _agent(name: str, env: dict[str, str], gpu: int | None, size: int) -> tuple[Any, Any, Any]:
    os.environ |= env
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    import torch
    from nixl._api import nixl_agent, nixl_agent_config

    memory = torch.zeros(size, dtype=torch.uint8, device="cpu" if gpu is None else "cuda")
    return nixl_agent(name, nixl_agent_config(num_threads=4)), memory, torch  # vLLM's own number


def _settled(torch: Any, gpu: int | None) -> None:
    if gpu is not None:
        torch.cuda.synchronize()


def measured(env: dict[str, str], gpus: tuple[int | None, int | None], size: int) -> dict[str, Any]:
    """What one pair of processes found; they are gone afterwards."""
    spawned = multiprocessing.get_context("spawn")
    pipes = [spawned.Pipe() for _ in range(2)]
    pair = [
        spawned.Process(target=work, args=(env, gpu, size, pipe[1]), daemon=True)
        for work, gpu, pipe in zip((hold, read), gpus, pipes, strict=True)
    ]
    for each in pair:
        each.start()
    holder, reader = (pipe[0] for pipe in pipes)
    try:
        if not holder.poll(LIMIT_S):
            return {"error": "the holder did not start"}
        reader.send(holder.recv())
        return reader.recv() if reader.poll(3 * LIMIT_S) else {"error": "no answer"}
    except EOFError:
        return {"error": "a process ended"}
    finally:
        for each in pair:
            each.kill()
            each.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--only", nargs="*", default=[], help="these environments alone")
    given = parser.parse_args()
    import torch

    count = torch.cuda.device_count()
    gpus = (0, count - 1) if count else (None, None)
    print(f"NIXL {version('nixl')}, torch {torch.__version__}, GPUs {gpus}, {given.megabytes} MB", flush=True)
    for name, env in environments(count).items():
        if given.only and name not in given.only:
            continue
        began = time.perf_counter()
        found = measured(env, gpus, given.megabytes * 1024 * 1024)
        told = {key: round(value, 3) if isinstance(value, float) else value for key, value in found.items()}
        print(f"{name}: {json.dumps(told)} (whole run {time.perf_counter() - began:.1f} s)", flush=True)


if __name__ == "__main__":
    main()
