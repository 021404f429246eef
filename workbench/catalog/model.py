"""What is known of a model without its weights."""

from dataclasses import dataclass, field
from pathlib import Path

from workbench.catalog.headers import Tensor
from workbench.catalog.linears import Linear
from workbench.catalog.problem import QUANTIZE, SERVE, Problem
from workbench.catalog.quantized import Quantized
from workbench.catalog.weights import Missing


@dataclass(frozen=True)
class Model:
    """A model on disk. Counts are None where neither configuration nor tensors tell.

    `context` in tokens, after position scaling; `dtype` is the type of most weights; `parameters` counts a tied
    embedding once and packed weights as what they unpack to. `latent` is the width of the compressed keys and
    values of one layer where attention stores those (DeepSeek's MLA) instead of `kv_heads` × `head_dim` twice.
    """

    folder: Path
    name: str
    format: str
    architecture: str
    model_type: str
    layers: int | None
    hidden: int | None
    intermediate: int | None
    heads: int | None
    kv_heads: int | None
    head_dim: int | None
    vocab: int | None
    context: int | None
    dtype: str
    parameters: int
    weight_bytes: int
    tied: bool
    attention_bias: bool
    has_template: bool
    eos_ids: tuple[int, ...]
    rope: str | None
    rope_factor: float | None
    quantization: Quantized | None
    tensors: tuple[Tensor, ...] = field(repr=False)
    linears: tuple[Linear, ...] = field(repr=False)
    problems: tuple[Problem, ...] = ()
    missing: tuple[Missing, ...] = ()
    latent: int | None = None

    def blocking(self, action: str) -> tuple[Problem, ...]:
        """The problems that rule out "quantize", "serve" or "chat"."""
        return tuple(problem for problem in self.problems if action in problem.blocks)

    @property
    def can_quantize(self) -> bool:
        return not self.blocking(QUANTIZE)

    @property
    def can_serve(self) -> bool:
        return not self.blocking(SERVE)
