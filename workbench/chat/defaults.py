"""The sampling values that a model brings along: vLLM applies them to whatever a request leaves open.

They come from generation_config.json. A request that sets only its temperature is still cut to one token by a top_k of
1 from there, so they are shown, and can be left out.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from workbench import json_file
from workbench.engine.sampling import Sampling

# What vLLM computes with where neither request nor model says anything: each leaves the probabilities as they are.
NEUTRAL = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}

Values = Mapping[str, float | int]


def of_model(folder: Path) -> dict[str, float | int]:
    """The model's own values that change anything; none where its file is missing or no JSON."""
    try:
        stored = json_file.read(folder / "generation_config.json")
    except (OSError, ValueError):
        return {}
    if not isinstance(stored, dict):
        return {}
    return {
        name: stored[name]
        for name, neutral in NEUTRAL.items()
        if isinstance(stored.get(name), int | float) and not isinstance(stored[name], bool) and stored[name] != neutral
    }


def in_force(chosen: Sampling, own: Values, use_own: bool) -> Sampling:
    """`chosen` with every open value that the model has: its own, or with `use_own` off the neutral one.

    So the request says all that is in force, and what is stored with an answer does too.
    """
    told = chosen.chosen()
    return replace(chosen, **{name: own[name] if use_own else NEUTRAL[name] for name in own if name not in told})


def open_values(own: Values) -> str:
    """The model's values but for the temperature, which is always chosen: "top_k 1 · top_p 0.01"."""
    return " · ".join(f"{name} {value:g}" for name, value in own.items() if name != "temperature")
