"""What quantization, its measures and a what-if report; see events.py."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ModuleStarted:
    """Work on one linear layer begins."""

    name: str
    block: int


@dataclass(frozen=True, slots=True)
class ModuleDone:
    """One linear layer is quantized and packed.

    `before` and `after` are counts over equal bins between `low` and `high`; each sums to the number of finite
    weights, values outside the range counted in the end bins. `after` is read back from the packed tensor.
    `levels` are the grid's values of a typical group, ascending. Errors are relative squared errors:
    weight ‖W-Q‖²/‖W‖², output tr(ΔW H ΔWᵀ)/tr(W H Wᵀ); `plain_output_error` is that of plain rounding (RTN) at
    the same bits, group and symmetry. `sqnr_db` = -10·log10(output_error). `tokens` of the calibration reached it;
    few only where a router sends them elsewhere. `unrefined_error` is the output error before refinement.
    """

    name: str
    block: int
    method: str
    bits: int
    group_size: int
    symmetric: bool
    shape: tuple[int, int]
    low: float
    high: float
    before: tuple[int, ...]
    after: tuple[int, ...]
    levels: tuple[float, ...]
    not_finite: int
    weight_error: float
    output_error: float | None
    plain_output_error: float | None
    sqnr_db: float | None
    kurtosis: float
    outliers: float
    clipped: float
    seconds: float
    scale_low: float | None = None
    scale_high: float | None = None
    damping: float | None = None
    fallback: str = ""
    tokens: int | None = None
    unrefined_error: float | None = None


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of one tensor's values over equal bins, made before any run."""

    name: str
    shape: tuple[int, ...]
    low: float
    high: float
    counts: tuple[int, ...]
    not_finite: int
    kurtosis: float
    outliers: float


@dataclass(frozen=True, slots=True)
class MomentsKept:
    """The calibration statistics of one block are on disk; `estimated` names the layers of which only the blocks on
    the diagonal are kept, for want of space."""

    block: int
    tokens: int
    estimated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What a choice would do to one linear layer; the answer to request `id`, by which later answers are known.

    Fields as in `ModuleDone`. The errors are measured on `rows` of the layer's outputs, evenly spread; an answer
    that is not `final` is followed by one on all of them. `compensated` is False while GPTQ's rounding stands in as
    plain rounding on the same grid. `output_error` is None where no calibration statistics are kept; `estimated`
    where those are the diagonal's blocks alone. `bytes` is the stored size of the layer, `plain_output_error` plain
    rounding's at the same bits, group and symmetry.
    """

    id: int
    module: str
    method: str
    bits: int
    group_size: int
    symmetric: bool
    shape: tuple[int, int]
    bytes: int
    low: float
    high: float
    before: tuple[int, ...]
    after: tuple[int, ...]
    levels: tuple[float, ...]
    not_finite: int
    weight_error: float
    output_error: float | None
    plain_output_error: float | None
    kurtosis: float
    outliers: float
    clipped: float
    rows: int
    final: bool
    compensated: bool
    estimated: bool
    seconds: float
    scale_low: float | None = None
    scale_high: float | None = None
    damping: float | None = None
    fallback: str = ""


@dataclass(frozen=True, slots=True)
class WhatIfRefused:
    """Request `id` cannot be answered; templates with one set of values."""

    id: int
    module: str
    message: str
    hint: str = ""
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SensitivityMeasured:
    """What plain rounding of one linear layer alone would cost, by "bits/group size" such as "4/64".

    `damage` is the predicted KL divergence in nats per token, `output_errors` the relative output error. The recipe's
    own group size is `group_size`. `remaining` is the share of that damage which a method is expected to leave.
    """

    name: str
    block: int
    group_size: int
    symmetric: bool
    damage: dict[str, float]
    output_errors: dict[str, float]
    remaining: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QualityMeasured:
    """One candidate against the original on the same held tokens; KL in nats per token."""

    name: str
    tokens: int
    kl: float
    perplexity: float
    original_perplexity: float
    top1_agreement: float


@dataclass(frozen=True, slots=True)
class Checked:
    """One check of the written result. `name` and `detail` are templates with one set of values."""

    name: str
    passed: bool
    detail: str = ""
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Amended:
    """The recipe (plain values) changed for the blocks from `from_block` on; it now says what all blocks get."""

    from_block: int
    recipe: dict[str, Any]
