"""Models, plans, capacities and jobs as plain values for programs and as tables for people."""

from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

from workbench import figures, plan_table, terminal
from workbench.catalog import fit
from workbench.catalog.capacity import Capacity, capacity, devices, kv_bytes_per_token
from workbench.catalog.folder import inspect
from workbench.catalog.model import Model
from workbench.catalog.problem import Problem
from workbench.conflict import Conflict
from workbench.events import Event, Failed, Finished, Note
from workbench.plan import Plan
from workbench.quant_events import ModuleDone, QualityMeasured
from workbench.recipe import to_dict
from workbench.words import say

GIB = 2**30
_TYPES = {4: "float32", 2: "bfloat16"}


def model(found: Model) -> dict[str, Any]:
    """Everything that a folder tells, sizes in bytes; tensors are counted, not listed."""
    quantization = found.quantization
    return {
        "folder": str(found.folder),
        "name": found.name,
        "format": found.format,
        "status": "incomplete" if found.missing else "whole",
        "architecture": found.architecture,
        "model_type": found.model_type,
        "layers": found.layers,
        "hidden": found.hidden,
        "intermediate": found.intermediate,
        "heads": found.heads,
        "kv_heads": found.kv_heads,
        "head_dim": found.head_dim,
        "vocab": found.vocab,
        "context": found.context,
        "dtype": found.dtype,
        "parameters": found.parameters,
        "weight_bytes": found.weight_bytes,
        "tensors": len(found.tensors),
        "linears": len(found.linears),
        "tied_embeddings": found.tied,
        "attention_bias": found.attention_bias,
        "chat_template": found.has_template,
        "eos_ids": list(found.eos_ids),
        "rope": {"type": found.rope, "factor": found.rope_factor} if found.rope else None,
        "kv_bytes_per_token": kv_bytes_per_token(found),
        "quantization": asdict(quantization)
        | {"description": str(quantization.sentence), "details": str(quantization.description)}
        if quantization
        else None,
        "missing": [asdict(gap) for gap in found.missing],
        "can_quantize": found.can_quantize,
        "can_serve": found.can_serve,
        "problems": [_problem(each) for each in found.problems],
    }


def plan(made: Plan) -> dict[str, Any]:
    """The plan with every linear's choice, and conflicts with all modules they are about."""
    return {
        "model": str(made.model.folder),
        "recipe": to_dict(made.recipe),
        "runs": not made.blocks,
        "predicted_bytes": made.predicted_bytes,
        "average_bits": made.average_bits,
        "linears": [
            {
                "name": each.linear.name,
                "shape": [each.linear.out_features, each.linear.in_features],
                "bytes": each.bytes,
            }
            | ({"method": "keep"} if each.choice.kept else asdict(each.choice))
            for each in made.linears
        ],
        "kept": list(made.kept),
        "rules": [
            {"pattern": each.rule.pattern, "matches": list(each.modules), "decides": each.holds}
            for each in made.matches
        ],
        "conflicts": [_conflict(each) for each in made.conflicts],
        "warnings": [_conflict(each) for each in made.warnings],
    }


def capacities(folder: Path, context: int | None, kv_gib: float | None) -> list[dict[str, Any]]:
    """One row for each device, computing type and precision; `kv_gib` fixes the cache, else it takes what is left."""
    found = inspect(folder)
    budget = None if kv_gib is None else int(kv_gib * GIB)
    rows = []
    for device in devices():
        # On a CPU vLLM is run in float32 unless told otherwise, or unless the format of the weights rules it out.
        halved = found.quantization is not None and found.quantization.half_only
        for width in (4, 2) if device.kind == "cpu" and not halved else (2,):
            for precision in fit.precisions(found):
                made = capacity(found, device, precision, context, kv_budget=budget, value_bytes=width)
                rows.append({"device": device.name, "kind": device.kind} | capacity_of(made))
    return rows


def job(folder: Path, events: list[Event]) -> dict[str, Any]:
    """What a finished job made and said."""
    finished = next((event for event in events if isinstance(event, Finished)), None)
    failed = next((event for event in events if isinstance(event, Failed)), None)
    return {
        "job": str(folder),
        "path": finished.path if finished else None,
        "bytes": finished.size if finished else None,
        "failure": say(failed.message, **failed.values) if failed else None,
        "notes": [say(event.message, **event.values) for event in events if isinstance(event, Note)],
        "modules": [
            {name: value for name, value in asdict(event).items() if name not in ("before", "after", "levels")}
            for event in events
            if isinstance(event, ModuleDone)
        ],
        "quality": [asdict(event) for event in events if isinstance(event, QualityMeasured)],
    }


