"""The job that predicts what rounding each linear layer alone costs, from the kept calibration statistics.

The damage of a rounding ΔW is ½ Σ_r f_r · (ΔW H ΔWᵀ)_rr in nats per token: KL divergence to second order, with the
Fisher information of the layer's outputs taken as diagonal (f_r) and independent of its inputs (H).
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from workbench import moments_kept, sensitivities
from workbench import plan as plans
from workbench import recipe as recipes
from workbench.catalog import folder as catalog
from workbench.catalog.linears import Linear
from workbench.choice import Choice
from workbench.events import Advanced, Event, Finished, Note, Stage
from workbench.quant_events import SensitivityMeasured
from workbench.quantization import grid, statistics
from workbench.quantization.blocks import device_of
from workbench.quantization.gathering import Kept
from workbench.quantization.weights import Weights

WIDEST = 4096  # inputs that may explain each other; a factor of more takes long
# What searching the range leaves, as measured on SmolLM2's layers: without GPTQ it also picks errors that cancel.
SEARCHED = {"awq": 0.7, "gptq": 0.9, "awq+gptq": 0.9}
WORK = 6e9  # multiplications for one figure; wider layers are judged by some of their rows


def run(spec: Mapping[str, Any], folder: Path) -> Iterator[Event]:
    """spec: model (folder), recipe (plain values: calibration, group sizes, symmetry); optionally threads, device,
    limit. Gathers the statistics first where they are missing. Layers that are known are told from their file.
    """
    torch.set_num_threads(int(spec.get("threads") or os.cpu_count() or 1))
    source, recipe = Path(spec["model"]), recipes.from_dict(spec["recipe"])
    place = moments_kept.folder_of(source, recipe)
    model = catalog.inspect(source)
    known = sensitivities.kept(model, recipe)
    yield from known.found.values()
    if known.missing:
        yield from statistics.gather(source, recipe, place, device_of(spec), spec.get("limit"))
        entries = {entry.linear.name: (entry.linear, entry.choice) for entry in plans.make(model, recipe).linears}
        found, unreached = [], set(known.missing)
        for event in _scan(Weights(source), Kept(place), [entries[name] for name in known.missing]):
            if isinstance(event, SensitivityMeasured):
                found.append(event)
                unreached.discard(event.name)
            yield event
        sensitivities.keep(place, found, unreached)
    file = moments_kept.scan_file(place)
    yield Finished(str(file), file.stat().st_size if file.is_file() else 0)


@torch.no_grad()
def _scan(weights: Weights, kept: Kept, planned: list[tuple[Linear, Choice]]) -> Iterator[Event]:
    yield Stage("Measuring the sensitivity", len(planned))
    outputs, missing, readers, d = kept.output_weights(), [], (), torch.empty(0)
    for done, (linear, choice) in enumerate(planned, 1):
        moments = kept.moments(linear.name, linear.block)
        if moments is None or linear.name not in outputs:
            missing.append(linear.name)
        else:
            stored = weights.read(f"{linear.name}.weight")
            if moments[2] != readers:  # layers that read the same input follow each other
                readers, d = moments[2], unexplained(moments[0])
            yield measure(linear, choice, stored, moments[0], d, outputs[linear.name])
        yield Advanced(done)
    if missing:
        yield Note(
            "{count} {count:layer|layers} saw no calibration text and {count:has|have} no sensitivity: {names}.",
            {"count": len(missing), "names": ", ".join(missing[:8])}, "warning",
        )  # fmt: skip


def measure(
    linear: Linear, choice: Choice, stored: Tensor, H: Tensor, d: Tensor, outputs: Tensor
) -> SensitivityMeasured:
    """stored: the weight [out, in] in its own dtype; H: [in, in]; d: [in], what is `unexplained` of its inputs;
    outputs: [out], how much each output matters."""
    rows = sampled(stored.shape, WORK)
    weight, outputs = stored[rows].to(torch.float32), outputs[rows]
    times = len(stored) / len(weight)
    signal = _row_errors(weight, H).sum().item()
    rungs = sensitivities.ladder(linear, choice)
    damage, errors = {}, {}
    for rung in rungs:
        fitted = grid.fit(weight, rung, stored.dtype)
        found = _row_errors(weight - fitted.values(fitted.integers(weight)), H)
        damage[rung.name] = 0.5 * times * (found @ outputs).item()
        errors[rung.name] = found.sum().item() / signal if signal > 0 else 0.0
    left = remaining(weight, rungs[2], stored.dtype, torch.diagonal(H), d, outputs)  # at 4 bits; hardly other elsewhere
    return SensitivityMeasured(linear.name, linear.block, rungs[0].group_size, choice.symmetric, damage, errors, left)


def unexplained(H: Tensor) -> Tensor:
    """Of each input's mean square, what is no combination of the quieter inputs, which GPTQ rounds after it: [in].

    It is 1 / diag(U)² for the upper factor U of H⁻¹ in that order. H: [in, in]; of very many inputs, those next to
    each other in loudness are taken together.
    """
    h = torch.diagonal(H)
    order, damping = torch.argsort(h), 0.01 * h.mean()
    d = torch.empty_like(h)
    for some in order.split(WIDEST):
        own = H[some][:, some]
        lower, failed = torch.linalg.cholesky_ex(own + torch.diag(damping.expand(len(own))))
        d[some] = h[some] if failed else (torch.diagonal(lower).square() - damping).clamp(min=0)
    return d


def remaining(
    weight: Tensor, rung: sensitivities.Rung, stored: torch.dtype, h: Tensor, d: Tensor, outputs: Tensor
) -> dict[str, float]:
    """The share of plain rounding's damage that each method is expected to leave, from the size of its steps alone.

    An error of one step at input j costs h_j, or d_j where GPTQ makes up for it; AWQ's scale s makes that h_j / s_j²
    and the steps of a group larger.
    weight: [out, in]; h, d: [in], diag(H) and `unexplained`; outputs: [out].
    """
    loud = h.clamp(min=1e-6 * h.mean().item())
    cost: dict[str, list[float]] = {"rtn": [], "gptq": []}
    for step in range(4):
        s = loud ** (0.125 * step)
        steps = grid.fit(weight * s, rung, stored).scale.square()  # [out, groups]
        for method, each in (("rtn", h), ("gptq", d)):
            groups = (each / s.square()).unflatten(0, (steps.shape[1], -1)).sum(1)
            cost[method].append((outputs @ (steps @ groups)).item())
    plain = cost["rtn"][0]
    left = {"awq": min(cost["rtn"]), "gptq": cost["gptq"][0], "awq+gptq": min(cost["gptq"])}
    return {method: SEARCHED[method] * each / plain for method, each in left.items()} if plain > 0 else {}


def sampled(shape: tuple[int, int], work: float) -> Tensor | slice:
    """Rows, evenly spread, that keep the product with [in, in] within `work` multiplications; all where they do."""
    count = max(64, int(work / shape[1] ** 2))
    return slice(None) if count >= shape[0] else torch.linspace(0, shape[0] - 1, count).round().long()


def _row_errors(wrong: Tensor, H: Tensor) -> Tensor:
    return (wrong @ H * wrong).sum(1).clamp(min=0)
