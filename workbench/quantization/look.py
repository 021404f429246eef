"""The histogram of one tensor, before any run."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.errors import WorkbenchError
from workbench.events import Event
from workbench.quant_events import Histogram
from workbench.quantization import stats
from workbench.quantization.weights import Weights


def run(spec: Mapping[str, Any], folder: Path) -> Iterator[Event]:
    """spec: {"model": folder, "module": a linear's or a tensor's name}. One Histogram, finite values only."""
    weights = Weights(Path(spec["model"]))
    name = spec["module"]
    tensor = f"{name}.weight" if f"{name}.weight" in weights else name
    if tensor not in weights:
        raise WorkbenchError(
            "There is no weight called {name} in this model.", "Choose a module from the tree.", name=name
        )
    yield histogram(name, weights.read(tensor))


def histogram(name: str, values) -> Histogram:
    """`values`: a tensor of any float dtype; 50 million values take about a second on two cores."""
    spread = stats.spread(values)
    return Histogram(
        name=name,
        shape=tuple(values.shape),
        low=spread.low,
        high=spread.high,
        counts=stats.counts(values, spread.low, spread.high),
        not_finite=spread.not_finite,
        kurtosis=spread.kurtosis,
        outliers=spread.outliers,
    )
