"""What of a model and its conversations fits on a device, by arithmetic alone."""

from dataclasses import dataclass

from workbench import figures
from workbench.catalog.devices import Device, devices
from workbench.catalog.model import Model
from workbench.catalog.overhead import GIB, Overhead, estimate
from workbench.words import Sentence

__all__ = ["Capacity", "Device", "capacity", "devices", "kv_bytes_per_token"]

MEMORY_SHARE = 0.92  # vLLM's own default of how much of a GPU it takes
BLOCK = 128  # tokens in the largest default block of vLLM's cache, the CPU's
GPU_BLOCK = 16
_PACKED_BITS = {"INT8": 8, "INT4": 4}
_SCALES = 2 / 64  # bytes a packed weight takes on top: one 16-bit scale for 64


@dataclass(frozen=True, slots=True)
class Capacity:
    """All sizes in bytes. `weights` as they lie in memory; `kv_budget` is what is left for keys and values.

    Of the device's `total`, `others` is what others hold of it now. `draft` is what a draft's weights take;
    `activations` and `graphs` are parts of the `overhead`, told apart on GPUs only. `kv_bytes` is what `context`
    tokens take, `tokens_that_fit` how many the budget holds; `kv_tokens` is the figure that vLLM will print: the
    cache's whole blocks of `block` tokens, given to `concurrency` conversations of full length; `slots` are the whole
    ones of those. `roofline_tok_s` is the most that the memory's bandwidth allows one conversation: every weight is
    read once for each token; `roofline_measured` says that this bandwidth was measured here. `learned` says that an
    earlier start measured the memory. None where a figure is not known.
    """

    precision: str
    context: int | None
    value_bytes: int
    weights: int
    overhead: int
    available: int
    kv_budget: int
    kv_bytes_per_token: int | None
    kv_bytes: int | None
    tokens_that_fit: int | None
    slots: int | None
    roofline_tok_s: float | None
    unpacked: bool
    fits: bool
    sentence: Sentence
    total: int = 0
    others: int = 0
    draft: int = 0
    activations: int = 0
    graphs: int = 0
    block: int = BLOCK
    kv_tokens: int | None = None
    concurrency: float | None = None
    learned: bool = False
    roofline_measured: bool = False

    @property
    def needed(self) -> int:
        """Weights, overhead and one conversation of the chosen length."""
        return self.weights + self.draft + self.overhead + (self.kv_bytes or 0)

    @property
    def rest(self) -> int:
        """The overhead beside activations and graphs."""
        return self.overhead - self.activations - self.graphs

    @property
    def too_long(self) -> bool:
        """Whether not even one conversation of the chosen length has room in the cache."""
        return self.concurrency is not None and self.concurrency < 1

    @property
    def remark(self) -> Sentence | None:
        """That packing saves nothing here, where that is so."""
        if not self.unpacked:
            return None
        return Sentence("Unpacked at load: {precision} saves disk space but no memory on this processor.",
                        {"precision": self.precision})  # fmt: skip

    @property
    def longest(self) -> int | None:
        """The longest context to propose in tokens: whole blocks, less the one that vLLM keeps for itself."""
        return None if self.tokens_that_fit is None else _longest(self.tokens_that_fit, self.block)


def kv_bytes_per_token(model: Model, kv_dtype_bytes: int = 2) -> int | None:
    """Bytes of keys and values that one token leaves in all layers; None when the model's shape is not known."""
    if not model.layers:
        return None
    if model.latent:
        return model.layers * model.latent * kv_dtype_bytes
    if not model.kv_heads or not model.head_dim:
        return None
    return 2 * model.layers * model.kv_heads * model.head_dim * kv_dtype_bytes


