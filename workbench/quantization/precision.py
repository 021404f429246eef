"""How sharply an NVIDIA GPU multiplies float32 matrices. Nothing here changes what a CPU does."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
def _products(wanted: str) -> Iterator[None]:
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = wanted
    try:
        yield
    finally:
        matmul.fp32_precision = before
