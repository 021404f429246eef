"""What is checked of a written result, and what becomes of one that does not pass (H14, H17)."""

import json
import shutil

import pytest
import torch
from quantization_models import TEXT, quantized, write_model
from safetensors.torch import load_file, save_file

from workbench import quant_report, recipe
from workbench.catalog import folder as catalog
from workbench.errors import WorkbenchError
from workbench.events import Finished, Note
from workbench.quant_events import Checked, ModuleStarted, QualityMeasured
from workbench.quant_run import QuantRun
from workbench.quantization import answers, calibration, gate, pipeline, side_files
from workbench.quantization.blocks import Skeleton
from workbench.quantization.checkpoint import Checkpoint

TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)
GENERATION = {"do_sample": False, "temperature": 0.9, "top_p": 0.6, "eos_token_id": [2, 5]}
V = "model.layers.1.self_attn.v_proj"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = write_model(tmp_path_factory.mktemp("gate") / "model")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "generation_config.json").write_text(json.dumps(GENERATION))
    return folder


def events_until_failure(source, output, chosen="rtn", **spec):
    """The events of a run that has to fail, and its error."""
    text = output.parent / "text.txt"
    text.write_text(TEXT * 60)
    stored = recipe.to_dict(recipe.PRESETS[chosen]) | {"calibration_file": str(text)}
    spec = {"model": str(source), "output": str(output), "recipe": stored, "held_tokens": 0} | spec
    events = []
    with pytest.raises(WorkbenchError) as caught:
        for event in pipeline.run(spec, output.parent):
            events.append(event)
    return events, caught.value


def checks(events):
    return {event.name: event.passed for event in events if isinstance(event, Checked)}


def test_every_check_is_told_and_passes(source, tmp_path):
    events = quantized(source, tmp_path / "out", held_tokens=600)
    assert list(checks(events).values()) == [True] * 6
    assert isinstance(events[-1], Finished) and catalog.inspect(tmp_path / "out").can_serve
    run = QuantRun()
    for event in events:
        run.apply(event)
    assert len(run.checks) == 6 and run.failed_check is None


def test_a_plain_weight_in_place_of_a_packed_one_fails_and_is_named(source, tmp_path, monkeypatch):
    """H14's tamper test, in the job itself."""
    finish = Checkpoint.finish

    def tampered(self):
        finish(self)
        file = self.folder / "model.safetensors"
        tensors = load_file(file)
        for part in ("weight_packed", "weight_scale", "weight_shape", "weight_zero_point"):
            tensors.pop(f"{V}.{part}", None)
        tensors[f"{V}.weight"] = torch.zeros(64, 64, dtype=torch.bfloat16)
        save_file(tensors, file, metadata={"format": "pt"})

    monkeypatch.setattr(Checkpoint, "finish", tampered)
    events, error = events_until_failure(source, tmp_path / "out")
    assert V in str(error) and checks(events) == {"The folder holds what the plan says": False}
    assert not (tmp_path / "out").exists() and not [p for p in tmp_path.iterdir() if "out" in p.name]


def test_a_result_far_from_the_original_is_marked_and_not_offered(source, tmp_path, monkeypatch):
    monkeypatch.setattr(gate, "KL_BOUND", 1e-6)
    quantized(source, tmp_path / "out", "rtn")
    before = (tmp_path / "out/model.safetensors").read_bytes()
    events, error = events_until_failure(source, tmp_path / "out", held_tokens=600, replace=True)
    assert "It stays near the original" in str(error) and [e for e in events if isinstance(e, QualityMeasured)]
    assert (tmp_path / "out/model.safetensors").read_bytes() == before  # the earlier good result stays
    failed = catalog.inspect(tmp_path / "out.failed")
    assert not failed.can_serve and not failed.can_quantize and failed.blocking("chat")
    assert "It stays near the original" in str(failed.problems[0].sentence)
    assert not [path.name for path in tmp_path.iterdir() if "partial" in path.name]
    run = QuantRun()
    for event in events:
        run.apply(event)
    assert run.failed_check is not None and run.failed_check.name == "It stays near the original"


def test_a_file_of_another_size_than_predicted_is_marked(source, tmp_path, monkeypatch):
    monkeypatch.setattr(Checkpoint, "size", property(lambda self: 1234))
    events, error = events_until_failure(source, tmp_path / "out")
    assert checks(events)["The size is as predicted"] is False and "1234" in str(error)
    assert not (tmp_path / "out").exists() and (tmp_path / "out.failed/lathe-failed.json").is_file()


