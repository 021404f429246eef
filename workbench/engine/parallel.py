"""One engine on several devices or machines: whether its model can be cut that way, and what each device then holds.

The limits are those of vLLM 0.32's sources.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from pathlib import Path

from workbench.catalog.devices import Device
from workbench.catalog.folder import inspect
from workbench.catalog.model import Model
from workbench.engine.facts import EngineFacts
from workbench.engine.formats import Refusal
from workbench.engine.profile import Profile
from workbench.errors import WorkbenchError
from workbench.slices import BY_INPUTS, BY_OUTPUTS, uneven, width
from workbench.words import Sentence

RAY_ADDRESS = "RAY_ADDRESS"


@dataclass(frozen=True, slots=True)
class Share:
    """Of the whole model, 0 to 1, what the device that holds most has of its weights, and of the KV of each token."""

    weights: float
    kv: float


def share(model: Model, profile: Profile) -> Share:
    """What one device of this profile holds. Data parallel devices hold a whole engine each."""
    ranks, stages = profile.tensor_parallel, profile.pipeline_parallel
    stage = 1 / stages
    if model.layers and stages > 1:
        stage = -(-model.layers // stages) / model.layers
    heads = model.kv_heads or ranks
    # Where there are fewer key/value heads than devices each holds a whole one; compressed ones (MLA) are not cut.
    kept = 1.0 if model.latent else max(1, heads // ranks) / heads
    return Share(stage / ranks, stage * kept)


def check(profile: Profile, facts: EngineFacts) -> None:
    """Raise a WorkbenchError where this engine cannot run this profile on several devices, however many there are."""
    model = None
    if profile.tensor_parallel > 1 or profile.pipeline_parallel > 1:
        model = _inspected(profile.model, _changed_s(profile.model))
    _tell(next(_refusals(profile, model, facts), None))


def check_devices(profile: Profile, facts: EngineFacts, gpus: int) -> None:
    """Raise a WorkbenchError where it sees too few `gpus` here; on a CPU where this machine has too few cores.

    There each part is a process that computes all the time, and nothing else would keep thousands from being started.
    """
    if not facts.cpu:
        counts = profile.tensor_parallel, profile.pipeline_parallel, profile.data_parallel
        _tell(too_few(*counts, profile.executor, max(1, gpus)))
    elif profile.devices > (cores := os.cpu_count() or 1):
        raise WorkbenchError(
            "This engine would be {needed} processes that each keep a core busy; this machine has {count}.",
            "Lower one of the numbers.", needed=profile.devices, count=cores,
        )  # fmt: skip


def too_few(tensor: int, pipeline: int, data: int, executor: str, gpus: int) -> Refusal | None:
    """Why so many devices are not among `gpus` of one machine; None where they are, or where Ray looks for them."""
    needed = tensor * pipeline * data
    if executor == "ray" or needed <= gpus:
        return None
    return Refusal(
        Sentence(
            "This engine needs {needed} GPUs (tensor {tensor} × pipeline {pipeline} × data {data}) and "
            "sees {count} here.",
            {"needed": needed, "tensor": tensor, "pipeline": pipeline, "data": data, "count": gpus},
        ),
        Sentence("Lower one of the numbers, or choose Ray and a cluster with enough GPUs."),
    )


def gpus(devices: Sequence[Device], chosen: str = "") -> int:
    """How many of these CUDA shows to an engine: all, or those of `chosen`, else of our own CUDA_VISIBLE_DEVICES."""
    count = sum(device.kind == "gpu" for device in devices)
    named = chosen or os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None or not count:
        return count
    # CUDA reads the list up to the first name that means nothing to it.
    return sum(1 for _ in takewhile(lambda name: _is_shown(name.strip(), count), named.split(",")))


def _is_shown(name: str, count: int) -> bool:
    return name.startswith(("GPU-", "MIG-")) or (name.isdigit() and int(name) < count)


def ray_environment(address: str) -> dict[str, str]:
    """Where Ray finds its cluster: the profile's address, or what the environment says already."""
    address = address or os.environ.get(RAY_ADDRESS, "")
    return {RAY_ADDRESS: address} if address else {}


def leaves_machine(env: dict[str, str]) -> bool:
    """Whether the engine's parts may lie on several machines, and then cannot talk on loopback."""
    return env.get(RAY_ADDRESS, "local") != "local"


