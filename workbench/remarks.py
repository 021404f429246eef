"""What may surprise in a plan without ruling it out."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase

from workbench.catalog.model import Model
from workbench.conflict import Conflict, Fix
from workbench.matching import Match, cover, place
from workbench.overlaps import HEAD
from workbench.recipe import Recipe
from workbench.sizes import Planned
from workbench.words import Sentence

FEWEST_TOKENS = 16_384  # below this GPTQ was measured worse than plain rounding on the starter model


def warn(model: Model, recipe: Recipe, planned: Sequence[Planned], matches: Sequence[Match]) -> tuple[Conflict, ...]:
    """What may surprise, without ruling anything out."""
    return (
        *_unmatched(model, recipe, matches),
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


def _unmatched(model: Model, recipe: Recipe, matches: Sequence[Match]) -> Iterable[Conflict]:
    modules = [linear.name for linear in model.linears]
    others = [tensor.name.rpartition(".")[0] for tensor in model.tensors]
    for match in matches:
        pattern = match.rule.pattern
        # What names the head, an embedding or a norm is kept anyway, or is a conflict.
        if match.modules or pattern == HEAD or any(fnmatchcase(name, pattern) for name in others):
            continue
        near = nearest(pattern, modules)
        yield Conflict(
            "pattern_unmatched",
            Sentence("The pattern {pattern} matches no layer.", {"pattern": pattern}),
            fixes=tuple(Fix(Sentence("Use {pattern}", {"pattern": name}), _renamed(recipe, pattern, name))
                        for name in near),
            hint=Sentence("Did you mean {pattern}?", {"pattern": near[0]}) if near else None,
        )  # fmt: skip


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


def _renamed(recipe: Recipe, old: str, new: str) -> Recipe:
    rules = tuple(replace(rule, pattern=new) if rule.pattern == old else rule for rule in recipe.rules)
    return replace(recipe, rules=rules)


def nearest(pattern: str, modules: Sequence[str]) -> list[str]:
    """The pattern that was probably meant, if one comes near."""
    return get_close_matches(pattern, _candidates(modules), 1, 0.5)


def _candidates(modules: Sequence[str]) -> list[str]:
    """Patterns that somebody may have meant: whole names, beginnings and ends of them."""
    found: dict[str, None] = {}
    for name in modules[:2000]:
        parts = name.split(".")
        found |= dict.fromkeys((name, *(".".join(parts[:end]) + ".*" for end in range(1, len(parts)))))
        found |= dict.fromkeys("*." + ".".join(parts[start:]) for start in range(1, len(parts)))
    return list(found)


def _few_tokens(recipe: Recipe, planned: Sequence[Planned]) -> Iterable[Conflict]:
    tokens = recipe.samples * recipe.length
    if tokens < FEWEST_TOKENS and any(entry.choice.method not in ("rtn", "keep") for entry in planned):
        yield Conflict(
            "few_tokens",
            Sentence(
                "{tokens} calibration tokens are few; below {fewest} GPTQ can be worse than plain rounding.",
                {"tokens": tokens, "fewest": FEWEST_TOKENS},
            ),
            hint=Sentence("Take more or longer samples."),
        )
