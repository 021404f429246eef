"""A model and the events of its runs, for the tests of the Quantize page."""

import json
import struct
from pathlib import Path

from workbench import jobs, recipe
from workbench.catalog.folder import Model, inspect
from workbench.events import Advanced, Finished, Note, Stage, encode
from workbench.quant_events import ModuleDone, ModuleStarted, QualityMeasured
from workbench.recipe import LAYERED

BLOCKS = 30
SHAPES = {
    "self_attn.q_proj": (576, 576),
    "self_attn.k_proj": (192, 576),
    "self_attn.v_proj": (192, 576),
    "self_attn.o_proj": (576, 576),
    "mlp.gate_proj": (1536, 576),
    "mlp.up_proj": (1536, 576),
    "mlp.down_proj": (576, 1536),
}


def small_model(place: Path) -> Model:
    """The starter's shapes as headers over a hole in a file: nothing reads the weights here."""
    folder = place / "small"
    folder.mkdir()
    shapes = {"model.embed_tokens.weight": (49152, 576), "model.norm.weight": (576,)}
    for block in range(BLOCKS):
        shapes |= {f"model.layers.{block}.{name}.weight": shape for name, shape in SHAPES.items()}
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536,
        "num_hidden_layers": BLOCKS, "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
        "max_position_embeddings": 8192, "torch_dtype": "bfloat16", "tie_word_embeddings": True,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return inspect(folder)


def done(name, block, error=1e-3, fallback=""):
    counts = tuple(max(0, 1000 - 20 * abs(index - 60)) for index in range(120))
    return ModuleDone(
        name=name, block=block, method="gptq", bits=4, group_size=64, symmetric=True, shape=(576, 576),
        low=-0.5, high=0.5, before=counts, after=counts[::-1], levels=tuple(step / 16 for step in range(-8, 8)),
        not_finite=0, weight_error=2e-3, output_error=error, plain_output_error=4e-3, sqnr_db=30.0, kurtosis=4.1,
        outliers=0.003, clipped=0.0002, seconds=0.5, scale_low=0.6, scale_high=1.8, damping=0.01, fallback=fallback,
    )  # fmt: skip


def story(model, path="", modules=9):
    """The events of a run over the first modules, with an end where `path` is given."""
    events = [Stage("Quantizing", len(model.linears))]
    for number, linear in enumerate(model.linears[:modules], 1):
        events += [ModuleStarted(linear.name, linear.block), done(linear.name, linear.block), Advanced(number)]
    if path:
        name = Path(path).name
        events += [
            QualityMeasured(name, 9000, 0.106, 35.7, 32.9, 0.81),
            QualityMeasured("RTN", 9000, 0.434, 45.4, 32.9, 0.7),
            Note(
                "{count} {count:layer|layers} had to be rounded plainly: {names}.",
                {"count": 1, "names": "x"},
                "warning",
            ),
            Finished(path, 114_000_000),
        ]
    return events


def reopened(page, model, tmp_path, *events):
    """Show a job with these events; its folder."""
    spec = {"model": str(model.folder), "output": str(tmp_path / "result"), "recipe": recipe.to_dict(LAYERED)}
    folder = jobs.create("quantize", spec)
    (folder / "events.jsonl").write_text("".join(encode(event) + "\n" for event in events))
    page.reopen(folder)
    return folder
