"""For which layers a choice must hold when it is made for one of them."""

from collections.abc import Iterable

from workbench.catalog.linears import FUSED, Linear


def siblings(linears: Iterable[Linear], name: str) -> tuple[Linear, ...]:
    """The layers that vLLM loads as one with `name`, itself included; `name` alone where nothing is fused."""
    linears = tuple(linears)
    own = next(linear for linear in linears if linear.name == name)
    roles = next((group for group in FUSED if own.role in group), ())
    together = tuple(other for other in linears if other.parent == own.parent and other.role in roles)
    return together or (own,)


def patterns(linears: Iterable[Linear], name: str, everywhere: bool) -> tuple[str, ...]:
    """The patterns of a recipe's rules that reach `name` and what is fused with it, in its block or in all."""
    return tuple(
        linear.name.replace(f".{linear.block}.", ".*.", 1) if everywhere else linear.name
        for linear in siblings(linears, name)
    )
