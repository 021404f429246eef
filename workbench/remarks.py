"""What may surprise in a plan without ruling it out."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from workbench import figures
from workbench.conflict import Conflict, Fix
from workbench.matching import cover, place
from workbench.recipe import Recipe
from workbench.sizes import Planned
from workbench.words import Sentence

FEWEST_TOKENS = 16_384  # below this GPTQ was measured worse than plain rounding on the starter model


def warn(recipe: Recipe, planned: Sequence[Planned]) -> tuple[Conflict, ...]:
    """What may surprise, without ruling anything out."""
    return (
        *_unserved(recipe, planned),
        *_few_tokens(recipe, planned),
        *_experts(planned),
    )


def _experts(planned: Sequence[Planned]) -> Iterable[Conflict]:
    modules = tuple(entry.linear.name for entry in planned if entry.linear.expert and not entry.choice.kept)
    if modules:
        yield Conflict(
            "experts_on_cpu",
            Sentence("vLLM runs quantized experts on a GPU only; on a CPU the result cannot be served."),
            modules,
            hint=Sentence("To serve it on a CPU, keep the experts in 16 bit."),
        )


def _unserved(recipe: Recipe, planned: Sequence[Planned]) -> Iterable[Conflict]:
    """Bits that vLLM 0.32 loads nowhere, or not everywhere."""
    names = [entry.linear.name for entry in planned]
    for bits, (sentence, hint) in _SERVED.items():
        found = [entry for entry in planned if not entry.choice.kept and entry.choice.bits == bits]
        if not found:
            continue
        fixed = recipe
        for choice in dict.fromkeys(entry.choice for entry in found):
            alike = [entry.linear.name for entry in found if entry.choice == choice]
            fixed = place(fixed, cover(alike, names), replace(choice, bits=4), names)
        yield Conflict(
            f"bits_{bits}",
            Sentence(sentence.template, {"count": len(found)}),
            tuple(entry.linear.name for entry in found),
            (Fix(Sentence("Use 4 bits for them"), fixed),),
            hint,
        )


# Humming is vLLM's only kernel that takes them, on NVIDIA GPUs, and on CPUs Lathe's plugin unpacks them. Three bits lie
# as vLLM counts them (dense.py), which compressed-tensors, and with it transformers, reads from 0.19 on.
_SERVED = {
    3: (
        Sentence(
            "{count} linear {count:layer has|layers have} 3 bits: vLLM serves them with its Humming kernels on "
            "NVIDIA GPUs only."
        ),
        Sentence("On a CPU Lathe unpacks them when loading. transformers needs compressed-tensors 0.19 to read them."),
    ),
    2: (
        Sentence(
            "{count} linear {count:layer has|layers have} 2 bits: vLLM serves them with its Humming kernels on "
            "NVIDIA GPUs only."
        ),
        Sentence("On a CPU Lathe unpacks them when loading. Expect a visible loss at 2 bits."),
    ),
}


def _few_tokens(recipe: Recipe, planned: Sequence[Planned]) -> Iterable[Conflict]:
    tokens = recipe.samples * recipe.length
    if tokens < FEWEST_TOKENS and any(entry.choice.method not in ("rtn", "keep") for entry in planned):
        yield Conflict(
            "few_tokens",
            Sentence(
                "{tokens} calibration tokens are few; below {fewest} GPTQ can be worse than plain rounding.",
                {"tokens": figures.tokens(tokens), "fewest": figures.tokens(FEWEST_TOKENS)},
            ),
            hint=Sentence("Take more or longer samples."),
        )
