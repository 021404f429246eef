"""What enters the linear layers of a block while it runs, as second moments, and how those lie on disk."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from workbench import moments_kept
from workbench.errors import WorkbenchError
from workbench.quantization import place
from workbench.quantization.moments import Moments
from workbench.quantization.stats import is_finite

DIAGONAL = 128  # inputs to a block on the diagonal, where the whole matrix would take too much space


class DiagonalMoments:
    """The blocks on the diagonal of H = XᵀX / tokens, [blocks, 128, 128]; the last one is filled up with zeros.

    Rounding errors of different groups are nearly independent, so that what is left out hardly changes an output
    error; it is still an estimate.
    """

    def __init__(self, size: int, device: torch.device):
        self._fill = -size % DIAGONAL
        self.blocks = torch.zeros((size + self._fill) // DIAGONAL, DIAGONAL, DIAGONAL, device=device)
        self.tokens = 0

    def add(self, inputs: Tensor) -> None:
        """inputs: [..., size]; every row is one token."""
        rows = nn.functional.pad(inputs.reshape(-1, inputs.shape[-1]).to(torch.float32), (0, self._fill))
        parts = rows.unflatten(1, (-1, DIAGONAL)).transpose(0, 1)
        total = self.tokens + rows.shape[0]
        self.blocks.baddbmm_(parts.transpose(1, 2), parts, beta=self.tokens / total, alpha=1 / total)
        self.tokens = total


class Gathering:
    """The moments of each distinct input of a block; layers that read the same input share them.

    `linears` are the block's layers by full name; inputs wider than `widest` are kept as blocks of the diagonal.
    """

    def __init__(self, linears: Mapping[str, nn.Linear], widest: int, device: torch.device):
        self._linears, self._widest, self._device = linears, widest, device
        self._owner: dict[str, str] = {}
        self._seen: list[tuple[Tensor, str]] = []
        self.moments: dict[str, Moments | DiagonalMoments] = {}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Gather from every batch that runs through the block inside this."""
        with ExitStack() as hooks:
            for name, linear in self._linears.items():
                handle = linear.register_forward_pre_hook(lambda _, given, name=name: self._take(name, given[0]))
                hooks.callback(handle.remove)
            yield
        self._seen.clear()

    def next_batch(self) -> None:
        """Forget which inputs were seen: the next batch brings new ones."""
        self._seen.clear()

    def _take(self, name: str, inputs: Tensor) -> None:
        if name not in self._owner:
            self._owner[name] = next((owner for seen, owner in self._seen if seen is inputs), name)
        if self._owner[name] != name:
            return
        self._seen.append((inputs, name))
        if name not in self.moments:
            kind = Moments if inputs.shape[-1] <= self._widest else DiagonalMoments
            self.moments[name] = kind(inputs.shape[-1], self._device)
        self.moments[name].add(inputs)

    def save(self, path: Path) -> tuple[str, ...]:
        """Write the block's file in one step; the layers whose moments are estimates."""
        tensors, tokens = {}, {}
        for name, moments in self.moments.items():
            whole = isinstance(moments, Moments)
            tensors[name] = (moments.matrix if whole else moments.blocks).cpu().contiguous()
            tokens[name] = moments.tokens
        about = {"owners": json.dumps(self._owner), "tokens": json.dumps(tokens)}
        write(path, tensors, about)
        return tuple(name for name, owner in self._owner.items() if tensors[owner].dim() == 3)


def write(path: Path, tensors: dict[str, Tensor], about: dict[str, str] | None = None) -> None:
    """A file that is either whole or not there."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with place.disk_errors(path):
            save_file(tensors, str(beside), metadata=about)
            beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def check_finite(name: str, tensor: Tensor) -> None:
    """Refuse a value that is no number: nothing that is computed with it would be one."""
    if not is_finite(tensor):
        raise WorkbenchError(
            "The tensor {name} holds {count} {count:value that is|values that are} not finite.",
            "The model is damaged: fetch it again.",
            name=name, count=int((~torch.isfinite(tensor)).sum()),
        )  # fmt: skip


def is_whole(path: Path) -> bool:
    """Whether a block's file can be read."""
    try:
        with safe_open(str(path), framework="pt") as file:
            return "owners" in (file.metadata() or {})
    except (OSError, SafetensorError):
        return False


class Kept:
    """The statistics in a folder, as far as they have come."""

    def __init__(self, folder: Path):
        self.folder = folder

    def moments(self, name: str, block: int) -> tuple[Tensor, bool, tuple[str, ...]] | None:
        """H float32 [in, in], whether it is only its diagonal's blocks, and the layers that read this input; None
        where the layer has none (yet)."""
        try:
            with safe_open(str(moments_kept.block_file(self.folder, block)), framework="pt") as file:
                owners = json.loads(file.metadata()["owners"])
                if name not in owners:
                    return None
                stored = file.get_tensor(owners[name])
        except (OSError, SafetensorError):
            return None
        readers = tuple(reader for reader, owner in owners.items() if owner == owners[name])
        return (torch.block_diag(*stored), True, readers) if stored.dim() == 3 else (stored, False, readers)

    def tokens(self, name: str, block: int) -> int:
        """How many calibration tokens a layer's statistics are of; 0 where it has none."""
        try:
            with safe_open(str(moments_kept.block_file(self.folder, block)), framework="pt") as file:
                about = file.metadata()
                return json.loads(about["tokens"]).get(json.loads(about["owners"]).get(name), 0)
        except (OSError, SafetensorError):
            return 0

    def output_weights(self) -> dict[str, Tensor]:
        """By layer: how much each output matters to the answer, float32 [out]; empty until all is gathered."""
        try:
            with safe_open(str(self.folder / moments_kept.OUTPUTS), framework="pt") as file:
                return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError):
            return {}
