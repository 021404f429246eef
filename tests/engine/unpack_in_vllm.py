"""Child of test_export: our layouts of random integers, unpacked by vLLM itself. Writes name → same, as JSON."""

import json
import sys
from pathlib import Path

import torch
from torch import nn
from vllm.model_executor.layers.quantization import auto_awq
from vllm.model_executor.layers.quantization.utils.quant_utils import unpack_quantized_values_into_int32 as unpack
from vllm.scalar_type import scalar_types

from workbench.quantization import layouts
from workbench.quantization.layouts import Integers


def weight(bits: int) -> Integers:
    random = torch.Generator().manual_seed(bits)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randint(1, 1 << bits, shape, generator=random, dtype=torch.int32)

    return Integers(numbers(64, 128), numbers(64, 4), torch.rand(64, 4, generator=random), bits)


def awq() -> bool:
    given = weight(4)
    stored, layer = layouts.to_awq(given), nn.Module()
    for name in ("qweight", "qzeros"):
        layer.register_parameter(name, nn.Parameter(stored[name], requires_grad=False))
    # Its own parameter class asks which part of a sharded model this is, and no model is set up here.
    auto_awq.PackedvLLMParameter = lambda data, **_: nn.Parameter(data, requires_grad=False)
    auto_awq._convert_awq_to_standard_format(layer, "qweight", "qzeros", 4)
    codes = unpack(layer.qweight.data, scalar_types.uint4, 0)
    zeros = unpack(layer.qzeros.data, scalar_types.uint4, 0)
    return torch.equal(codes, given.codes.t()) and torch.equal(zeros, given.zeros)


def gptq(bits: int) -> bool:
    given = weight(bits)
    stored = layouts.to_gptq(given, less_one=True)
    kind = scalar_types.uint4b8 if bits == 4 else scalar_types.uint8b128
    codes, zeros = unpack(stored["qweight"], kind, 0), unpack(stored["qzeros"], kind, 1)
    return torch.equal(codes, given.codes.t()) and torch.equal(zeros + 1, given.zeros.t())


if __name__ == "__main__":
    torch.set_num_threads(1)
    told = {"awq": awq(), "gptq": gptq(4), "gptq eight bits": gptq(8)}
    Path(sys.argv[1]).write_text(json.dumps(told))
