"""A model's blocks, found by structure and loaded one at a time."""

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from workbench.errors import WorkbenchError
from workbench.quantization import packing
from workbench.quantization.weights import Weights

LINEARS = {f"self_attn.{part}_proj" for part in "qkvo"} | {f"mlp.{part}_proj" for part in ("gate", "up", "down")}
PARTS = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}


def device_of(spec: Mapping[str, Any]) -> torch.device:
    """What the job asks for, else the GPU where there is one."""
    return torch.device(spec.get("device") or ("cuda" if torch.cuda.is_available() else "cpu"))


class Skeleton:
    """The model without its weights: builds single blocks, and what lies before and after them.

    All arithmetic is float32. `prefix` is what block names begin with, such as "model.layers.".
    """

    def __init__(self, folder: Path, device: torch.device):
        self.weights = Weights(folder)
        self.device = device
        try:
            self.config = AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
            with torch.device("meta"):
                self.model = AutoModelForCausalLM.from_config(
                    self.config, attn_implementation="sdpa", dtype=torch.float32, trust_remote_code=False
                )
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise WorkbenchError(
                "The model in {folder} cannot be built: {reason}.", "Check its config.json.",
                folder=str(folder), reason=str(error).splitlines()[0].rstrip("."),
            ) from error  # fmt: skip
        self.model.eval()
        self.body = self.model.get_decoder() if hasattr(self.model, "get_decoder") else self.model.base_model
        self.layers: nn.ModuleList = getattr(self.body, "layers", nn.ModuleList())
        self._check_shape()
        names = {module: name for name, module in self.model.named_modules()}
        self.prefix = names[self.layers] + "."
        self.embedding = names[self.model.get_input_embeddings()] + ".weight"
        self.final_norm = names[self.body.norm] + "."
        self.head = names[self.model.get_output_embeddings()] + ".weight"
        with torch.device(device):
            self._rotary = type(self.body.rotary_emb)(config=self.config)
        self._positions: dict[int, tuple[Tensor, Tensor]] = {}

    def __len__(self) -> int:
        return len(self.layers)

    def name(self, index: int, part: str = "") -> str:
        """The full name of a block or of a module in it."""
        return f"{self.prefix}{index}{'.' if part else ''}{part}"

    @property
    def linears(self) -> set[str]:
        """The full names of the linear layers of all blocks."""
        return {self.name(index, name) for index in range(len(self)) for name in LINEARS}

    def outside(self, tied: bool) -> list[str]:
        """The tensors that belong to no block; a tied head is the embedding and is not stored twice."""
        return [name for name in self.weights if not name.startswith(self.prefix) and not (tied and name == self.head)]

    def load(self, index: int) -> nn.Module:
        """One block with its weights in float32; packed ones are unpacked."""
        tensors = packing.unpack_block(self.weights.below(self.name(index) + "."))
        block = copy.deepcopy(self.layers[index])
        wanted = {name for name, _ in block.named_parameters()}
        if missing := wanted - tensors.keys():
            raise WorkbenchError(
                "The tensor {name} is not in {folder}.", "The model is incomplete: fetch it again.",
                name=self.name(index, min(missing)), folder=str(self.weights.folder),
            )  # fmt: skip
        state = {name: tensors[name].to(self.device, torch.float32) for name in wanted}
        block.load_state_dict(state, strict=False, assign=True)
        return block.requires_grad_(False).eval()

    def embed(self, batches: Iterable[Tensor]) -> list[Tensor]:
        """int64 [batch, length] -> float32 [batch, length, hidden], on the CPU."""
        table = self.weights.read(self.embedding)
        return [table[batch].to(torch.float32) for batch in batches]

    def last(self) -> tuple[nn.Module, Tensor]:
        """The final norm and the head's matrix [vocab, hidden] in float32."""
        norm = copy.deepcopy(self.body.norm)
        state = {
            name: tensor.to(self.device, torch.float32) for name, tensor in self.weights.below(self.final_norm).items()
        }
        norm.load_state_dict(state, assign=True)
        head = self.head if self.head in self.weights else self.embedding
        return norm.requires_grad_(False), self.weights.read(head).to(self.device, torch.float32)

    def positions(self, length: int) -> tuple[Tensor, Tensor]:
        """cos and sin of the model's own rotary embedding for a sequence from its start."""
        if length not in self._positions:
            ids = torch.arange(length, device=self.device)[None]
            self._positions[length] = self._rotary(torch.zeros(1, device=self.device), ids)
        return self._positions[length]

    def mask(self, block: nn.Module, length: int) -> Tensor | None:
        """None where plain causal attention is meant; the sliding window as a mask where it is shorter."""
        window = getattr(block.self_attn, "sliding_window", None) or (
            getattr(self.config, "sliding_window", None) if self.config.model_type == "mistral" else None
        )
        if not window or window >= length:
            return None
        at = torch.arange(length, device=self.device)
        return ((at[:, None] >= at) & (at[:, None] - at < window))[None, None]

    def attend(self, block: nn.Module, normed: Tensor) -> Tensor:
        """What enters o_proj: [batch, length, heads · head_dim]."""
        length = normed.shape[1]
        with _bypassed(block.self_attn, "o_proj"):
            return block.self_attn(
                hidden_states=normed,
                position_embeddings=self.positions(length),
                attention_mask=self.mask(block, length),
            )[0]

    def activate(self, block: nn.Module, normed: Tensor) -> Tensor:
        """What enters down_proj: [batch, length, intermediate]."""
        with _bypassed(block.mlp, "down_proj"):
            return block.mlp(normed)

    def forward(self, block: nn.Module, inputs: Tensor) -> Tensor:
        """The whole block by its parts, as the quantization walks it."""
        middle = inputs + block.self_attn.o_proj(self.attend(block, block.input_layernorm(inputs)))
        return middle + block.mlp.down_proj(self.activate(block, block.post_attention_layernorm(middle)))

    def prove(self) -> None:
        """Refuse a model whose first block does something else between its parts than is understood here."""
        block = self.load(0)
        inputs = self.embed([torch.arange(16)[None] % self.config.vocab_size])[0].to(self.device)
        length = inputs.shape[1]
        right = block(inputs, position_embeddings=self.positions(length), attention_mask=self.mask(block, length))
        right = right[0] if isinstance(right, tuple) else right
        normed = block.input_layernorm(inputs)
        once = self.attend(block, normed), self.activate(block, normed), normed
        same = _near(self.forward(block, inputs), right)
        for module in (block.self_attn.v_proj, block.mlp.up_proj, block.input_layernorm):
            for parameter in module.parameters():
                parameter.mul_(2)
        # AWQ moves scales between these and what reads them, so their outputs must follow their weights.
        twice = self.attend(block, normed), self.activate(block, normed), block.input_layernorm(inputs)
        if not same or not all(_near(two, 2 * one) for one, two in zip(once, twice, strict=True)):
            self.refuse()

    def _check_shape(self) -> None:
        understood = bool(self.layers) and hasattr(self.body, "rotary_emb") and hasattr(self.body, "norm")
        for layer in self.layers:
            linears = {name for name, module in layer.named_modules() if isinstance(module, nn.Linear)}
            understood &= {name for name, _ in layer.named_children()} == PARTS
            understood &= linears == LINEARS
            understood = understood and all(
                [name for name, _ in norm.named_parameters()] == ["weight"]
                for norm in (layer.input_layernorm, layer.post_attention_layernorm)
            )
            if not understood:
                break
        if not understood:
            self.refuse()

    def refuse(self) -> NoReturn:
        """Say that this model is built in another way."""
        raise WorkbenchError(
            "The blocks of {architecture} are built in a way that Lathe cannot quantize.",
            "Models built like Llama, Mistral, Qwen2 and Qwen3 can be quantized.",
            architecture=(self.config.architectures or [self.config.model_type])[0],
        )


def _near(ours: Tensor, right: Tensor) -> bool:
    return torch.allclose(ours, right, rtol=1e-3, atol=1e-4 * right.abs().max().item())


@contextmanager
def _bypassed(parent: nn.Module, name: str) -> Iterator[None]:
    """Let what would enter a linear layer come out of its parent."""
    linear = getattr(parent, name)
    setattr(parent, name, nn.Identity())
    try:
        yield
    finally:
        setattr(parent, name, linear)
