"""One model folder, read from its configuration and the headers of its weights alone."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from workbench import json_file
from workbench.catalog import dtypes, endings, gguf, linears, problem, quantized, rope, weights
from workbench.catalog.config import first_text, read_config, text_part, whole
from workbench.catalog.headers import Tensor
from workbench.catalog.linears import Linear
from workbench.catalog.model import Model
from workbench.catalog.problem import Problem
from workbench.catalog.quantized import Quantized
from workbench.catalog.weights import Missing
from workbench.errors import WorkbenchError
from workbench.words import Sentence

__all__ = ["Linear", "Missing", "Model", "Problem", "Quantized", "Tensor", "Unreadable", "inspect", "scan"]


@dataclass(frozen=True)
class Unreadable:
    """A folder that looks like a model and cannot be read as one."""

    folder: Path
    error: WorkbenchError


def inspect(folder: Path) -> Model:
    """The model in `folder`, without touching its weights. Raises WorkbenchError when there is none to read."""
    folder = Path(folder)
    if not folder.is_dir():
        raise WorkbenchError(
            "There is no folder {path}.", "Choose the folder that holds config.json.", path=str(folder)
        )
    ggufs = gguf.files(folder)
    stored = weights.read(folder)
    if not stored.tensors and not stored.problems:
        if ggufs:
            return gguf.inspect(folder, ggufs)
        raise weights.none(folder)
    config = read_config(folder)
    text = text_part(config)
    notes = list(stored.problems)
    if ggufs:
        notes.append(problem.beside_gguf(ggufs[0].name))
    if check := failed_check(folder):
        notes.append(problem.failed_check(check))
    return _build(folder, config, text, stored, notes)


def failed_check(folder: Path) -> Sentence | None:
    """What a result of ours failed after it was written; such a folder is marked."""
    try:
        marker = json_file.read(folder / "lathe-failed.json")
        return Sentence(str(marker["message"]), dict(marker["values"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return Sentence("its mark cannot be read")


def scan(folders: Iterable[Path]) -> list[Model | Unreadable]:
    """Every model in these folders, one or two levels down, by name; a folder may itself be a model."""
    found: dict[Path, Model | Unreadable] = {}
    for folder in folders:
        for candidate in _candidates(Path(folder), depth=2):
            if (real := candidate.resolve()) in found:
                continue
            try:
                found[real] = inspect(candidate)
            except WorkbenchError as error:
                found[real] = Unreadable(candidate, error)
    return sorted(found.values(), key=lambda entry: entry.folder.name.lower())


def _candidates(folder: Path, depth: int) -> Iterable[Path]:
    try:
        inside = sorted(folder.iterdir())
    except OSError:
        return
    if any(path.name == "config.json" or path.suffix in (".safetensors", ".gguf") for path in inside):
        yield folder
    elif depth:
        for path in inside:
            if path.is_dir() and not path.name.startswith("."):
                yield from _candidates(path, depth - 1)


def _build(folder: Path, config: dict, text: dict, stored: weights.Weights, notes: list[Problem]) -> Model:
    packed = quantized.find(folder, stored.tensors, config, text)
    layers = linears.find(stored.tensors, quantized.shapes(folder, stored.tensors))
    shapes = {tensor.name.rpartition(".weight")[0].rpartition(".")[2]: tensor.shape for tensor in stored.tensors}
    heads = whole(text, "num_attention_heads", "n_head", "n_heads")
    hidden = whole(text, "hidden_size", "n_embd", "d_model")
    depth = whole(text, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    if depth is None and layers:
        depth = max(linear.block for linear in layers) + 1
    # DeepSeek keeps a layer for speculation behind the last one; the model's own code does not run it.
    layers = tuple(linear for linear in layers if linear.block < (depth or 0))
    names = {tensor.name for tensor in stored.tensors}
    tied = bool(text.get("tie_word_embeddings", config.get("tie_word_embeddings", "lm_head.weight" not in names)))
    scaled = rope.read(text, whole(text, "max_position_embeddings", "n_positions", "max_sequence_length", "seq_length"))
    ends = endings.read(folder, text)
    dtype, mixed = dtypes.read(stored.tensors, text)
    notes += [note for note in (scaled.problem, mixed, *ends.problems) if note]
    if packed:
        notes.append(problem.already_quantized(packed.sentence))
    elif not layers and stored.tensors:
        notes.append(problem.no_linears())
    elif not stored.problems and (strange := linears.strange(stored.tensors)):
        notes.append(problem.unusual_blocks(first_text(config.get("architectures")) or "?", strange))
    if not ends.template:
        notes.append(problem.no_template())
    embedding = shapes.get("embed_tokens", ())
    latent = whole(text, "kv_lora_rank")
    return Model(
        folder=folder,
        name=folder.resolve().name,
        format="safetensors",
        architecture=first_text(config.get("architectures")),
        model_type=str(config.get("model_type") or ""),
        layers=depth,
        hidden=hidden,
        intermediate=whole(text, "intermediate_size", "n_inner", "ffn_dim"),
        heads=heads,
        kv_heads=whole(text, "num_key_value_heads", "n_head_kv", "num_kv_heads") or heads,
        head_dim=whole(text, "head_dim") or (hidden // heads if hidden and heads else None),
        vocab=whole(text, "vocab_size") or (embedding[0] if embedding else None),
        context=scaled.context,
        dtype=dtype,
        parameters=_parameters(stored.tensors, layers, tied, packed.bits if packed else None),
        weight_bytes=sum(tensor.bytes for tensor in stored.tensors),
        tied=tied,
        attention_bias=any(linear.bias for linear in layers if linear.in_attention),
        has_template=ends.template is not None,
        eos_ids=ends.ids,
        rope=scaled.kind,
        rope_factor=scaled.factor,
        quantization=packed,
        tensors=stored.tensors,
        linears=layers,
        problems=tuple(notes),
        missing=stored.missing,
        latent=latent + (whole(text, "qk_rope_head_dim") or 0) if latent else None,
    )


def _parameters(tensors: tuple[Tensor, ...], layers: tuple[Linear, ...], tied: bool, bits: int | None) -> int:
    """Packed layers count as what they unpack to, their scales and zero points not at all."""
    packed = {f"{linear.name}.weight_packed": linear.weights for linear in layers}
    names = {tensor.name for tensor in tensors}
    for tensor in tensors:
        if f"{tensor.name}.absmax" in names and tensor.dtype == "U8":  # bitsandbytes: two weights of 4 bits in a byte
            packed[tensor.name] = 2 * tensor.elements
    count = 0
    for tensor in tensors:
        if tensor.name in packed:
            count += packed[tensor.name]
        elif tensor.name.endswith(".qweight"):  # AWQ and GPTQ: words of 32 bits
            count += tensor.elements * 32 // (bits or 4)
        elif not quantized.SIDE.search(tensor.name) and not (tied and tensor.name == "lm_head.weight"):
            count += tensor.elements
    return count
