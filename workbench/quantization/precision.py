"""How sharply matrices are multiplied: on an NVIDIA GPU all of float32, on a CPU in the model's own code."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor, nn

_served = False  # whether `as_served` is entered


@contextmanager
def quick() -> Iterator[None]:
    """Factors rounded to 11 bits (TF32), sums in float32: eight times as fast, and as sharp as a 16-bit model runs."""
    with _products("tf32"):
        yield


@contextmanager
def exact() -> Iterator[None]:
    """All of float32, for what builds up its own errors: factorizing, and rounding column by column."""
    with _products("ieee"):
        yield


@contextmanager
def as_served() -> Iterator[None]:
    """Inside, `model_code` on a CPU that multiplies bfloat16 itself runs in that, twice as fast: no coarser than a
    16-bit model is served."""
    global _served
    before, _served = _served, multiplies_bfloat16()
    try:
        yield
    finally:
        _served = before


def model_code() -> torch.autocast:
    """Around the model's attention and MLP; norms and the stream between these stay in float32."""
    return torch.autocast("cpu", torch.bfloat16, enabled=_served)


def through(linear: nn.Module, inputs: Tensor) -> Tensor:
    """What o_proj or down_proj add to the stream, [batch, length, hidden]."""
    with model_code():
        return linear(inputs)


@cache
def multiplies_bfloat16() -> bool:
    """Whether this processor has instructions for it; without, it would take longer than float32."""
    return bool(torch.cpu.get_capabilities().get("avx512_bf16"))


@contextmanager
def _products(wanted: str) -> Iterator[None]:
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = wanted
    try:
        yield
    finally:
        matmul.fp32_precision = before