def remark(executor: str, ray_address: str) -> Sentence | None:
    """What there is to know before the start of an engine whose parts lie on several machines."""
    if executor == "ray" and leaves_machine(ray_environment(ray_address)):
        return Sentence(
            "The parts of an engine on a Ray cluster talk over the network and ask for no key: use a network that you "
            "trust."
        )
    return None


def _refusals(profile: Profile, model: Model | None, facts: EngineFacts) -> Iterator[Refusal]:
    ranks, stages = profile.tensor_parallel, profile.pipeline_parallel
    if profile.executor == "ray" and facts.cpu:
        yield Refusal(Sentence("vLLM's Ray backend needs GPUs."), Sentence("Choose another executor."))
    if stages > 1 and facts.cpu:
        # Run on 0.32: it loads, then its core dies at the first request, for want of tensors that a warm-up makes.
        yield Refusal(
            Sentence("Pipeline parallel does not work in vLLM {version} on a CPU.", {"version": facts.version}),
            Sentence("Choose 1, or tensor parallel, which does."),
        )
    if profile.executor == "ray" and not facts.ray:
        command = f"{facts.python} -m pip install ray"
        yield Refusal(
            Sentence("Ray is not installed in {python}.", {"python": facts.python}),
            Sentence("Install it there: {command}", {"command": command}),
        )
    if profile.data_parallel > 1 and profile.speculation and profile.speculation.steps:
        yield Refusal(
            Sentence("With data parallel vLLM ignores draft tokens by load."),
            Sentence("Choose one number of draft tokens, or data parallel 1."),
        )
    if profile.tool_parser and facts.tool_parsers and profile.tool_parser not in facts.tool_parsers:
        yield Refusal(
            Sentence("vLLM {version} has no tool call parser called {name}.",
                     {"version": facts.version, "name": profile.tool_parser}),
            Sentence("Choose one of {values}.", {"values": ", ".join(sorted(facts.tool_parsers))}),
        )  # fmt: skip
    if model is None:
        return
    if model.layers and stages > model.layers:
        yield Refusal(
            Sentence("{layers} {layers:layer|layers} cannot be spread over {stages} pipeline stages.",
                     {"layers": model.layers, "stages": stages}),
            Sentence("Choose at most {layers} stages.", {"layers": model.layers}),
        )  # fmt: skip
    if ranks > 1 and (sentence := uneven(model, ranks) or _packed(model, ranks)):
        fewer = next(less for less in range(ranks - 1, 0, -1) if not (uneven(model, less) or _packed(model, less)))
        yield Refusal(sentence, Sentence("Choose tensor parallel {fewer}.", {"fewer": fewer}))


def _packed(model: Model, ranks: int) -> Sentence | None:
    """Why the stored low-bit weights cannot be cut `ranks` times: a group or a packed word would be cut apart."""
    if ranks == 1 or model.quantization is None:
        return None
    shapes = {tensor.name: tensor.shape for tensor in model.tensors if len(tensor.shape) == 2}
    for linear in model.linears:
        groups = shapes.get(f"{linear.name}.weight_scale", (0, 1))[1]
        groups = shapes.get(f"{linear.name}.scales", (groups, 0))[0]  # AWQ's and GPTQ's stand upright
        values = {"module": linear.name, "ranks": ranks, "width": width(linear, ranks)}
        if groups > 1 and width(linear, ranks) % (size := linear.in_features // groups):
            return Sentence(
                "Split over {ranks} GPUs, {module} has {width} inputs each, which its group size {size} does not "
                "divide.",
                values | {"size": size},
            )
        words = shapes.get(f"{linear.name}.weight_packed", (0, 0))[1] if linear.role in BY_INPUTS else 0
        zeros = shapes.get(f"{linear.name}.weight_zero_point", (0, 0))[0] if linear.role in BY_OUTPUTS else 0
        if words % ranks or zeros % ranks:
            return Sentence("Split over {ranks} GPUs, packed words of {module} would be cut apart.", values)
    return None


def _tell(refused: Refusal | None) -> None:
    if refused:
        values = refused.sentence.values | refused.hint.values
        raise WorkbenchError(refused.sentence.template, refused.hint.template, **values)


@lru_cache(maxsize=4)  # a command is built at every keystroke
def _inspected(folder: Path, _changed_s: float) -> Model | None:
    try:
        return inspect(folder)
    except WorkbenchError:
        return None  # what is wrong with the model is said elsewhere


def _changed_s(folder: Path) -> float:
    try:
        return (folder / "config.json").stat().st_mtime
    except OSError:
        return 0.0
