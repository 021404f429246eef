"""A vLLM kernel for packed weights that no kernel of this processor multiplies: unpack at load, multiply as usual.

vLLM's own CPU kernel takes 4 bits only, wants AVX-512, and dies on float32 activations at the first forward pass.
Runs inside vLLM only. It saves no memory, and says so once in the log.
"""

import sys
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from vllm.model_executor.kernels.linear.mixed_precision.cpu import CPUWNA16LinearKernel
from vllm.model_executor.kernels.linear.mixed_precision.MPLinearKernel import MPLinearKernel, MPLinearLayerConfig
from vllm.model_executor.layers.quantization.utils.quant_utils import unpack_quantized_values_into_int32
from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
from vllm.platforms import current_platform
from vllm.scalar_type import ScalarType, scalar_types

from workbench import dense
from workbench.dense import WORD
from workbench.engine import plugin_words

# Symmetric types carry their zero as a bias; the others bring a zero point for each group.
TYPES = (
    scalar_types.uint2b2, scalar_types.uint2, scalar_types.uint3b4, scalar_types.uint3, scalar_types.uint4b8,
    scalar_types.uint4, scalar_types.uint8b128, scalar_types.uint8,
)  # fmt: skip
ROWS = 1024  # unpacked at a time: the int32 copies of a whole layer would be a second model in memory

_said: set[int] = set()


@cache
def has_packed_product() -> bool:
    """Whether this build of vLLM holds the product with packed 4-bit weights for this processor."""
    current_platform.import_kernels()
    return hasattr(torch.ops._C, "cpu_gemm_wna16")


def vllm_serves(c: MPLinearLayerConfig) -> bool:
    """Whether vLLM's own kernel not only accepts this layer but has the product for it."""
    halves = (torch.bfloat16, torch.float16)
    return c.act_type in halves and has_packed_product() and CPUWNA16LinearKernel.can_implement(c)[0]


class UnpackedLinearKernel(MPLinearKernel):
    """Weights of 2, 3, 4 or 8 bits, by group or by channel, with or without zero points."""

    @classmethod
    def get_min_capability(cls) -> int:
        return -1

    @classmethod
    def can_implement(cls, c: MPLinearLayerConfig) -> tuple[bool, str | None]:
        if not current_platform.is_cpu():
            return False, "unpacking at load is for CPUs only"
        if c.weight_type not in TYPES:
            return False, f"weights of type {c.weight_type} are not unpacked"
        if vllm_serves(c):
            return False, "vLLM's own kernel serves this layer"
        if c.group_size != -1 and c.partition_weight_shape[0] % c.group_size:
            return False, f"group {c.group_size} does not divide {c.partition_weight_shape[0]} inputs"
        return True, None

    def process_weights_after_loading(self, layer: nn.Module) -> None:
        packed, scale, zero = self._get_weight_params(layer)
        kind, width = self.config.weight_type, self.config.partition_weight_shape[0]
        assert packed.input_dim == packed.packed_dim, "packed along the outputs: not this kernel's layout"
        packed, scale = _outputs_first(packed), _outputs_first(scale).float()
        if self.config.zero_points:
            zero = _levels(_outputs_first(zero).t(), kind, scale.shape[0]).t()
        weight = torch.empty(scale.shape[0], width, dtype=self.config.act_type)
        for start in range(0, len(weight), ROWS):
            rows = slice(start, start + ROWS)
            levels = _levels(packed[rows], kind, width)
            offset = zero[rows].unsqueeze(-1) if self.config.zero_points else kind.bias
            weight[rows] = _dequantized(levels, scale[rows], offset)
        for name in (self.w_q_name, self.w_s_name, self.w_zp_name):
            if name and hasattr(layer, name):
                delattr(layer, name)
        layer.weight = nn.Parameter(weight, requires_grad=False)
        # The same product as for a plain layer on this processor, and as fast.
        dispatch_cpu_unquantized_gemm(layer, remove_weight=True)
        _say_once(kind.size_bits)

    def apply_weights(self, layer: nn.Module, x: Tensor, bias: Tensor | None = None) -> Tensor:
        return layer.cpu_linear(x, layer.weight, bias)


def _outputs_first(tensor: Any) -> Tensor:
    """A parameter of vLLM's as [out, ...], whichever way its format lays it out."""
    return tensor.data if tensor.output_dim == 0 else tensor.data.t()


def _levels(words: Tensor, kind: ScalarType, count: int) -> Tensor:
    """[rows, words] -> the first `count` values of each row, int32. vLLM itself unpacks whole words only."""
    if WORD % kind.size_bits:
        return dense.unpack(words, kind.size_bits, count)
    return unpack_quantized_values_into_int32(words, kind, 1)[:, :count]


def _dequantized(levels: Tensor, scale: Tensor, zero: Tensor | int) -> Tensor:
    """(level - zero) · scale: [rows, in] levels, [rows, groups] scales, [rows, groups, 1] zeros -> [rows, in]."""
    groups = levels.unflatten(1, (scale.shape[1], -1))
    return ((groups - zero) * scale.unsqueeze(-1)).flatten(1)


def _say_once(bits: int) -> None:
    if bits not in _said:
        _said.add(bits)
        print(plugin_words.UNPACKED.format(bits=bits), file=sys.stderr, flush=True)
