"""A safetensors file in the making: values go to disk as they come, only their places are held in memory.

The format has the header first and the widest types in front of the others, so the values are copied behind it at the
end (https://github.com/huggingface/safetensors#format).
"""

import json
import os
import tempfile
from pathlib import Path

from torch import Tensor

from workbench.catalog import headers
from workbench.quantization.weights import DTYPES, bytes_of

NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Shard:
    """Gathers tensors for the file at `path`, which is there once it is closed. `bytes` is what their values take.

    Until then the values lie in a file without a name in the same folder, which goes with the process.
    """

    def __init__(self, path: Path):
        self.path, self.bytes = path, 0
        self.tensors: dict[str, headers.Tensor] = {}
        self._values = tempfile.TemporaryFile(dir=path.parent, buffering=0)  # noqa: SIM115 (closed below)

    def add(self, name: str, tensor: Tensor) -> None:
        left = bytes_of(tensor.contiguous())
        while left:  # one call may take fewer than asked for
            left = left[self._values.write(left) :]
        self.tensors[name] = headers.Tensor(
            name, NAMES[tensor.dtype], tuple(tensor.shape), self.path.name, self.bytes, tensor.nbytes
        )
        self.bytes += tensor.nbytes

    def close(self) -> None:
        """Write the file."""
        order = sorted(self.tensors.values(), key=lambda tensor: (-DTYPES[tensor.dtype].itemsize, tensor.name))
        header, end = {"__metadata__": {"format": "pt"}}, 0
        for tensor in order:
            begin, end = end, end + tensor.bytes
            header[tensor.name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": (begin, end)}
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with self._values, self.path.open("wb", buffering=0) as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for tensor in order:
                at, end = tensor.offset, tensor.offset + tensor.bytes
                while at < end:  # one call may copy fewer than asked for
                    at += os.sendfile(file.fileno(), self._values.fileno(), at, end - at)

    def discard(self) -> None:
        """Give the values up, if the file is not written."""
        self._values.close()
