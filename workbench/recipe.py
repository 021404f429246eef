"""What the user chose: how each part of a model is quantized, without yet knowing the model.

A group size of 0 leaves the size to the model: 128 where that divides every input size of the part, otherwise
32 in attention (few weights, and the more sensitive ones) and the largest of 64 and 32 that fits in the MLP.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from workbench import json_file, paths
from workbench.choice import AUTO, BITS, GROUP_SIZES, KEEP, PLAIN, WHOLE_ROW, Choice
from workbench.errors import WorkbenchError
from workbench.option import check_closed, label_of, option

__all__ = [
    "AUTO", "BITS", "GROUP_SIZES", "KEEP", "LAYERED", "PLAIN", "PRESETS", "WHOLE_ROW", "Choice", "Recipe", "Rule",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """`choice` for every linear whose name the pattern (* and ?) matches.

    A rule that names a layer in full wins over patterns. Two patterns with different choices on one layer are
    refused by the plan; until that is solved the later one is shown.
    """

    pattern: str
    choice: Choice


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """Choices for attention and MLP, exceptions, and the calibration: `samples` texts of `length` tokens.

    `tensor_parallel` is over how many GPUs the result shall be split when served; the plan sees to it that it can.
    `targets`: what each layer is fitted to, the outputs of its own weight on quantized inputs or the original model's.
    """

    name: str = option("", "Name")
    attention: Choice = option(PLAIN, "Attention")
    mlp: Choice = option(PLAIN, "MLP")
    rules: tuple[Rule, ...] = option((), "Exceptions")
    samples: int = option(128, "Calibration samples")
    length: int = option(512, "Tokens in a sample")
    calibration_file: str | None = option(None, "Calibration file")
    seed: int = option(0, "Seed")
    tensor_parallel: int = option(1, "GPUs to split over")
    targets: str = option("own", "Fitted to", "own", "original")

    def __post_init__(self) -> None:
        check_closed(self)
        for name, least, most in (
            ("samples", 1, 1_000_000), ("length", 8, 1_000_000), ("seed", 0, 1_000_000), ("tensor_parallel", 1, 1024),
        ):  # fmt: skip
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most:
                raise WorkbenchError(
                    "{label} cannot be {value}.", "Choose a whole number from {least} to {most}.",
                    label=label_of(self, name), value=value, least=least, most=most,
                )  # fmt: skip
        if not isinstance(self.name, str) or "\n" in self.name:
            raise WorkbenchError("The name of a recipe must be one line of text.", "Give it a short name.")
        if self.calibration_file is not None and not isinstance(self.calibration_file, str):
            raise WorkbenchError("The calibration file must be a path.", "Give it as text, or leave it out.")

    @property
    def choices(self) -> tuple[Choice, ...]:
        return (self.attention, self.mlp, *(rule.choice for rule in self.rules))


# AWQ where a few input channels stand out, GPTQ where most weights are.
LAYERED = Recipe(
    name="layered", attention=Choice(method="awq", symmetric=False), mlp=Choice(method="gptq", symmetric=True)
)
# No AWQ: its scales suit plain rounding, and what GPTQ has made and refined comes out worse with them.
BEST = replace(
    LAYERED,
    name="best",
    attention=replace(LAYERED.attention, method="gptq", refine=True),
    mlp=replace(LAYERED.mlp, method="gptq", refine=True),
    targets="original",
)
RTN = replace(
    LAYERED,
    name="rtn",
    attention=replace(LAYERED.attention, method="rtn", order="none", clip=False),
    mlp=replace(LAYERED.mlp, method="rtn", order="none", clip=False),
)
_EIGHT = Choice(method="gptq", bits=8, clip=False)  # at 8 bits a clipped range has nothing to win
PRESETS: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        LAYERED,
        BEST,
        RTN,
        replace(LAYERED, name="awq", mlp=replace(LAYERED.mlp, method="awq")),
        replace(LAYERED, name="gptq", attention=replace(LAYERED.attention, method="gptq")),
        replace(LAYERED, name="int8", attention=_EIGHT, mlp=_EIGHT),
        replace(LAYERED, name="glm", attention=Choice(method="awq", group_size=64), mlp=KEEP),
    )
}


def with_group_size(recipe: Recipe, size: int) -> Recipe:
    """The recipe with one group size everywhere."""
    return replace(
        recipe,
        attention=replace(recipe.attention, group_size=size),
        mlp=replace(recipe.mlp, group_size=size),
        rules=tuple(Rule(rule.pattern, replace(rule.choice, group_size=size)) for rule in recipe.rules),
    )


def with_rules(recipe: Recipe, patterns: tuple[str, ...], choice: Choice) -> Recipe:
    """The recipe with `choice` for these patterns; earlier rules that they hide go."""
    names, wide = set(patterns), [pattern for pattern in patterns if "*" in pattern]
    kept = tuple(
        rule
        for rule in recipe.rules
        if rule.pattern not in names and not any(fnmatchcase(rule.pattern, pattern) for pattern in wide)
    )
    return replace(recipe, rules=kept + tuple(Rule(pattern, choice) for pattern in patterns))


def to_dict(recipe: Recipe) -> dict[str, Any]:
    """Plain values, as a recipe file holds them."""
    return asdict(recipe) | {"rules": [asdict(rule) for rule in recipe.rules]}


def from_dict(stored: Mapping[str, Any]) -> Recipe:
    """The recipe of plain values; what is left out has its default. Raises WorkbenchError on anything unknown."""
    values = _known(Recipe, stored)
    for part in ("attention", "mlp"):
        if part in values:
            values[part] = Choice(**_known(Choice, values[part]))
    if "rules" in values:
        values["rules"] = tuple(_rule(entry) for entry in _list(values["rules"]))
    return Recipe(**values)


def kept_file(name: str) -> Path:
    """Where the user's own recipe of that name lies or would lie."""
    return paths.home() / "recipes" / f"{name}.json"


