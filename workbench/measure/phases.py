"""How the tokens of an interval are shared between prompts and answers."""

from workbench.engine.metrics import Rates
from workbench.measure.series import share


def phases(now: Rates) -> tuple[tuple[str, float], ...]:
    """("prefill", share of 1) and ("decode", share of 1); both 0 where nothing was computed."""
    whole = (now.prompt_per_s or 0) + (now.tokens_per_s or 0)
    return ("prefill", share(now.prompt_per_s, whole) or 0.0), ("decode", share(now.tokens_per_s, whole) or 0.0)
