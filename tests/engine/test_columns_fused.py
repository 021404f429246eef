"""GPTQ's inner loop as a GPU kernel, run by Triton's interpreter on this processor, against the plain loop."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

CHILD = """
import torch
from workbench.quantization import columns, columns_fused, gptq
from workbench.quantization.grid import fit, shrinks
from workbench.recipe import Choice

torch.manual_seed(0)
for symmetric, inputs, size, bits in ((True, 160, 32, 4), (False, 160, 32, 4), (False, 96, -1, 3)):
    W, X = torch.randn(37, inputs), torch.randn(400, inputs) @ torch.randn(inputs, inputs)
    H = X.T @ X / 400
    choice = Choice(method="gptq", group_size=size, symmetric=symmetric, bits=bits)
    grid = fit(W, choice, torch.bfloat16, shrinks(W, H, choice, torch.bfloat16), turned=True)
    plain, _ = gptq.round_columns(W, H, grid, 0.01, static_order=True)
    columns.round_block = columns_fused.round_block
    fused, _ = gptq.round_columns(W, H, grid, 0.01, static_order=True)
    columns.round_block = columns.by_columns
    print((plain == fused).float().mean().item())
"""


def test_the_kernel_rounds_as_the_plain_loop_does():
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    shares = [float(line) for line in done.stdout.split()]
    assert len(shares) == 3 and min(shares) > 0.995  # sums in another order may tip a tie
