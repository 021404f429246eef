"""What lies around a model's blocks: what enters the first, how each is called, and what follows the last."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedConfig

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Shell:
    """The model with listeners in place of its blocks and a vocabulary of 8, real but tiny, in float32.

    The model's own code prepares masks and positions for every block, whatever its family; they are kept as they come.
    """

    def __init__(self, config: PreTrainedConfig, layers: nn.ModuleList, attention: str, device: torch.device):
        small = copy.deepcopy(config)
        for name, value in vars(small).items():
            if isinstance(value, list) and len(value) == config.num_hidden_layers:
                setattr(small, name, [])  # one entry for each layer, such as its kind of attention
        small.num_hidden_layers, small.vocab_size, small.pad_token_id = 0, 8, None
        with torch.device(device):
            self._model = AutoModelForCausalLM.from_config(
                small, attn_implementation=attention, dtype=torch.float32, trust_remote_code=False
            )
        self._model.requires_grad_(False).eval()
        self._body = self._model.get_decoder() if hasattr(self._model, "get_decoder") else self._model.base_model
        full = copy.deepcopy(config)
        full._attn_implementation = attention
        self._body.config = full
        for name, module in self._body.named_children():
            if "rotary" in name:  # some prepare one for each kind of layer
                with torch.device(device):
                    setattr(self._body, name, type(module)(config=full))
        self._listeners = [_Listener(layer) for layer in layers]
        self._body.layers = nn.ModuleList(self._listeners)
        self._device = device
        self._arguments: dict[int, list[Arguments]] = {}

    def arguments(self, index: int, length: int) -> Arguments:
        """What the model calls block `index` with, beside the hidden states, for sequences of `length` tokens."""
        if length not in self._arguments:
            hidden = torch.zeros(1, length, self._body.config.hidden_size, device=self._device)
            self._enter(hidden)
            self._arguments[length] = [(listener.args, listener.kwargs) for listener in self._listeners]
        return self._arguments[length][index]

    def entry(self) -> Tensor | None:
        """What multiplies an embedding before the first block, [hidden]; None where more than that happens to it."""
        embedding = self._model.get_input_embeddings()
        tokens = torch.zeros(1, 4, dtype=torch.long, device=self._device)
        embedding.weight.fill_(1)
        once = self._enter(embedding(tokens))
        embedding.weight.fill_(2)
        twice = self._enter(embedding(tokens))
        return (
            once[0, 0] if torch.equal(once, once[:, :1].expand_as(once)) and torch.allclose(twice, 2 * once) else None
        )

    def ending(self) -> Callable[[Tensor], Tensor] | None:
        """What happens to the logits after norm and head; None where that is not understood."""
        head = self._model.get_output_embeddings()
        generator = torch.Generator().manual_seed(0)
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
        hidden = 3 * torch.randn(1, 8, self._body.config.hidden_size, generator=generator).to(self._device)
        right = self._model(inputs_embeds=hidden, use_cache=False).logits
        entered = self._listeners[0].hidden
        plain = self._body.norm(entered) @ head.weight.T
        cap = getattr(self._body.config, "final_logit_softcapping", None)
        factor = ((right * plain).sum() / plain.square().sum()).item()
        for known in (_as_they_are, _Scaled(factor), *((_Capped(cap),) if cap else ())):
            if torch.allclose(known(plain), right, rtol=1e-3, atol=1e-4):
                return known
        return None

    def _enter(self, embedded: Tensor) -> Tensor:
        """The hidden states that reach the first block."""
        self._body(inputs_embeds=embedded, use_cache=False)
        return self._listeners[0].hidden


class _Listener(nn.Module):
    """Stands where a block would, lets everything pass and remembers how it was called."""

    def __init__(self, block: nn.Module):
        super().__init__()
        self.__dict__["_block"] = block  # not as a submodule: it has no weights

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["_block"], name)

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        self.hidden, self.args, self.kwargs = hidden_states, args, kwargs
        return hidden_states


class _Scaled:
    """Logits times a factor, as in Cohere and Granite."""

    def __init__(self, factor: float):
        self._factor = factor

    def __call__(self, logits: Tensor) -> Tensor:
        return logits * self._factor


class _Capped:
    """Logits bent so that none goes beyond `cap`, as in Gemma 2."""

    def __init__(self, cap: float):
        self._cap = cap

    def __call__(self, logits: Tensor) -> Tensor:
        return torch.tanh(logits / self._cap) * self._cap


def _as_they_are(logits: Tensor) -> Tensor:
    return logits
