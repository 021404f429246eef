"""Finished blocks on disk: a run that was ended, or whose recipe changed later on, does not make them again.

`cache/blocks` in the home folder holds one folder for each model and text, in it one for each block and everything
before it: its tensors as they go into the result, its events, and the activations that leave it.
"""

import copy
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from workbench import paths
from workbench.events import Event, Note, decode, encode
from workbench.quant_events import ModuleStarted
from workbench.quantization.blocks import Skeleton
from workbench.quantization.weights import Weights

ACTIVATION_BYTES = 8 << 30  # of all runs together; the newest of the present run are kept beyond that
SHARE_OF_FREE = 0.2  # what the activations may take of the space that is free
OTHERS_BYTES = 32 << 30  # of the models that are not quantized now
PACE = 100 << 20  # bytes of activations for each second of the run, about a tenth of what a disk writes
SPARE_BYTES = 1 << 30  # never filled up to the last byte
BLOCK, EVENTS, LEAVING = "block.safetensors", "events.jsonl", "leaving.activations"


class KeptBlocks:
    """The finished blocks of one model and text. `root` is chain.root's; `reserve` bytes of disk belong to the result.

    Whatever goes wrong here costs the reuse and never the run.
    """

    def __init__(self, root: str, reserve: int):
        self._all = paths.inside_home("cache", "blocks")
        self._place = self._all / root
        self._reserve = reserve
        self._given_up = False
        self._since = time.monotonic()

    def reach(self, links: list[str]) -> int:
        """How many blocks from the first on are there; `links` are chain.links of the whole run."""
        for count, link in enumerate(links):
            if not _sound(self._place / link / BLOCK):
                return count
        return len(links)

    def tensors(self, link: str) -> dict[str, Tensor]:
        """A block's part of the result, by full name."""
        os.utime(self._place / link)
        return load_file(self._place / link / BLOCK)

    def events(self, link: str) -> Iterator[Event]:
        """What was told while the block was made."""
        # Not splitlines(): a name may hold the other line ends that Unicode knows.
        for line in filter(None, (self._place / link / EVENTS).read_text(encoding="utf-8").split("\n")):
            yield decode(line)

    @torch.no_grad()
    def forward(self, skeleton: Skeleton, links: list[str], hidden: list[Tensor]) -> None:
        """Turn the embedded batches in `hidden` into those that leave the last of these blocks, bit for bit.

        The nearest activations that were kept are read; blocks after them are run as they were quantized.
        """
        home = hidden[0].device
        for index in reversed(range(len(links))):
            file = self._place / links[index] / LEAVING
            if _sound(file):
                loaded = load_file(file)
                hidden[:] = [loaded[str(at)].to(home) for at in range(len(hidden))]
                links, first = links[index + 1 :], index + 1
                break
        else:
            first = 0
        reader = copy.copy(skeleton)
        for index, link in enumerate(links, first):
            reader.weights = Weights(self._place / link)
            block = reader.load(index)
            for at, state in enumerate(hidden):
                hidden[at] = skeleton.forward(block, state.to(skeleton.device)).to(home)

    def keep(self, link: str, tensors: dict[str, Tensor], events: list[Event], hidden: list[Tensor]) -> Iterator[Event]:
        """Put a finished block on disk, whole or not at all. Says so once when there is no space for it."""
        if self._given_up or (self._place / link).exists():
            return
        size = _bytes(tensors.values())
        if self._free() < size + self._reserve + SPARE_BYTES:
            yield self._give_up()
            return
        making = self._place / f"{link}.{os.getpid()}"
        try:
            making.mkdir(parents=True)
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, making / BLOCK)
            told = [encode(event) for event in events if not isinstance(event, ModuleStarted)]
            (making / EVENTS).write_text("\n".join(told), encoding="utf-8")
            if hidden and self._worth(_bytes(hidden)) and self._make_room(_bytes(hidden)):
                leaving = {str(at): state.detach().cpu().contiguous() for at, state in enumerate(hidden)}
                save_file(leaving, making / LEAVING)
                self._since = time.monotonic()
            making.rename(self._place / link)
        except (OSError, SafetensorError):
            shutil.rmtree(making, ignore_errors=True)
            yield self._give_up()

    def tidy(self) -> None:
        """Remove what killed runs had begun here, and the oldest models' blocks where they or the disk are too full."""
        old = time.time() - 86400
        for place in self._all.iterdir():
            for entry in place.iterdir() if place.is_dir() else ():
                if "." in entry.name and entry.stat().st_mtime < old:
                    shutil.rmtree(entry, ignore_errors=True)
        others = sorted((place for place in self._all.iterdir() if place != self._place), key=_age)
        sizes = [sum(file.stat().st_size for file in place.rglob("*") if file.is_file()) for place in others]
        while others and (sum(sizes) > OTHERS_BYTES or self._free() < self._reserve + 2 * SPARE_BYTES):
            shutil.rmtree(others.pop(0), ignore_errors=True)
            sizes.pop(0)

    def _worth(self, size: int) -> bool:
        """Whether the run is slow enough: the way from the last ones kept can also be gone again, block by block."""
        return size <= PACE * (time.monotonic() - self._since)

    def _make_room(self, size: int) -> bool:
        """Whether `size` bytes of activations may be written; older ones make way for them, the oldest first."""
        files = sorted(self._all.glob(f"*/*/{LEAVING}"), key=_age)
        held = sum(file.stat().st_size for file in files)
        while files and held + size > min(ACTIVATION_BYTES, int(SHARE_OF_FREE * (self._free() + held))):
            held -= files[0].stat().st_size
            files.pop(0).unlink()
        return self._free() >= size + self._reserve + SPARE_BYTES

    def _free(self) -> int:
        return shutil.disk_usage(self._all).free

    def _give_up(self) -> Note:
        self._given_up = True
        return Note(
            "Too little space is free in {folder}: finished blocks are not kept, so a run that ends early starts anew.",
            {"folder": str(self._all)}, "warning",
        )  # fmt: skip


def _bytes(tensors) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _sound(file: Path) -> bool:
    """There, and as long as its own header says."""
    try:
        with safe_open(str(file), framework="pt"):
            return True
    except (OSError, SafetensorError):
        return False