def print_model(found: Model) -> None:
    heads = f"{figures.tokens(found.heads)} / {figures.tokens(found.kv_heads)} × {figures.tokens(found.head_dim)}"
    terminal.table(
        ("", found.name),
        [
            (say("Architecture"), found.architecture or None),
            (say("Parameters"), figures.count(found.parameters)),
            (say("Size on disk"), figures.bytes_of(found.weight_bytes)),
            (say("Number type"), found.quantization.description if found.quantization else found.dtype or None),
            (say("Layers"), figures.tokens(found.layers)),
            (say("Hidden / intermediate"), f"{figures.tokens(found.hidden)} / {figures.tokens(found.intermediate)}"),
            (say("Heads / KV heads × size"), heads),
            (say("Vocabulary"), figures.tokens(found.vocab)),
            (say("Context"), figures.tokens(found.context)),
            (say("Position scaling"), f"{found.rope} {found.rope_factor or ''}".strip() if found.rope else say("none")),
            (say("Tied embeddings"), _yes(found.tied)),
            (say("Attention bias"), _yes(found.attention_bias)),
            (say("Chat template"), _yes(found.has_template)),
            (say("End tokens"), ", ".join(map(str, found.eos_ids)) or None),
            (say("KV cache per token, 16 bit"), figures.bytes_of(kv_bytes_per_token(found))),
            (say("Linear layers"), figures.tokens(len(found.linears))),
        ],
    )
    for problem in found.problems:
        _print_told(problem.sentence, problem.hint, bool(problem.blocks))


def print_plan(made: Plan, every: bool = False) -> None:
    """The choices of one block after another, equal blocks together or each layer; then what stands against the plan.

    The ways out are numbered as `Plan.fixes` counts them.
    """
    if made.model.can_quantize:
        (plan_table.print_layers if every else plan_table.print_blocks)(made)
        plan_table.print_sum(made)
        plan_table.print_rules(made)
    numbers = count(1)
    for each in (*made.conflicts, *made.warnings):
        _print_told(each.sentence, each.hint, each in made.conflicts)
        for fix in each.fixes:
            terminal.out.print(f"    {next(numbers)} · {fix.label}", markup=False)


def print_capacities(rows: list[dict[str, Any]]) -> None:
    terminal.table(
        (
            say("Device"), say("Precision"), say("Type"), say("Weights"), say("Overhead"), say("KV per token"),
            say("Tokens that fit"), say("At most (tok/s)"),
        ),
        [
            (
                row["device"], row["precision"], row["computed_in"], figures.bytes_of(row["weights"]),
                figures.bytes_of(row["overhead"]), figures.bytes_of(row["kv_bytes_per_token"]),
                figures.tokens(row["kv_tokens"]), figures.number(row["roofline_tok_s"]),
            )
            for row in rows
        ],
    )  # fmt: skip
    if any(row["roofline_measured"] for row in rows):
        terminal.out.print(say("The most tok/s is by the highest memory bandwidth that was measured here."))
    for told in dict.fromkeys(f"{row['precision']}, {row['computed_in']}: {row['sentence']}" for row in rows):
        terminal.out.print(told, markup=False)
    for remark in dict.fromkeys(row["remark"] for row in rows if row["remark"]):
        terminal.out.print(remark, markup=False)


def capacity_of(made: Capacity) -> dict[str, Any]:
    """The figures of one estimate, sizes in bytes."""
    plain = {"computed_in": _TYPES[made.value_bytes]} | {
        name: value for name, value in asdict(made).items() if name != "sentence"
    }
    told = {"sentence": str(made.sentence), "remark": str(made.remark) if made.remark else None}
    return plain | {"needed": made.needed, "longest": made.longest} | told


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "code": problem.code,
        "sentence": str(problem.sentence),
        "hint": str(problem.hint) if problem.hint else None,
        "blocks": list(problem.blocks),
    }


def _conflict(conflict: Conflict) -> dict[str, Any]:
    return {
        "code": conflict.code,
        "sentence": str(conflict.sentence),
        "hint": str(conflict.hint) if conflict.hint else None,
        "modules": list(conflict.modules),
        "fixes": [{"label": str(fix.label), "recipe": to_dict(fix.recipe)} for fix in conflict.fixes],
    }


def _print_told(sentence: object, hint: object, blocks: bool) -> None:
    terminal.out.print("✕" if blocks else "!", *(str(part) for part in (sentence, hint) if part), markup=False)


def _yes(value: bool) -> str:
    return say("yes") if value else say("no")