def capacity(
    model: Model,
    device: Device,
    precision: str = "FP16",
    context: int | None = None,
    *,
    weights: int | None = None,
    kv_budget: int | None = None,
    value_bytes: int | None = None,
    kv_value_bytes: int | None = None,
    memory_share: float = MEMORY_SHARE,
    beside: int = 0,
    loaded: int | None = None,
    draft: int = 0,
    overhead: Overhead | None = None,
    block: int | None = None,
    per_token: int | None = None,
) -> Capacity:
    """The capacity of `device` for `model` served as "FP16", "INT8" or "INT4" with `context` tokens.

    `weights` is the size of a checkpoint where it is known, such as a plan's prediction. `kv_budget` fixes the cache
    in bytes; else it takes what is left. `value_bytes` is the width of the computing type: 4 on a CPU, where vLLM is
    run in float32 unless the format of the weights forbids it, otherwise 2; `kv_value_bytes` that of the KV cache where
    it differs. `beside` are the bytes that a draft leaves in the same cache for each token, `draft` those of its
    weights. `loaded` is what the weights take once loaded, `overhead` all else, `per_token` what a token takes of
    the cache with all that lies beside, where they are known; `block` is the size of the cache's blocks in tokens
    where it was chosen.
    """
    on_cpu = device.kind == "cpu"
    halved = model.quantization is not None and model.quantization.half_only
    value_bytes = value_bytes or (4 if on_cpu and not halved else 2)
    context = context or model.context
    packed = precision in _PACKED_BITS
    # vLLM's CPU kernel takes 4 bits and 16-bit activations only.
    unpacked = on_cpu and packed and (value_bytes > 2 or precision != "INT4" or not device.packed_kernel)
    memory = loaded or _in_memory(model, precision, weights, value_bytes, unpacked)
    overhead = overhead or estimate(model, device)
    available = device.free_bytes if on_cpu else min(device.free_bytes, int(device.total_bytes * memory_share))
    left = available - memory - draft - overhead.total
    budget = max(0, left) if kv_budget is None else kv_budget
    if per_token is None and (alone := kv_bytes_per_token(model, kv_value_bytes or value_bytes)) is not None:
        per_token = alone + beside
    tokens = budget // per_token if per_token else None
    block = _block(model, on_cpu, block)
    kv_tokens, concurrency = cache_of(budget, per_token, block, context)
    kv_bytes = per_token * context if per_token and context else None
    bandwidth = device.bandwidth_bytes_s
    room = left >= 0 and (kv_budget is None or left >= kv_budget)
    fits = room and (concurrency is None or concurrency >= 1)
    return Capacity(
        precision=precision,
        context=context,
        value_bytes=value_bytes,
        weights=memory,
        overhead=overhead.total,
        available=available,
        kv_budget=budget,
        kv_bytes_per_token=per_token,
        kv_bytes=kv_bytes,
        tokens_that_fit=tokens,
        slots=None if concurrency is None else int(concurrency),
        roofline_tok_s=bandwidth / _read_per_token(model, memory, value_bytes) if bandwidth and memory else None,
        unpacked=unpacked,
        fits=fits,
        sentence=_sentence(
            memory + draft + overhead.total + (kv_budget or 0), available, room, context, kv_bytes, budget,
            (tokens, kv_tokens, block),
        ),
        total=device.total_bytes,
        others=max(0, device.total_bytes - device.free_bytes),
        draft=draft,
        activations=overhead.activations,
        graphs=overhead.graphs,
        block=block,
        kv_tokens=kv_tokens,
        concurrency=concurrency,
        roofline_measured=bandwidth is not None and on_cpu,
    )  # fmt: skip


def _block(model: Model, on_cpu: bool, chosen: int | None) -> int:
    """Tokens in a block. The CPU's kernel for compressed keys and values (MLA) has one size only."""
    if on_cpu:
        return GPU_BLOCK if model.latent else chosen or BLOCK
    return chosen or GPU_BLOCK


def cache_of(budget: int, per_token: int | None, block: int, context: int | None) -> tuple[int | None, float | None]:
    """The tokens of the cache and the conversations of full length it holds, by vLLM's own division and rounding."""
    if not per_token or not context:
        return None, None
    concurrency = budget // (block * per_token) / -(-context // block)
    return int(concurrency * context), concurrency


def _in_memory(model: Model, precision: str, stored: int | None, value_bytes: int, unpacked: bool) -> int:
    """Bytes of the weights once loaded: what is not packed has the width of the computing type."""
    packable = sum(linear.weights for linear in model.linears)
    plain = model.parameters - packable
    if precision not in _PACKED_BITS or unpacked:
        return model.parameters * value_bytes
    if stored is None and model.quantization is not None:
        stored = model.weight_bytes
    if stored is not None:
        return stored + max(0, plain) * (value_bytes - 2)
    return int(packable * (_PACKED_BITS[precision] / 8 + _SCALES)) + plain * value_bytes


def _read_per_token(model: Model, memory: int, value_bytes: int) -> int:
    """Of an embedding that is not also the head, a token reads a single row."""
    unused = 0 if model.tied else (model.vocab or 0) * (model.hidden or 0) * value_bytes
    return max(1, memory - unused)


def _longest(tokens: int, block: int) -> int:
    step = max(BLOCK, block)
    return max(0, tokens // step - 1) * step


def _sentence(
    needed: int,
    available: int,
    room: bool,
    context: int | None,
    kv_bytes: int | None,
    budget: int,
    cache: tuple[int | None, int | None, int],
) -> Sentence:
    """`cache` is (tokens that fit, tokens as printed, tokens of a block)."""
    tokens, printed, block = cache
    too_long = printed is not None and context is not None and printed < context
    if not room and not (too_long and budget):
        return Sentence(
            "Too large for this device: {needed} are needed and {available} are free.",
            {"needed": figures.bytes_of(needed), "available": figures.bytes_of(available)},
        )
    if tokens is None or not context or kv_bytes is None:
        return Sentence("The weights fit; how much a token takes is not known.")
    values = {"context": figures.tokens(context), "tokens": figures.tokens(tokens), "slots": printed // context}
    if too_long:
        values |= {
            "needed": f"{kv_bytes / GIB:.2f}",
            "budget": f"{budget / GIB:.2f}",
            "longest": figures.tokens(_longest(tokens, block)),
        }
        return Sentence(
            "{context} tokens need {needed} GiB of KV cache and {budget} GiB are there: {tokens} tokens fit. "
            "Choose a context of at most {longest}.",
            values,
        )
    return Sentence(
        "Fits: {slots} {slots:conversation|conversations} of {context} tokens; the KV cache holds {tokens}.",
        values | {"tokens": figures.tokens(printed)},
    )
