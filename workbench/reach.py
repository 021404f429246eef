"""For which layers a choice must hold when it is made for one of them."""

from collections.abc import Iterable

from workbench.catalog.linears import FUSED, Linear

# Read from the same input into one matrix where attention is latent (DeepSeek's MLA).
LATENT = ("q_a_proj", "kv_a_proj_with_mqa")
EXPERTS = ".experts."


def family(linear: Linear) -> tuple[str, str] | None:
    """The layers that vLLM loads as one have the same family; None where a layer stands alone.

    All experts of a block are one: vLLM takes the first one's scheme for all.
    """
    if EXPERTS in linear.name:
        return "experts", linear.name.partition(EXPERTS)[0]
    if linear.leaf in LATENT:
        return "latent", linear.parent
    return next(((roles[0], linear.parent) for roles in FUSED if linear.role in roles), None)


def siblings(linears: Iterable[Linear], name: str) -> tuple[Linear, ...]:
    """The layers that vLLM loads as one with `name`, itself included; `name` alone where nothing is fused."""
    linears = tuple(linears)
    own = next(linear for linear in linears if linear.name == name)
    if (kind := family(own)) is None:
        return (own,)
    return tuple(other for other in linears if family(other) == kind)


def patterns(linears: Iterable[Linear], name: str, everywhere: bool) -> tuple[str, ...]:
    """The patterns of a recipe's rules that reach `name` and what is fused with it, in its block or in all."""
    if EXPERTS in name:
        own = next(linear for linear in linears if linear.name == name)
        return (_anywhere(f"{name.partition(EXPERTS)[0]}{EXPERTS}*", own.block, everywhere),)
    return tuple(_anywhere(linear.name, linear.block, everywhere) for linear in siblings(linears, name))


def _anywhere(name: str, block: int, everywhere: bool) -> str:
    return name.replace(f".{block}.", ".*.", 1) if everywhere else name
