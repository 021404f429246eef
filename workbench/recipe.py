"""What the user chose: how each part of a model is quantized, without yet knowing the model.

A group size of 0 leaves the size to the model: 128 where that divides every input size of the part, otherwise
32 in attention (few weights, and the more sensitive ones) and the largest of 64 and 32 that fits in the MLP.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from workbench.errors import WorkbenchError
from workbench.words import say

AUTO = 0
WHOLE_ROW = -1
GROUP_SIZES = (128, 64, 32)  # what vLLM's kernels take on every device, coarsest first


def choice(default: Any, label: str, *values: Any) -> Any:
    """A field with its label (a template) and, where the choice is closed, its values."""
    return field(default=default, metadata={"label": label, "values": values})


def _check(choice: Any) -> None:
    for option in fields(choice):
        values = option.metadata["values"]
        value = getattr(choice, option.name)
        # True equals 1 and 4.0 equals 4, but neither is what the file should say.
        if values and not any(value == known and type(value) is type(known) for known in values):
            raise WorkbenchError(
                "{label} cannot be {value}.", "Choose one of {values}.",
                label=_label(choice, option.name), value=value, values=", ".join(map(str, values)),
            )  # fmt: skip


def _label(owner: Any, name: str) -> str:
    return say(next(option for option in fields(owner) if option.name == name).metadata["label"])


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """How one linear layer is quantized; "keep" leaves it in 16 bit and the other fields unused."""

    method: str = choice("gptq", "Method", "awq", "gptq", "awq+gptq", "rtn", "keep")
    bits: int = choice(4, "Bits", 4, 8)
    group_size: int = choice(AUTO, "Group size", AUTO, 32, 64, 128, WHOLE_ROW)
    symmetric: bool = choice(True, "Symmetric", True, False)
    order: str = choice("static", "Column order", "none", "static")
    damping: float = choice(0.01, "Damping")
    clip: bool = choice(True, "Clip search", True, False)

    def __post_init__(self) -> None:
        _check(self)
        if type(self.damping) not in (int, float) or not 0 < self.damping <= 1:
            raise WorkbenchError(
                "Damping cannot be {value}.", "Choose a number above 0 and up to 1, such as 0.01.", value=self.damping
            )
        if self.bits == 8 and not self.symmetric and self.method != "keep":
            raise WorkbenchError("Asymmetric weights need 4 bits.", "Choose 4 bits, or symmetric with 8 bits.")

    @property
    def kept(self) -> bool:
        return self.method == "keep"


PLAIN = Choice()


@dataclass(frozen=True, slots=True)
class Rule:
    """`choice` for every linear whose name the pattern (* and ?) matches; a later rule wins."""

    pattern: str
    choice: Choice


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """Choices for attention and MLP, exceptions, and the calibration: `samples` texts of `length` tokens."""

    name: str = choice("", "Name")
    attention: Choice = field(default=PLAIN, metadata={"label": "Attention", "values": ()})
    mlp: Choice = field(default=PLAIN, metadata={"label": "MLP", "values": ()})
    rules: tuple[Rule, ...] = choice((), "Exceptions")
    samples: int = choice(128, "Calibration samples")
    length: int = choice(512, "Tokens in a sample")
    calibration_file: str | None = choice(None, "Calibration file")
    seed: int = choice(0, "Seed")

    def __post_init__(self) -> None:
        for option, least in (("samples", 1), ("length", 8), ("seed", 0)):
            value = getattr(self, option)
            if type(value) is not int or not least <= value <= 1_000_000:
                raise WorkbenchError(
                    "{label} cannot be {value}.", "Choose a whole number from {least} to 1000000.",
                    label=_label(self, option), value=value, least=least,
                )  # fmt: skip
        if self.calibration_file is not None and not isinstance(self.calibration_file, str):
            raise WorkbenchError("The calibration file must be a path.", "Give it as text, or leave it out.")

    @property
    def choices(self) -> tuple[Choice, ...]:
        return (self.attention, self.mlp, *(rule.choice for rule in self.rules))


# AWQ where a few input channels stand out, GPTQ where most weights are.
LAYERED = Recipe(
    name="layered", attention=Choice(method="awq", symmetric=False), mlp=Choice(method="gptq", symmetric=True)
)
BEST = replace(
    LAYERED,
    name="best",
    attention=replace(LAYERED.attention, method="awq+gptq"),
    mlp=replace(LAYERED.mlp, method="awq+gptq"),
)
RTN = replace(
    LAYERED,
    name="rtn",
    attention=replace(LAYERED.attention, method="rtn", order="none", clip=False),
    mlp=replace(LAYERED.mlp, method="rtn", order="none", clip=False),
)
PRESETS: dict[str, Recipe] = {recipe.name: recipe for recipe in (LAYERED, BEST, RTN)}


def with_group_size(recipe: Recipe, size: int) -> Recipe:
    """The recipe with one group size everywhere."""
    return replace(
        recipe,
        attention=replace(recipe.attention, group_size=size),
        mlp=replace(recipe.mlp, group_size=size),
        rules=tuple(Rule(rule.pattern, replace(rule.choice, group_size=size)) for rule in recipe.rules),
    )


def with_rules(recipe: Recipe, patterns: tuple[str, ...], choice: Choice) -> Recipe:
    """The recipe with `choice` for these patterns, over all earlier rules."""
    kept = tuple(rule for rule in recipe.rules if rule.pattern not in patterns)
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


def load(name: str) -> Recipe:
    """A preset by its name, or the recipe in a JSON file."""
    if str(name) in PRESETS:
        return PRESETS[str(name)]
    path = Path(name)
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise WorkbenchError(
            "{path} is not valid JSON: {reason}.", "Correct the file, or start from a preset: {presets}.",
            path=str(path), reason=str(error), presets=", ".join(PRESETS),
        ) from error  # fmt: skip
    except OSError as error:
        raise WorkbenchError(
            "There is no recipe called {name}.", "Choose one of {presets}, or give the path of a recipe file.",
            name=str(name), presets=", ".join(PRESETS),
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
    names = [option.name for option in fields(kind)]
    for key in stored:
        if key not in names:
            near = get_close_matches(str(key), names, 1)
            raise WorkbenchError(
                "The recipe has an unknown field {key}.", "Known here: {names}.",
                key=str(key), names=", ".join(near or names),
            )  # fmt: skip
    return dict(stored)
