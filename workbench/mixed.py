"""A mix of bits that is the recipe now, and the way back behind it."""

from dataclasses import dataclass, replace

from workbench import matching
from workbench.catalog.model import Model
from workbench.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Mixed:
    """A mix that was taken into the recipe, and the recipe it was made of."""

    base: Recipe
    mix: Recipe

    def below(self, model: Model, recipe: Recipe) -> Recipe:
        """`recipe` without the mix: another mix starts from there. What was edited since is kept; a recipe that holds
        nothing of this mix stays as it is."""
        mixed = set(self.mix.rules) - set(self.base.rules)
        if mixed.isdisjoint(recipe.rules) or (recipe.attention, recipe.mlp) != (self.mix.attention, self.mix.mlp):
            return recipe
        names = [linear.name for linear in model.linears]
        below = replace(recipe, name=self.base.name, rules=self.base.rules)
        for rule in recipe.rules:
            if rule not in mixed and rule not in self.base.rules:
                below = matching.place(below, (rule.pattern,), rule.choice, names)
        return below