@pytest.mark.parametrize(
    ("name", "spoiled", "check"),
    [
        ("chat_template.jinja", lambda text: text.replace("[assistant]", "[bot]"), "template"),
        ("tokenizer.json", lambda text: text.replace('"a": ', '"\\u0000a": ', 1), "tokenizer"),
    ],
)
def test_a_side_file_that_arrives_changed_is_found(source, tmp_path, monkeypatch, name, spoiled, check):
    copy = side_files.copy

    def spoiling(origin, target):
        copy(origin, target)
        (target / name).write_text(spoiled((target / name).read_text()))

    monkeypatch.setattr(side_files, "copy", spoiling)
    events, _ = events_until_failure(source, tmp_path / "out")
    assert [name for name, passed in checks(events).items() if not passed and check in name]


def test_side_files_arrive_and_oddities_are_told_first(source, tmp_path):
    """H17."""
    events = quantized(source, tmp_path / "out")
    first = next(at for at, event in enumerate(events) if isinstance(event, ModuleStarted))
    told = [event for event in events[:first] if isinstance(event, Note) and "generation_config" in event.message]
    assert len(told) == 1 and told[0].values == {"reason": "temperature, top_p"}
    assert json.loads((tmp_path / "out/generation_config.json").read_text()) == GENERATION
    theirs, ours = calibration.tokenizer_of(source), calibration.tokenizer_of(tmp_path / "out")
    assert side_files.rendered(theirs) == side_files.rendered(ours) and "fruit" in side_files.rendered(ours)
    assert len(side_files.STRINGS) == 20 and not side_files.differing(theirs, ours)


def test_repeated_answers_are_told_from_others():
    assert answers.repetition([[1, 2, 3, 4, 5, 6]]) == 0
    assert answers.repetition([[7] * 12, [1, 2] * 6]) > 0.8
    assert answers.repetition([[], [1]]) == 0


def test_answers_that_go_round_in_circles_fail_unless_the_original_does_so_too(source, tmp_path, monkeypatch):
    quantized(source, tmp_path / "out", "rtn")
    result = Checkpoint(source, tmp_path / "out", None)
    result.folder = tmp_path / "out"
    plan = type("P", (), {"model": catalog.inspect(source)})
    original = Skeleton(source, torch.device("cpu"))
    for ours, theirs, passes in (([[7] * 30], [[*range(30)]], False), ([[7] * 30], [[8] * 30], True)):
        monkeypatch.setattr(answers, "greedy", lambda skeleton, *_, a=ours, b=theirs: b if skeleton is original else a)
        told = [event for event in gate.sentences(original, result, plan) if isinstance(event, Checked)]
        assert [event.passed for event in told] == [passes]


def test_greedy_answers_are_those_of_transformers(source):
    from transformers import AutoModelForCausalLM

    tokenizer = calibration.tokenizer_of(source)
    ours = answers.greedy(Skeleton(source, torch.device("cpu")), tokenizer, ())
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    for prompt, answer in zip(answers.PROMPTS, ours, strict=True):
        ids = torch.tensor([answers._ids(tokenizer, prompt)])
        right = model.generate(
            ids,
            max_new_tokens=answers.TOKENS,
            do_sample=False,
            temperature=None,
            top_p=None,
            eos_token_id=[],
            pad_token_id=0,
        )
        assert right[0, ids.shape[1] :].tolist() == answer


def test_what_is_too_large_for_the_memory_is_not_tried(source, tmp_path, monkeypatch):
    monkeypatch.setattr(answers, "SHARE_OF_MEMORY", 1e-9)
    events = quantized(source, tmp_path / "out", "rtn", held_tokens=600)
    assert [event for event in events if isinstance(event, Note) and "too large" in event.message]
    assert isinstance(events[-1], Finished)


def test_the_mark_of_a_failure_is_read_even_if_damaged(source, tmp_path):
    shutil.copytree(source, tmp_path / "copy")
    assert not catalog.inspect(tmp_path / "copy").blocking("chat")
    (tmp_path / "copy/lathe-failed.json").write_text("{")
    assert catalog.inspect(tmp_path / "copy").blocking("chat")


def test_a_report_that_cannot_be_written_costs_no_result(source, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(quant_report, "write", full)
    events = quantized(source, tmp_path / "out", "rtn")
    assert isinstance(events[-1], Finished) and "No space" in events[-2].values["reason"]
    _, error = events_until_failure(source, tmp_path / "out")
    assert "earlier result" in str(error)
