"""The tensors of a safetensors folder, read one at a time."""

import json
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from workbench.errors import WorkbenchError

OPEN = 3  # shards at a time: what is mapped counts as the process's memory


class Weights:
    """Every tensor of a model folder by name; nothing is read before it is asked for."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._shard_of: dict[str, str] = {}
        self._open: dict[str, safe_open] = {}
        index = folder / "model.safetensors.index.json"
        if index.is_file():
            self._shard_of = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        else:
            for shard in sorted(folder.glob("*.safetensors")):
                self._shard_of |= dict.fromkeys(self._file(shard.name).keys(), shard.name)
        if not self._shard_of:
            raise WorkbenchError(
                "No safetensors file was found in {folder}.",
                "Choose the model's safetensors folder.",
                folder=str(folder),
            )

    def __contains__(self, name: str) -> bool:
        return name in self._shard_of

    def __iter__(self) -> Iterator[str]:
        return iter(self._shard_of)

    def read(self, name: str) -> Tensor:
        """The tensor in its stored dtype, on the CPU."""
        if name not in self._shard_of:
            raise WorkbenchError(
                "The tensor {name} is not in {folder}.", "The model is incomplete: fetch it again.",
                name=name, folder=str(self.folder),
            )  # fmt: skip
        return self._file(self._shard_of[name]).get_tensor(name)

    def rows(self, name: str, wanted: Tensor) -> Tensor:
        """Some rows of a matrix, in float32."""
        return self.read(name)[wanted].to(torch.float32)

    def below(self, prefix: str) -> dict[str, Tensor]:
        """All tensors whose name begins with `prefix`, by the rest of their name."""
        return {name.removeprefix(prefix): self.read(name) for name in self._shard_of if name.startswith(prefix)}

    def _file(self, shard: str) -> safe_open:
        if shard not in self._open:
            if len(self._open) >= OPEN:
                self._open.pop(next(iter(self._open)))
            try:
                self._open[shard] = safe_open(str(self.folder / shard), framework="pt")
            except (OSError, SafetensorError) as error:
                raise WorkbenchError(
                    "The file {file} cannot be read: {reason}.", "The model is incomplete: fetch it again.",
                    file=shard, reason=str(error).rstrip("."),
                ) from error  # fmt: skip
        return self._open[shard]
