"""What the bench of quantization prints is arithmetic on what its children told."""

import subprocess
import sys
import time
from pathlib import Path

import footprint
import pytest
import tables
from children import Done
from rivals import BARE, GRIDS, Run
from standings import Goal, Measure, Spread, best_of, same_bits, spread, stored_bits, together

from workbench import guard
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


def test_children_end_with_a_bench_that_is_killed(tmp_path):
    told, slow = tmp_path / "pid", tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\necho $$ > {told}\nexec sleep 60\n")
    slow.chmod(0o700)
    code = (
        "import math, sys\n"
        "from pathlib import Path\n"
        "from children import Children\n"
        "from rivals import Run\n"
        "Children(Path(), sys.argv[1], Path(sys.argv[2]), 1, math.inf).quantize([Run('slow', '', '', 0, {})])"
    )
    bench = subprocess.Popen([sys.executable, "-c", code, slow, tmp_path], cwd=BENCH)
    try:
        pid = int(_soon(lambda: told.is_file() and told.read_text()))
        assert guard.identity(pid)
    finally:
        bench.kill()
        bench.wait()
    assert _soon(lambda: not guard.identity(pid))


def _soon(found):
    deadline = time.monotonic() + 20
    while not (value := found()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return value


def test_a_child_that_ended_early_told_nothing():
    with pytest.raises(ValueError, match="told nothing"):
        footprint.told_in("Traceback …\nKilled")


def finished(tool: str, method: str, kl: float, seed: int = 0, bits: float = 4.375, tokens: int = 32768) -> Done:
    told = {
        "bits": bits, "tokens": tokens, "versions": {"torch": "2"},
        "measures": {"prose": (20000, kl, 30.0), "chat": (20000, kl, 30.0)},
    }  # fmt: skip
    return Done(Run(tool, method, GRIDS[0].name, seed, {}), Path(), told)


def strong() -> list[Done]:
    return [
        finished("Lathe", "layered", 0.14), finished("llm-compressor", "layered", 0.24),
        finished("Lathe", "best", 0.07), finished("llm-compressor", "gptq", 0.20),
        finished("RTN", "rtn", 0.43, tokens=0),
    ]  # fmt: skip


def test_layered_is_held_against_layered_and_best_against_the_best_of_all(capsys):
    assert not tables.quality(GRIDS[0], strong(), held_tokens=32_000)
    printed = capsys.readouterr().out
    assert "Lathe layered against llm-compressor layered: KL 0.583" in printed
    assert "Lathe best against llm-compressor gptq: KL 0.350" in printed
    assert "Lathe best against RTN rtn: KL 0.163" in printed
    assert printed.count(": met") == 4
    assert "| Lathe best | 4.375 | 1 | 0.0700 | 0.0700 | 0.0700 | 30.00 |" in printed


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (finished("Lathe", "best", 0.06, bits=4.5), "Lathe best differs by more than 1 % in stored bits"),
        (finished("llm-compressor", "awq", 0.3, tokens=30000), "not all were calibrated on the same tokens"),
        (finished("llm-compressor", "awq+gptq", 0.15), "Lathe best against llm-compressor awq+gptq: KL 0.467"),
        (finished("Lathe", "best", 0.09, seed=1), "met in the mean only"),
    ],
)
def test_an_unfair_or_lost_comparison_fails(capsys, other, said):
    done = [one for one in strong() if other.told["bits"] == 4.375 or one.run.who != other.run.who]
    assert tables.quality(GRIDS[0], [*done, other], held_tokens=32_000)
    assert said in capsys.readouterr().out


def test_few_held_tokens_are_said(capsys):
    assert tables.quality(GRIDS[0], strong(), held_tokens=50_000)
    assert "at least 50000" in capsys.readouterr().out


def test_time_and_memory_are_held_against_the_same_work(capsys):
    def cost(tool: str, cpu_s: float, megabytes: int, added: str) -> Done:
        told = {
            "cpu_s": cpu_s, "wall_s": cpu_s, "bytes": megabytes * 10**6, "bare_bytes": 10**8, "tokens": 6144,
            "versions": {},
        }  # fmt: skip
        return Done(Run(tool, "layered", f"6 grid points{added}", 0, {}), Path(), told)

    theirs, with_clip = cost("llm-compressor", 100, 600, ""), cost("Lathe", 10, 100, ", clip")
    assert not tables.cost([cost("Lathe", 45, 350, BARE), theirs, with_clip])
    printed = capsys.readouterr().out
    assert "time at 6 grid points: 0.450" in printed and "memory at 6 grid points: 0.583" in printed
    assert tables.cost([cost("Lathe", 55, 350, BARE), theirs, with_clip])
    assert tables.cost([cost("Lathe", 45, 400, BARE), theirs, with_clip])
