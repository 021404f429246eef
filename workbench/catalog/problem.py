"""Something about a model folder that the user should know, and which actions it rules out."""

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.words import Sentence

QUANTIZE, SERVE, CHAT = "quantize", "serve", "chat"


@dataclass(frozen=True)
class Problem:
    """`blocks` names the actions that cannot work; empty when it is only worth knowing."""

    code: str
    sentence: Sentence
    hint: Sentence | None = None
    blocks: tuple[str, ...] = ()


def already_quantized(described: Sentence) -> Problem:
    return Problem(
        "already_quantized",
        Sentence("Already quantized: {described}.", {"described": described}),
        Sentence("Choose the original 16-bit model to quantize."),
        (QUANTIZE,),
    )


def no_linears() -> Problem:
    return Problem(
        "no_linears",
        Sentence("No linear layers were found under \"layers.N.\"."),
        Sentence("This kind of model cannot be quantized here."),
        (QUANTIZE,),
    )  # fmt: skip


def unusual_blocks(architecture: str, tensors: Sequence[str]) -> Problem:
    values = {"architecture": architecture, "count": len(tensors), "name": tensors[0]}
    return Problem(
        "unusual_blocks",
        Sentence(
            "Lathe does not know how to quantize the blocks of {architecture}: it does not understand {name}.", values
        )
        if len(tensors) == 1
        else Sentence(
            "Lathe does not know how to quantize the blocks of {architecture}: it does not understand {count} of "
            "their tensors, such as {name}.",
            values,
        ),
        Sentence("Choose a model whose blocks hold attention, MLP or experts, and norms only."),
        (QUANTIZE,),
    )


def no_template() -> Problem:
    return Problem(
        "no_template",
        Sentence("The model has no chat template."),
        Sentence("It can complete text; for chat choose the instruction-tuned version."),
        (CHAT,),
    )


def failed_check(check: Sentence) -> Problem:
    return Problem(
        "failed_check",
        Sentence("This result failed a check after it was written: {check}.", {"check": check}),
        Sentence("Quantize again with more bits or smaller groups; the job's report has the figures."),
        (QUANTIZE, SERVE, CHAT),
    )


def beside_gguf(file: str) -> Problem:
    return Problem("gguf_beside", Sentence("The folder also holds {file}; the safetensors are used.", {"file": file}))


def gguf_source() -> Problem:
    return Problem(
        "gguf",
        Sentence("GGUF cannot be the source for AWQ or GPTQ, and this vLLM does not serve it."),
        Sentence("Choose the safetensors repository of the same model."),
        (QUANTIZE, SERVE, CHAT),
    )
