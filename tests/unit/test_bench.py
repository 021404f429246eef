"""What the bench of quantization prints is arithmetic on what its children told."""

import subprocess
import sys
from pathlib import Path

import footprint
import pytest
from standings import Goal, Measure, Spread, best_of, same_bits, spread, stored_bits, together

from workbench.catalog.headers import Tensor

BENCH = Path(footprint.__file__).parent


def packed(module: str, rows: int, columns: int, group: int, symmetric: bool) -> list[Tensor]:
    groups = columns // group
    parts = [
        ("weight_packed", "I32", (rows, columns // 8), rows * columns // 2),
        ("weight_scale", "BF16", (rows, groups), 2 * rows * groups),
        ("weight_shape", "I64", (2,), 16),
    ]
    if not symmetric:
        parts.append(("weight_zero_point", "I32", (rows // 8, groups), rows // 2 * groups))
    return [Tensor(f"{module}.{part}", dtype, shape, "", 0, size) for part, dtype, shape, size in parts]


def test_stored_bits_count_scales_and_zeros_of_packed_layers_alone():
    kept = Tensor("model.norm.weight", "BF16", (64,), "", 0, 128)
    assert stored_bits([kept, *packed("q", 64, 128, 32, symmetric=True)]) == 4.5
    assert stored_bits(packed("q", 64, 128, 32, symmetric=False)) == 4.625
    both = packed("q", 64, 128, 32, symmetric=False) + packed("up", 64, 384, 64, symmetric=True)
    assert stored_bits(both) == (4.625 + 3 * 4.25) / 4
    with pytest.raises(ValueError, match="no packed weights"):
        stored_bits([kept])


def test_only_equal_bits_are_compared():
    assert same_bits(4.375, 4.375) and same_bits(4.40, 4.375)
    assert not same_bits(4.5, 4.375) and not same_bits(4.25, 4.375)


def test_every_token_counts_the_same():
    measure = together([Measure(30, 0.1, 10.0), Measure(10, 0.5, 1000.0)])
    assert measure.tokens == 40
    assert measure.kl == pytest.approx(0.2)
    assert measure.perplexity == pytest.approx(10**1.5)  # a mean of losses, not of perplexities


def test_a_goal_is_met_beyond_the_spread_or_not_at_all():
    theirs = spread([0.20, 0.22, 0.24])
    assert theirs == Spread(pytest.approx(0.22), 0.20, 0.24)
    clear, close, far = (Goal(spread(values), theirs, 0.5) for values in ([0.08, 0.09], [0.09, 0.11], [0.12, 0.13]))
    assert clear.met and "at worst 0.450 (bar 0.5): met" in str(clear)
    assert not close.met and "in the mean only" in str(close)
    assert not far.met and "MISSED" in str(far)


def test_the_best_rival_has_the_lowest_mean():
    assert best_of({"one": spread([0.1, 0.5]), "other": spread([0.2, 0.2])}) == "other"


def test_a_childs_peak_is_its_own():
    """Neither what its parent holds nor what it held before counts."""
    held = bytearray(b"x" * (300 << 20))
    program = (
        "import footprint\n"
        "before = b'x' * (60 << 20); del before\n"
        "with footprint.measured() as told:\n"
        "    told['tool'] = 'this'; more = b'x' * (90 << 20)\n"
        "print('said later')\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", program], cwd=BENCH, capture_output=True, text=True, check=True, timeout=60
    )
    told = footprint.told_in(child.stdout)
    assert told["tool"] == "this"
    assert told["bare_bytes"] < 150 << 20 < len(held)
    assert 20 << 20 < told["bytes"] < 100 << 20
    assert told["cpu_s"] > 0 and told["wall_s"] > 0


def test_a_child_that_ended_early_told_nothing():
    with pytest.raises(ValueError, match="told nothing"):
        footprint.told_in("Traceback …\nKilled")
