"""What an engine takes of a device beside its weights and KV cache, estimated where no start has told it yet."""

from dataclasses import dataclass

from workbench.catalog.devices import Device
from workbench.catalog.model import Model

# Three Python processes with torch, and activations: measured with vLLM 0.32 and a model of 135 M parameters.
CPU_PROCESSES = 2_100_000_000
# What vLLM 0.26 to 0.32 printed on GPUs of 16 to 96 GB: 0.13 to 0.71 GiB for graphs, 0.07 to 0.3 GiB beside torch. By
# 0.26 on an H200, with 96 to 102 graphs: 0.39 (135 M), 0.51 (and a draft), 0.89 and 0.92 (7 B); and 0.22 to 0.24.
GRAPHS = 550_000_000
BESIDE_TORCH = 250_000_000
# 16-bit values of a token in one layer beside those of its widest part, in hidden sizes: 1.13 GiB for 8,192 tokens of
# Qwen2-7B's shape there.
STREAMS = 5
# Bytes of a logit while sampling. The model runner that computes dense models since 0.26 keeps its 16 bits, twice: 0.19
# GiB for 1,024 of 49,152 there. The earlier one, still that of experts and of many drafts, samples in 32 bits: 7 to 8.
# Without FlashInfer that one sorts them, in 31 (seen there); vLLM brings FlashInfer along.
LOGIT = 4
LOGIT_EARLIER = 8
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Overhead:
    """Bytes: `activations` of the largest step, captured `graphs`, and all the `rest` of the engine's processes."""

    activations: int = 0
    graphs: int = 0
    rest: int = 0

    @property
    def total(self) -> int:
        return self.activations + self.graphs + self.rest


def estimate(
    model: Model,
    device: Device,
    batched: int | None = None,
    sequences: int | None = None,
    graphs: bool = True,
    drafting: bool = False,
) -> Overhead:
    """On a GPU by the step that vLLM tries before it sizes the cache: `batched` tokens, then `sequences` sampled.

    With these constants the tokens of the cache lie 0.4 % below what vLLM 0.26 printed on an H200 for Qwen2-7B's shape
    in 16 and in 4 bits and for SmolLM2-135M, and 1.0 % above with that as its own draft.
    """
    if device.kind == "cpu":
        return Overhead(rest=CPU_PROCESSES)
    tokens, most = _defaults(device)
    tokens = batched or tokens
    # In one layer the streams, and what goes into and comes out of the widest part, 16 bit each.
    layer = tokens * 2 * (STREAMS * (model.hidden or 0) + 3 * (model.intermediate or 0))
    logit = LOGIT_EARLIER if drafting or any(linear.expert for linear in model.linears) else LOGIT
    sampling = min(sequences or most, tokens) * (model.vocab or 0) * logit
    return Overhead(max(layer, sampling), GRAPHS if graphs else 0, BESIDE_TORCH)


def _defaults(device: Device) -> tuple[int, int]:
    """(tokens a step, sequences at once) of vLLM's server on a GPU of this size, as its 0.32 chooses."""
    if device.total_bytes >= 160 * GIB:
        return 16384, 1024
    if device.total_bytes >= 70 * GIB and "a100" not in device.name.lower():
        return 8192, 1024
    return 2048, 256
