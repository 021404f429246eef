"""The linear layers of a model, found by the names and shapes of its tensors, not by its class."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from workbench.catalog.headers import Tensor

ROLES = {
    "q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o", "out_proj": "o",
    "gate_proj": "gate", "up_proj": "up", "down_proj": "down", "w1": "gate", "w3": "up", "w2": "down",
    # Phi-3 and GLM-4 hold siblings in one tensor; DeepSeek squeezes queries, keys and values and spreads them again.
    "qkv_proj": "qkv", "gate_up_proj": "gate_up",
    "q_a_proj": "q_a", "q_b_proj": "q_b", "kv_a_proj_with_mqa": "kv_a", "kv_b_proj": "kv_b",
}  # fmt: skip
# Layers that vLLM loads as one; q's (or gate's) scheme then holds for all of them.
FUSED = (("q", "k", "v"), ("gate", "up"), ("q_a", "kv_a"))
_ORDER = ("q_a", "q_b", "q", "kv_a", "kv_b", "k", "v", "qkv", "other", "o", "gate", "up", "gate_up", "down")
_ATTENTION = {"q", "k", "v", "o", "qkv", "q_a", "q_b", "kv_a", "kv_b"}

_IN_BLOCK = re.compile(r"^(?P<module>.*?(?:^|\.)layers\.(?P<block>\d+)\..+)\.weight(?P<packed>_packed)?$")
_ANY_IN_BLOCK = re.compile(r"^(?P<module>.*?(?:^|\.)layers\.\d+\..+)\.(?P<leaf>\w+)$")
# Encoders of pictures and sound stay as they are, and so does what routes tokens to experts.
ENCODER = re.compile(r"vision|visual|audio|image")
_LEFT_ALONE = re.compile(r"router|(?:^|\.)(?:mlp|block_sparse_moe|feed_forward)\.gate$|embed|norm")

# What blocks of known kinds hold beside their linear layers.
_NORM = re.compile(r"(?:^|\.)\w*(?:norm|ln)\w*$")
_ROUTER = re.compile(r"(?:^|\.)(?:mlp|block_sparse_moe)\.(?:gate|shared_expert_gate)$")


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
        return self.role in _ATTENTION or (self.role == "other" and "attn" in self.name)

    @property
    def expert(self) -> bool:
        return ".experts." in self.name


def find(tensors: Iterable[Tensor], shapes: dict[str, tuple[int, int]] | None = None) -> tuple[Linear, ...]:
    """Every linear layer under `layers.N.`, in model order. `shapes` gives those of packed weights."""
    by_name = {tensor.name: tensor for tensor in tensors}
    found = []
    for name, tensor in by_name.items():
        place = _IN_BLOCK.match(name)
        if not place or len(tensor.shape) != 2 or ENCODER.search(name) or _LEFT_ALONE.search(place["module"]):
            continue
        module = place["module"]
        shape = (shapes or {}).get(module) if place["packed"] else tensor.shape
        if shape and min(shape) > 1:
            role = ROLES.get(module.rpartition(".")[2], "other")
            found.append(Linear(module, int(place["block"]), role, *shape, bias=f"{module}.bias" in by_name))
    return tuple(sorted(found, key=_order))


def left_alone(module: str) -> bool:
    """Whether a module of a block stays as it is: what routes tokens to experts, norms, embeddings."""
    return bool(_LEFT_ALONE.search(module))


def strange(tensors: Iterable[Tensor]) -> tuple[str, ...]:
    """What the blocks hold that the quantization knows no way to run or to round, by full names.

    Known are the linear layers named in ROLES, alone or one for each expert, norms, and routers with their bias.
    """
    found = []
    for tensor in tensors:
        place = _ANY_IN_BLOCK.match(tensor.name)
        if not place or ENCODER.search(tensor.name) or tensor.name.endswith("inv_freq"):
            continue
        module, leaf = place["module"], place["leaf"]
        if leaf == "e_score_correction_bias" or _ROUTER.search(module):
            continue
        if leaf in ("weight", "bias") and (_NORM.search(module) or module.rpartition(".")[2] in ROLES):
            continue
        found.append(tensor.name)
    return tuple(found)


def _order(linear: Linear) -> tuple:
    numbers = tuple(int(number) for number in re.findall(r"\d+", linear.parent))
    return linear.block, not linear.in_attention, numbers, _ORDER.index(linear.role), linear.name
