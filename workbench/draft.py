"""A quantization being prepared: the model, the recipe, where the result goes, and the plan that follows."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench import matching, plan, recipe, recipes_kept
from workbench.catalog.capacity import Capacity, Device, capacity
from workbench.catalog.fit import usual_context
from workbench.catalog.model import Model
from workbench.plan import Plan
from workbench.reach import patterns
from workbench.recipe import PRESETS, Choice, Recipe


@dataclass(slots=True)
class Draft:
    """Every change plans anew. `library` is the folder in which results are proposed."""

    library: Path
    recipe: Recipe = PRESETS["layered"]
    model: Model | None = None
    output: Path | None = None
    plan: Plan | None = None
    device: Device | None = None
    _own_output: bool = False

    def take_model(self, model: Model) -> None:
        """Begin with another model; the recipe stays, rules for single layers of the old one do not."""
        if self.model is not None and self.model.folder != model.folder:
            self.recipe = recipes_kept.named(self.recipe.name) or _of_any_model(self.recipe)
        self.model, self._own_output = model, False
        self._make()

    def take_recipe(self, chosen: Recipe) -> None:
        self.recipe = chosen
        self._make()

    def take_output(self, path: Path) -> None:
        self.output, self._own_output = path, True
        self._make()

    def take_choice(self, name: str, choice: Choice, everywhere: bool) -> None:
        """Quantize one layer, or its like in all blocks, by `choice`, together with what vLLM fuses with it."""
        assert self.model is not None
        linears = self.model.linears
        names = [linear.name for linear in linears]
        self.take_recipe(matching.place(self.recipe, patterns(linears, name, everywhere), choice, names))

    def take_job(self, spec: dict[str, Any], model: Model | None) -> None:
        """Show a finished job's settings; `model` is None where the original is gone."""
        self.recipe, self.model = recipe.from_dict(spec["recipe"]), model
        self.output, self._own_output = Path(spec["output"]), True
        self.plan = plan.make(model, self.recipe) if model else None

    def take_amended(self, amended: Recipe) -> None:
        """The job at hand goes by another recipe now; its result goes where it went."""
        assert self.model is not None
        self.recipe, self.plan = amended, plan.make(self.model, amended)

    @property
    def fit(self) -> Capacity | None:
        """How the result will stand on `device` at the usual context; None where either is not known yet."""
        if self.plan is None or self.model is None or self.device is None:
            return None
        context, size = usual_context(self.model), self.plan.predicted_bytes
        return capacity(self.model, self.device, "INT4", context, weights=size)

    def spec(self, measure: bool) -> dict[str, Any]:
        """The job that makes it. `measure` compares it and plain rounding with the original afterwards."""
        assert self.model is not None and self.output is not None
        spec = {
            "model": str(self.model.folder),
            "output": str(self.output),
            "recipe": recipe.to_dict(self.recipe),
            "measure_rtn": measure,
            "reuse": True,
        }
        return spec if measure else spec | {"held_tokens": 0}

    def _make(self) -> None:
        if self.model is None:
            return
        if not self._own_output or self.output is None:
            self.output = proposed(self.library, self.model.name, self.recipe)
        self.plan = plan.make(self.model, self.recipe, self.output)


def _of_any_model(chosen: Recipe) -> Recipe:
    """The recipe without the rules for single layers, which mean nothing in another model; named as what is left."""
    wide = tuple(rule for rule in chosen.rules if not matching.is_name(rule.pattern))
    if wide == chosen.rules:
        return chosen
    parts = (chosen.attention, chosen.mlp)
    name = next((preset.name for preset in PRESETS.values() if (preset.attention, preset.mlp) == parts), "")
    return replace(chosen, rules=wide, name=name)


def proposed(library: Path, model_name: str, chosen: Recipe) -> Path:
    """A free folder for the result, named after the model, the bits and the recipe."""
    bits = {choice.bits for choice in chosen.choices if not choice.kept}
    kind = f"INT{bits.pop()}" if len(bits) == 1 else "mixed"
    name = f"{model_name}-{kind}-{chosen.name or 'custom'}"
    number, folder = 1, library / name
    while folder.exists():
        number += 1
        folder = library / f"{name}-{number}"
    return folder
