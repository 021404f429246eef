"""What an engine takes of a device beside its weights and KV cache, estimated where no start has told it yet."""

from dataclasses import dataclass

from workbench.catalog.devices import Device
from workbench.catalog.model import Model

# Three Python processes with torch, and activations: measured with vLLM 0.32 and a model of 135 M parameters.
CPU_PROCESSES = 2_100_000_000
# What vLLM 0.26 to 0.32 printed on GPUs of 16 to 96 GB: 0.13 to 0.71 GiB for graphs, 0.07 to 0.3 GiB beside torch.
GRAPHS = 400_000_000
BESIDE_TORCH = 300_000_000
# Bytes of a logit while sampling: 2 as computed, 4 as sampled, and what goes with them; by the same figures 7 to 8.
LOGIT = 8
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
    model: Model, device: Device, batched: int | None = None, sequences: int | None = None, graphs: bool = True
) -> Overhead:
    """On a GPU by the step that vLLM tries before it sizes the cache: `batched` tokens, then `sequences` sampled."""
    if device.kind == "cpu":
        return Overhead(rest=CPU_PROCESSES)
    tokens, most = _defaults(device)
    tokens = batched or tokens
    # In one layer the stream, its residual, and what goes into and comes out of the widest part, 16 bit each.
    layer = tokens * 2 * (2 * (model.hidden or 0) + 3 * (model.intermediate or 0))
    sampling = min(sequences or most, tokens) * (model.vocab or 0) * LOGIT
    return Overhead(max(layer, sampling), GRAPHS if graphs else 0, BESIDE_TORCH)


def _defaults(device: Device) -> tuple[int, int]:
    """(tokens a step, sequences at once) of vLLM's server on a GPU of this size, as its 0.32 chooses."""
    if device.total_bytes >= 160 * GIB:
        return 16384, 1024
    if device.total_bytes >= 70 * GIB and "a100" not in device.name.lower():
        return 8192, 1024
    return 2048, 256
