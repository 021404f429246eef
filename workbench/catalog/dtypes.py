"""The number types that a checkpoint stores."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from workbench.catalog.headers import Tensor
from workbench.catalog.problem import Problem
from workbench.words import Sentence

FLOATS = ("BF16", "F16", "F32", "F64")
_NAMES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32", "float64": "F64"}


def read(tensors: Iterable[Tensor], config: dict[str, Any]) -> tuple[str, Problem | None]:
    """The floating type of most weights, and a note where the matrices mix types or the configuration differs."""
    claimed = str(config.get("dtype") or config.get("torch_dtype") or "")
    claimed = _NAMES.get(claimed.removeprefix("torch."), "")
    # Small vectors, such as a router's bias, are often kept in float32 on purpose.
    stored = Counter()
    for tensor in tensors:
        if tensor.dtype in FLOATS and len(tensor.shape) > 1 and not tensor.name.endswith("_scale"):
            stored[tensor.dtype] += tensor.bytes
    if not stored:
        return claimed, None
    main = stored.most_common(1)[0][0]
    if len(stored) > 1:
        listed = ", ".join(name for name, _ in stored.most_common())
        return main, Problem("mixed_dtype", Sentence("The weights mix number types: {listed}.", {"listed": listed}))
    if claimed and claimed != main:
        values = {"stored": main, "claimed": claimed}
        return main, Problem(
            "dtype_differs", Sentence("The weights are stored as {stored}; config.json says {claimed}.", values)
        )
    return main, None
