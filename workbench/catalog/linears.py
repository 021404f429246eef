"""The linear layers of a model, found by the names and shapes of its tensors, not by its class."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from workbench.catalog.headers import Tensor

ROLES = {
    "q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o", "out_proj": "o",
    "gate_proj": "gate", "up_proj": "up", "down_proj": "down", "w1": "gate", "w3": "up", "w2": "down",
}  # fmt: skip
# Layers that vLLM loads as one; q's (or gate's) scheme then holds for all of them.
FUSED = (("q", "k", "v"), ("gate", "up"))

_IN_BLOCK = re.compile(r"^(?P<module>.*?(?:^|\.)layers\.(?P<block>\d+)\..+)\.weight(?P<packed>_packed)?$")
# Encoders of pictures and sound stay as they are, and so does what routes tokens to experts.
_ENCODER = re.compile(r"vision|visual|audio|image")
_LEFT_ALONE = re.compile(r"router|(?:^|\.)(?:mlp|block_sparse_moe|feed_forward)\.gate$|embed|norm")

# What a block is made of in models built like Llama, Mistral, Qwen2 and Qwen3: the kind whose inner working is known.
_USUAL = {f"self_attn.{part}_proj" for part in "qkvo"} | {f"mlp.{part}_proj" for part in ("gate", "up", "down")}
_USUAL_NORMS = {"input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm"}


@dataclass(frozen=True, slots=True)
class Linear:
    """One linear layer inside a block: weight [out_features, in_features]."""

    name: str
    block: int
    role: str
    out_features: int
    in_features: int
    bias: bool = False

    @property
    def weights(self) -> int:
        return self.out_features * self.in_features

    @property
    def leaf(self) -> str:
        """The last part of the name, such as q_proj."""
        return self.name.rpartition(".")[2]

    @property
    def parent(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def in_attention(self) -> bool:
        """Whether the recipe's attention choice holds for it; the MLP choice holds for all others."""
        return self.role in ("q", "k", "v", "o") or (self.role == "other" and "attn" in self.name)

    @property
    def expert(self) -> bool:
        return ".experts." in self.name


def find(tensors: Iterable[Tensor], shapes: dict[str, tuple[int, int]] | None = None) -> tuple[Linear, ...]:
    """Every linear layer under `layers.N.`, in model order. `shapes` gives those of packed weights."""
    by_name = {tensor.name: tensor for tensor in tensors}
    found = []
    for name, tensor in by_name.items():
        place = _IN_BLOCK.match(name)
        if not place or len(tensor.shape) != 2 or _ENCODER.search(name) or _LEFT_ALONE.search(place["module"]):
            continue
        module = place["module"]
        shape = (shapes or {}).get(module) if place["packed"] else tensor.shape
        if shape and min(shape) > 1:
            role = ROLES.get(module.rpartition(".")[2], "other")
            found.append(Linear(module, int(place["block"]), role, *shape, bias=f"{module}.bias" in by_name))
    return tuple(sorted(found, key=_order))


def usual(tensors: Iterable[Tensor]) -> bool:
    """Whether every block consists of the seven linears and the norms that the quantization knows how to walk."""
    blocks: dict[str, set[str]] = {}
    for tensor in tensors:
        place = _IN_BLOCK.match(tensor.name)
        if place and not _ENCODER.search(tensor.name):
            prefix, _, module = place["module"].rpartition(f"layers.{place['block']}.")
            blocks.setdefault(f"{prefix}{place['block']}", set()).add(module)
    return all(modules - _USUAL_NORMS == _USUAL for modules in blocks.values())


def _order(linear: Linear) -> tuple:
    roles = ("q", "k", "v", "other", "o", "gate", "up", "down")
    numbers = tuple(int(number) for number in re.findall(r"\d+", linear.parent))
    return linear.block, not linear.in_attention, numbers, roles.index(linear.role), linear.name
