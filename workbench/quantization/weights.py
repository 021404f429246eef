"""The tensors of a safetensors folder, read one at a time."""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import FileIO
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from workbench.catalog import headers, weights
from workbench.errors import WorkbenchError

DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "I64": torch.int64, "I32": torch.int32,
    "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip

AHEAD = 4  # tensors that are read at a time


class Weights:
    """Every tensor of a model folder by name; nothing is read before it is asked for.

    Files are read, not mapped: what is mapped counts as the process's memory until the file is closed.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        found = weights.read(folder)  # the same files and tensors that the plan was made of
        self._of_name = {tensor.name: tensor for tensor in found.tensors}
        if not found.tensors:
            problem = next(iter(found.problems), None)
            raise WorkbenchError(
                problem.sentence.template if problem else "No safetensors file was found in {folder}.",
                "Choose the model's safetensors folder.",
                **(problem.sentence.values if problem else {"folder": str(folder)}),
            )

    def __contains__(self, name: str) -> bool:
        return name in self._of_name

    def __iter__(self) -> Iterator[str]:
        return iter(self._of_name)

    def read(self, name: str) -> Tensor:
        """The tensor in its stored dtype, on the CPU."""
        return self._fill(self._empty(name), name)

    def rows(self, name: str, wanted: Tensor) -> Tensor:
        """Some rows of a matrix, in float32; no others are read."""
        stored = self._stored(name)
        numbers, place = wanted.unique(return_inverse=True)
        if numbers[0] < 0 or numbers[-1] >= stored.shape[0]:
            raise WorkbenchError(
                "The tokenizer gives the number {number}, but {name} has {rows} rows only.",
                "The tokenizer is another model's, or has tokens that this one does not know: fetch both again.",
                number=int(numbers[-1]), name=name, rows=stored.shape[0],
            )  # fmt: skip
        found = torch.empty(len(numbers), *stored.shape[1:], dtype=DTYPES[stored.dtype])
        left, width = bytes_of(found), stored.bytes // stored.shape[0]
        with self._opened(stored) as file:
            for at, number in enumerate(numbers.tolist()):
                row = left[at * width : (at + 1) * width]
                if os.preadv(file.fileno(), [row], stored.offset + number * width) != width:
                    raise self._unreadable(stored.file, name)
        return found[place].to(torch.float32)

    def below(self, prefix: str) -> dict[str, Tensor]:
        """All tensors whose name begins with `prefix`, by the rest of their name."""
        names = [name for name in self._of_name if name.startswith(prefix)]
        return {name.removeprefix(prefix): tensor for name, tensor in self.each(names)}

    def each(self, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
        """These tensors in their order; the next few are read meanwhile, as one thread alone reads slowly."""
        left, reading = iter(names), deque()
        with ThreadPoolExecutor(AHEAD) as pool:

            def ask(count: int) -> None:
                # The memory is taken here: what a thread takes comes from a store of its own that hardly shrinks.
                for name in islice(left, count):
                    reading.append((name, pool.submit(self._fill, self._empty(name), name)))

            ask(AHEAD)
            while reading:
                name, found = reading.popleft()
                tensor = found.result()
                ask(1)
                yield name, tensor
                del found, tensor  # not held while the next is waited for

    def _empty(self, name: str) -> Tensor:
        stored = self._stored(name)
        return torch.empty(stored.shape, dtype=DTYPES[stored.dtype])

    def _fill(self, tensor: Tensor, name: str) -> Tensor:
        stored, left = self._stored(name), bytes_of(tensor)
        with self._opened(stored) as file:
            file.seek(stored.offset)
            while left and (count := file.readinto(left)):  # one call may bring fewer than asked for
                left = left[count:]
        if left:
            raise self._unreadable(stored.file, name)
        return tensor

    def _stored(self, name: str) -> headers.Tensor:
        stored = self._of_name.get(name)
        if stored is None:
            raise WorkbenchError(
                "The tensor {name} is not in {folder}.", "The model is incomplete: fetch it again.",
                name=name, folder=str(self.folder),
            )  # fmt: skip
        if stored.dtype not in DTYPES:
            raise self._unreadable(stored.file, f"{name}: {stored.dtype}")
        return stored

    @contextmanager
    def _opened(self, stored: headers.Tensor) -> Iterator[FileIO]:
        try:
            with (self.folder / stored.file).open("rb", buffering=0) as file:
                yield file
        except OSError as error:
            raise self._unreadable(stored.file, error.strerror or str(error)) from error

    def _unreadable(self, shard: str, reason: str) -> WorkbenchError:
        return WorkbenchError(
            "The file {file} cannot be read: {reason}.", "The model is incomplete: fetch it again.",
            file=shard, reason=reason.rstrip("."),
        )  # fmt: skip


def bytes_of(tensor: Tensor) -> memoryview:
    """Where the values of a contiguous tensor on the CPU lie, to be read or written to."""
    return memoryview(tensor.view(-1).view(torch.uint8).numpy()) if tensor.numel() else memoryview(b"")
