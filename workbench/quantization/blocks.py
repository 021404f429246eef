"""A model's blocks, found by structure and loaded one at a time."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from workbench.errors import WorkbenchError, first_line
from workbench.quantization import packing, precision, refusals
from workbench.quantization.experts import fused, opened, same
from workbench.quantization.names import block_lists, in_code
from workbench.quantization.shell import Shell
from workbench.quantization.weights import Weights
from workbench.words import Sentence

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
            found = AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
            # Of a model that also sees or hears only the part that reads and writes text is built.
            self.config = found.get_text_config()
            # PyTorch's own attention knows no bent scores, as Gemma 2 has them.
            attention = "eager" if getattr(self.config, "attn_logit_softcapping", None) else "sdpa"
            with torch.device("meta"):
                self.model = AutoModelForCausalLM.from_config(
                    self.config, attn_implementation=attention, dtype=torch.float32, trust_remote_code=False
                )
            self.model.eval()
            self.body = self.model.get_decoder() if hasattr(self.model, "get_decoder") else self.model.base_model
            self.layers: nn.ModuleList = getattr(self.body, "layers", nn.ModuleList())
            self._check_shape()
            self._shell = Shell(self.config, self.layers, attention, device)
            ending, entry = self._shell.ending(), self._shell.entry()
        except WorkbenchError:
            raise
        except Exception as error:  # the model's own code and configuration raise whatever they like
            raise WorkbenchError(
                "The model in {folder} cannot be built: {reason}.", "Check its config.json.",
                folder=str(folder), reason=first_line(error),
            ) from error  # fmt: skip
        self.usual = self._is_usual()
        self._name_parts()
        if ending is None or entry is None:
            self.refuse(refusals.ENTRY if entry is None else refusals.ENDING)
        self.logits: Callable[[Tensor], Tensor] = ending  # what follows norm and head
        self._entry: Tensor = entry
        self.moved = 0.0  # how far the 16-bit store of norms moved AWQ scales, as a share
        self.told: set[str] = set()  # what is said once, not for each block

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def positions(self) -> int:
        """The longest context in tokens; 0 where the configuration names none."""
        named = getattr(self.config, "max_position_embeddings", 0)
        return named if isinstance(named, int) and named > 0 else 0

    def name(self, index: int, part: str = "") -> str:
        """The full name of a block or of a module in it."""
        return f"{self.prefix}{index}{'.' if part else ''}{part}"

    def path(self, name: str, block: nn.Module) -> str:
        """Where in `block` the layer lies that the checkpoint calls `name`."""
        relative = name.removeprefix(self.prefix).partition(".")[2]
        return relative if _has(block, relative) else in_code(relative)

    def require(self, names: Iterable[str]) -> None:
        """Refuse unless each of these layers, by its name on disk, is a linear layer of the model's own code."""
        blocks: dict[int, nn.Module] = {}
        for name in names:
            index = int(name.removeprefix(self.prefix).partition(".")[0])
            if index not in blocks:
                blocks = {index: opened(copy.deepcopy(self.layers[index]))}
            path = self.path(name, blocks[index])
            if not _has(blocks[index], path) or not isinstance(blocks[index].get_submodule(path), nn.Linear):
                self.refuse(refusals.NOT_A_LINEAR, name=name)

    def outside(self, tied: bool) -> list[str]:
        """The tensors that belong to no block; a tied head is the embedding and is not stored twice."""
        blocks = tuple(f"{self.name(index)}." for index in range(len(self)))
        inside = {name for name in self.weights if name.startswith(self.prefix) and name.startswith(blocks)}
        return [name for name in self.weights if name not in inside and not (tied and name == self.head)]

    def load(self, index: int) -> nn.Module:
        """One block with its weights in float32; packed ones are unpacked, and experts stand singly."""
        stored = self.weights.below(self.name(index) + ".")
        # Sent as they are stored and widened there: the CPU would take far longer.
        tensors = packing.unpack_block({name: tensor.to(self.device) for name, tensor in stored.items()})
        block = opened(copy.deepcopy(self.layers[index]))
        wanted = block.state_dict().keys()
        tensors = {name if name in wanted else in_code(name): tensor for name, tensor in tensors.items()}
        if missing := wanted - tensors.keys():
            raise WorkbenchError(
                "The tensor {name} is not in {folder}.", "The model is incomplete: fetch it again.",
                name=self.name(index, min(missing)), folder=str(self.weights.folder),
            )  # fmt: skip
        if unknown := {name for name in tensors.keys() - wanted if not name.endswith("inv_freq")}:
            self.refuse(refusals.UNKNOWN_TENSOR, name=self.name(index, min(unknown)))
        state = {name: tensors[name].to(torch.float32) for name in wanted}
        for name, parameter in block.state_dict().items():
            if (found := state[name].shape) != parameter.shape:
                raise WorkbenchError(
                    "The tensor {name} is {found}, but config.json makes it {wanted}.",
                    "Its config.json or its weights are another model's: fetch the model again.",
                    name=self.name(index, name), found=_sizes(found), wanted=_sizes(parameter.shape),
                )  # fmt: skip
        block.load_state_dict(state, strict=False, assign=True)
        block.position = index
        return block.requires_grad_(False).eval()

    def embed(self, batches: Iterable[Tensor]) -> list[Tensor]:
        """int64 [batch, length] -> float32 [batch, length, hidden] as it enters the first block, on the CPU."""
        factor = self._entry.cpu()
        rows = [self.weights.rows(self.embedding, batch) for batch in batches]
        return rows if bool((factor == 1).all()) else [row * factor for row in rows]

    def last(self) -> tuple[nn.Module, Tensor]:
        """The final norm and the head's matrix [vocab, hidden] in float32."""
        norm = copy.deepcopy(self.body.norm)
        state = {
            name: tensor.to(self.device).to(torch.float32)
            for name, tensor in self.weights.below(self.final_norm).items()
        }
        norm.load_state_dict(state, assign=True)
        head = self.head if self.head in self.weights else self.embedding
        return norm.requires_grad_(False), self.weights.read(head).to(self.device).to(torch.float32)

    def attend(self, block: nn.Module, normed: Tensor) -> Tensor:
        """What enters o_proj: [batch, length, heads · head_dim]."""
        args, kwargs = self._shell.arguments(block.position, normed.shape[1])
        with _bypassed(block.self_attn, "o_proj"), precision.model_code():
            return block.self_attn(normed, *args, **kwargs)[0]

    def activate(self, block: nn.Module, normed: Tensor) -> Tensor:
        """What enters down_proj: [batch, length, intermediate]."""
        with _bypassed(block.mlp, "down_proj"), precision.model_code():
            return block.mlp(normed)

    def forward(self, block: nn.Module, inputs: Tensor) -> Tensor:
        """The whole block: by its parts where the quantization walks those, else as the model's own code runs it."""
        if not self.usual:
            return self.run(block, inputs)
        entering = self.attend(block, block.input_layernorm(inputs))
        middle = inputs + precision.through(block.self_attn.o_proj, entering)
        active = self.activate(block, block.post_attention_layernorm(middle))
        return middle + precision.through(block.mlp.down_proj, active)

    def run(self, block: nn.Module, inputs: Tensor) -> Tensor:
        """The block called as the model calls it."""
        args, kwargs = self._shell.arguments(block.position, inputs.shape[1])
        left = block(inputs, *args, **kwargs)
        return left[0] if isinstance(left, tuple) else left

    @torch.no_grad()
    def prove(self) -> None:
        """Look at what is done between the parts that are understood; a block that is not Llama's is only run whole.

        Refuses experts that do something else than is understood here.
        """
        block = self.load(0)
        try:
            some = torch.linspace(-1, 1, 4 * self.config.hidden_size, device=self.device)
            left = self.run(block, some.view(1, 4, -1))
            usual = self.usual and self._proved(block)
        except WorkbenchError:
            raise
        except Exception as error:  # the model's own code raises whatever it likes
            self.refuse(refusals.STOPPED, reason=first_line(error))
        # Attention may take positions that are no numbers for words to be left out, and go on.
        given = self._shell.arguments(0, 4)[1].get("position_embeddings", ())
        given = (given,) if isinstance(given, Tensor) else given or ()  # DeepSeek-V2 turns by one complex tensor
        if not all(bool(tensor.isfinite().all()) for tensor in (left, *given)):
            self.refuse(refusals.NOT_FINITE)
        self.usual = usual
        for index, layer in enumerate(self.layers):
            for path, module in fused(layer).items():
                expert = self.load(index).get_submodule(path)[0]
                if not same(copy.deepcopy(module), expert):
                    self.refuse(refusals.EXPERTS)
                return

    def _proved(self, block: nn.Module) -> bool:
        inputs = self.embed([torch.arange(16)[None] % self.config.vocab_size])[0].to(self.device)
        normed = block.input_layernorm(inputs)
        once = self.attend(block, normed), self.activate(block, normed), normed
        if not _near(self.forward(block, inputs), self.run(block, inputs)):
            return False
        for module in (block.self_attn.v_proj, block.mlp.up_proj, block.input_layernorm):
            for parameter in module.parameters():
                parameter.mul_(2)
        # AWQ moves scales between these and what reads them, so their outputs must follow their weights.
        twice = self.attend(block, normed), self.activate(block, normed), block.input_layernorm(inputs)
        return all(_near(two, 2 * one) for one, two in zip(once, twice, strict=True))

    def _is_usual(self) -> bool:
        """Whether all blocks have Llama's parts and no others."""
        for layer in self.layers:
            linears = {name for name, module in layer.named_modules() if isinstance(module, nn.Linear)}
            norms = [getattr(layer, name, None) for name in ("input_layernorm", "post_attention_layernorm")]
            if {name for name, _ in layer.named_children()} != PARTS or linears != LINEARS:
                return False
            if any([name for name, _ in norm.named_parameters()] != ["weight"] for norm in norms):
                return False
        return True

    def _check_shape(self) -> None:
        if not self.layers:
            self.refuse(refusals.NO_BLOCKS)
        if not hasattr(self.body, "norm"):
            self.refuse(refusals.NO_NORM)
        for layer in self.layers:
            block = opened(copy.deepcopy(layer)) if fused(layer) else layer
            for name, parameter in block.named_parameters():
                if parameter.dim() > 2:
                    self.refuse(refusals.WIDE_TENSOR, name=name, dimensions=parameter.dim())
            if fused(layer):
                break  # opening experts takes time, and all such blocks come from the same code

    def _name_parts(self) -> None:
        """The names on disk of what is read one by one; a model with a picture part has them one level down."""
        names = {module: name for name, module in self.model.named_modules()}
        own = names[self.layers] + "."
        lists = block_lists(self.weights)
        if own not in lists and len(lists) != 1:
            self.refuse(refusals.BLOCK_LISTS, found=", ".join(lists) or "–", wanted=own)
        self.prefix = own if own in lists else lists[0]
        above, below = own.removesuffix("layers."), self.prefix.removesuffix("layers.")
        self.embedding = below + names[self.model.get_input_embeddings()].removeprefix(above) + ".weight"
        self.final_norm = below + names[self.body.norm].removeprefix(above) + "."
        head = names[self.model.get_output_embeddings()] + ".weight"
        self.head = next((name for name in (head, f"language_model.{head}") if name in self.weights), head)

    def refuse(self, what: Sentence, **values: Any) -> NoReturn:
        """Say what about this model was not understood."""
        raise WorkbenchError(
            what.template, "Choose a model of another family, or serve this one as it is.",
            architecture=(self.config.architectures or [self.config.model_type])[0], **values,
        )  # fmt: skip


def _sizes(shape: torch.Size) -> str:
    return " × ".join(map(str, shape)) or "1"


def _has(block: nn.Module, path: str) -> bool:
    try:
        block.get_submodule(path)
    except AttributeError:
        return False
    return True


def _near(ours: Tensor, right: Tensor) -> bool:
    return torch.allclose(ours, right, rtol=1e-3, atol=1e-4 * right.abs().nan_to_num().max().item())


@contextmanager
def _bypassed(parent: nn.Module, name: str) -> Iterator[None]:
    """Let what would enter a linear layer come out of its parent."""
    linear = getattr(parent, name)
    setattr(parent, name, nn.Identity())
    try:
        yield
    finally:
        setattr(parent, name, linear)