def load(name: str) -> Recipe:
    """A preset or the user's own recipe by its name, or the recipe in a JSON file."""
    if str(name) in PRESETS:
        return PRESETS[str(name)]
    kept = kept_file(str(name))
    return read(kept if Path(name).name == str(name) and kept.is_file() else Path(name))


def read(path: Path) -> Recipe:
    """The recipe in a JSON file, named after the file where it has no name."""
    try:
        stored = json_file.read(path, "utf-8-sig")  # with the mark that some editors put first
    except ValueError as error:
        raise WorkbenchError(
            "{path} is not valid JSON: {reason}.", "Correct the file, or start from a preset: {presets}.",
            path=str(path), reason=str(error), presets=", ".join(PRESETS),
        ) from error  # fmt: skip
    except OSError as error:
        raise WorkbenchError(
            "There is no recipe called {name}.", "Choose one of {presets}, or give the path of a recipe file.",
            name=str(path), presets=", ".join(PRESETS),
        ) from error  # fmt: skip
    recipe = from_dict(stored)
    return recipe if recipe.name else replace(recipe, name=path.stem)


def _rule(stored: Any) -> Rule:
    values = _known(Rule, stored)
    if not isinstance(values.get("pattern"), str) or "choice" not in values:
        raise WorkbenchError(
            "A rule needs a pattern and a choice.", 'Give it both fields, the pattern for example as "*.o_proj".'
        )
    return Rule(values["pattern"], Choice(**_known(Choice, values["choice"])))


def _list(value: Any) -> list:
    if not isinstance(value, list | tuple):
        raise WorkbenchError("The rules of a recipe must be a list.", "Write them as [ … ].")
    return list(value)


def _known(kind: type, stored: Any) -> dict[str, Any]:
    """The fields as given, once all of them are known to `kind`."""
    if not isinstance(stored, Mapping):
        raise WorkbenchError(
            "A recipe is made of objects with named fields; {value} is none.", "Compare the file with a preset.",
            value=json.dumps(stored, default=str)[:60],
        )  # fmt: skip
    names = [each.name for each in fields(kind)]
    for key in stored:
        if key not in names:
            near = get_close_matches(str(key), names, 1)
            raise WorkbenchError(
                "The recipe has an unknown field {key}.",
                "Did you mean {near}? Known here: {names}." if near else "Known here: {names}.",
                key=str(key), names=", ".join(names), near=", ".join(near),
            )  # fmt: skip
    return dict(stored)
