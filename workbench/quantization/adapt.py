"""The adapt job: a copy of a draft whose rows for tokens stand in its target's order, proved by loading both.

A token that the draft does not know gets the mean of all rows: the middle of what it knows as input, and as output
never the largest score, since the mean of all scores is below their maximum.
"""

import gc
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from workbench import figures, json_file
from workbench.adaption import Adaption, plan
from workbench.errors import WorkbenchError, first_line
from workbench.events import Advanced, Event, Finished, Note, Stage
from workbench.quantization import place
from workbench.quantization.checkpoint import Checkpoint, check_space
from workbench.quantization.weights import Weights

# What says how text becomes tokens; the draft's licence stays its own.
TOKENS = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "vocab.txt", "merges.txt", "chat_template.jinja", "chat_template.json",
)  # fmt: skip
PROMPT = 32  # tokens that both are asked, spread over the vocabulary
CLOSE = 1e-3  # between scores in float32, whose sums may run in another order


class Adapted(Checkpoint):
    """A folder in the making with the target's vocabulary: its size, its end tokens, its tokenizer files."""

    def __init__(self, chosen: Adaption, target: Path):
        super().__init__(chosen.draft.folder, target, None)
        self.chosen = chosen

    def finish(self) -> None:
        super().finish()
        with place.disk_errors(self.target):
            for name in (*TOKENS, "generation_config.json"):  # its end tokens have the draft's numbers
                (self.folder / name).unlink(missing_ok=True)
            for name in TOKENS:
                if (self.chosen.target.folder / name).is_file():
                    shutil.copyfile(self.chosen.target.folder / name, self.folder / name)

    def _write_config(self) -> None:
        config = json_file.read(self.source / "config.json")
        theirs = json_file.read(self.chosen.target.folder / "config.json")
        inner = config.get("text_config") if isinstance(config.get("text_config"), dict) else config
        inner["vocab_size"] = self.chosen.size
        for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
            if name in config and name in theirs:
                config[name] = theirs[name]
        text = json.dumps(config, indent=2, ensure_ascii=False)
        (self.folder / "config.json").write_text(text + "\n", encoding="utf-8")


def run(spec: Mapping[str, Any], folder: Path) -> Iterator[Event]:
    """Make and publish the copy. spec: draft, target, output (folders).

    Nothing lies under the output's name before the copy was loaded and scored what the draft scores.
    """
    output = Path(spec["output"])
    chosen = plan(Path(spec["draft"]), Path(spec["target"]))
    place.purge(output)
    place.check_name(output, False)
    check_space(output, chosen.predicted_bytes)
    _check_memory(chosen)
    result = Adapted(chosen, output)
    try:
        result.open()
        yield from _copy(chosen, Weights(chosen.draft.folder), result)
        result.finish()
        yield Stage("Loading both", 1)
        yield from _prove(chosen, result.folder)
        size = result.publish()
    finally:
        result.discard()
    yield Finished(str(output), size)


def _check_memory(chosen: Adaption) -> None:
    """Each of the two is loaded in float32, one after the other."""
    needed, free = 4 * chosen.draft.parameters, psutil.virtual_memory().available
    if needed > free:
        raise WorkbenchError(
            "To prove the copy takes {needed} of memory, and {free} are free.", "Close other programs, then try again.",
            needed=figures.bytes_of(needed), free=figures.bytes_of(free),
        )  # fmt: skip


def _copy(chosen: Adaption, weights: Weights, result: Adapted) -> Iterator[Event]:
    names = list(weights)
    yield Stage("Copying the weights", len(names))
    for done, name in enumerate(names, 1):
        tensor = weights.read(name)
        result.add({name: ordered(tensor, chosen.rows) if name in chosen.tensors else tensor})
        yield Advanced(done)


def ordered(tensor: Tensor, rows: tuple[int | None, ...]) -> Tensor:
    """[draft's tokens, …] → [target's tokens, …]; a row of None is the mean of all."""
    found = tensor[torch.tensor([0 if row is None else row for row in rows])]
    unknown = torch.tensor([row is None for row in rows])
    if unknown.any():
        found[unknown] = tensor.float().mean(0).to(tensor.dtype)
    return found


@torch.no_grad()
def _prove(chosen: Adaption, folder: Path) -> Iterator[Event]:
    """Both score the same text alike: every token that both know, at every place of a prompt."""
    try:
        AutoConfig.from_pretrained(chosen.draft.folder)
    except (ValueError, OSError, ImportError) as error:
        yield Note("The copy was not run: transformers cannot load this draft ({reason}).",
                   {"reason": first_line(error)}, level="warning")  # fmt: skip
        return
    known = [number for number, row in enumerate(chosen.rows) if row is not None]
    prompt = known[:: max(1, len(known) // PROMPT)][:PROMPT]
    rows = torch.tensor([chosen.rows[number] for number in known])
    before = _scores(chosen.draft.folder, [chosen.rows[number] for number in prompt])[:, rows]
    after = _scores(folder, prompt)
    if after.shape[1] != chosen.size or not torch.allclose(after[:, known], before, rtol=CLOSE, atol=CLOSE):
        raise WorkbenchError(
            "The adapted copy does not score as the draft does; it was not kept.",
            "Please report this with the job's log.",
        )
    yield Advanced(1)


def _scores(folder: Path, prompt: list[int]) -> Tensor:
    """[tokens of the prompt, vocabulary] in float32."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    found = model(torch.tensor([prompt])).logits[0]
    del model
    gc.collect()
    return found
