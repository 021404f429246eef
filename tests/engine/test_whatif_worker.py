"""Calibration statistics, what-if answers and sensitivity on tiny random models."""

import asyncio
import json
import time
from dataclasses import asdict, replace

import pytest
import torch
from family_models import write_family
from large_layer import MLP, write_layer
from quantization_models import TEXT, quantized, write_model
from torch.nn.functional import log_softmax
from transformers import AutoModelForCausalLM

from workbench import jobs, moments_kept, paths, recipe, whatif
from workbench.catalog import folder as catalog
from workbench.choice import KEEP, Choice
from workbench.errors import WorkbenchError
from workbench.events import Finished, Stage
from workbench.quant_events import ModuleDone, MomentsKept, SensitivityMeasured, WhatIf, WhatIfRefused
from workbench.quantization import calibration, resident, sensitivity, statistics, trial
from workbench.quantization.gathering import Kept
from workbench.quantization.weights import Weights
from workbench.settings import Settings

DOWN = "model.layers.1.mlp.down_proj"
UP = "model.layers.1.mlp.up_proj"
Q = "model.layers.0.self_attn.q_proj"


@pytest.fixture(scope="module", autouse=True)
def own_home(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LATHE_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "m")


@pytest.fixture(scope="module")
def chosen(tmp_path_factory):
    text = tmp_path_factory.mktemp("text") / "calibration text.txt"
    text.write_text("\n<|document|>\n".join(TEXT * (number + 2) for number in range(6)), encoding="utf-8")
    return replace(recipe.PRESETS["layered"], calibration_file=str(text), samples=8)


@pytest.fixture(scope="module")
def gathered(model, chosen):
    """The events of the first gathering and the folder of what it kept."""
    return list(statistics.run(whatif.spec(model, chosen), paths.home())), moments_kept.folder_of(model, chosen)


def sequences(model, chosen):
    tokenizer = calibration.tokenizer_of(model)
    texts = calibration.documents(paths.Path(chosen.calibration_file))
    return calibration.sequences(texts, tokenizer, chosen.length, chosen.samples * chosen.length, chosen.seed)


def bench(model, chosen, place) -> trial.Bench:
    return trial.Bench(catalog.inspect(model), chosen, Weights(model), Kept(place))


def test_the_moments_are_those_that_the_model_itself_makes(model, chosen, gathered):
    events, place = gathered
    whole = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    rows = {DOWN: [], UP: []}
    for name, seen in rows.items():
        whole.get_submodule(name).register_forward_pre_hook(
            lambda _, given, seen=seen: seen.append(given[0].flatten(0, -2))
        )
    with torch.no_grad():
        for batch in sequences(model, chosen).batches():
            whole(batch)
    for name, seen in rows.items():
        inputs = torch.cat(seen)
        H, estimated, readers = Kept(place).moments(name, 1)
        assert Kept(place).tokens(name, 1) == len(inputs) and not estimated
        assert set(readers) == ({DOWN} if name == DOWN else {UP, UP.replace("up", "gate")})
        torch.testing.assert_close(H, inputs.T @ inputs / len(inputs), rtol=1e-3, atol=1e-5)
    assert [event.block for event in events if isinstance(event, MomentsKept)] == [0, 1]


def test_layers_with_one_input_share_its_moments_on_disk(gathered):
    from safetensors import safe_open

    with safe_open(str(moments_kept.block_file(gathered[1], 0)), framework="pt") as file:
        assert len(list(file.keys())) == 4  # of seven layers


def test_the_weights_of_outputs_are_the_fisher_information(model, chosen, gathered):
    """Autograd through the whole model, every token drawn anew: an average over draws, so only near."""
    whole = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    pieces = sequences(model, chosen).pieces
    probe = torch.tensor(statistics._spread(pieces))
    outputs = {}
    whole.get_submodule(UP).register_forward_hook(lambda _, given, output: outputs.update(up=output))
    total, chance = 0.0, torch.Generator().manual_seed(5)
    for _ in range(20):
        likely = log_softmax(whole(probe).logits, -1)
        drawn = torch.multinomial(likely.detach().exp().flatten(0, 1), 1, generator=chance)
        loss = likely.flatten(0, 1).gather(1, drawn).sum()
        total += torch.autograd.grad(loss, outputs["up"])[0].square().flatten(0, 1).mean(0) / 20
    kept = Kept(gathered[1]).output_weights()
    assert kept.keys() == {linear.name for linear in catalog.inspect(model).linears}
    ratio = kept[UP].sum() / total.sum()
    assert 0.8 < ratio < 1.25
    assert torch.corrcoef(torch.stack([kept[UP], total]))[0, 1] > 0.9


def test_what_is_kept_is_not_gathered_again_and_a_killed_run_goes_on(model, chosen, gathered):
    _, place = gathered
    assert [type(event) for event in statistics.run(whatif.spec(model, chosen), paths.home())] == [Finished]
    before = Kept(place).moments(DOWN, 1)[0].clone()  # it lies in the mapped file that is now cut
    first = moments_kept.block_file(place, 0).stat().st_mtime_ns
    moments_kept.block_file(place, 1).write_bytes(b"cut")
    (place / moments_kept.OUTPUTS).unlink()
    again = list(statistics.run(whatif.spec(model, chosen), paths.home()))
    assert [event.block for event in again if isinstance(event, MomentsKept)] == [1]
    assert moments_kept.block_file(place, 0).stat().st_mtime_ns == first
    assert torch.equal(Kept(place).moments(DOWN, 1)[0], before)


def test_another_text_or_other_weights_have_another_place(model, chosen, tmp_path):
    place = moments_kept.folder_of(model, chosen)
    assert moments_kept.folder_of(model, replace(chosen, seed=1)) != place
    assert moments_kept.folder_of(model, replace(chosen, attention=KEEP)) == place
    other = write_model(tmp_path / "m", change=lambda whole: whole.lm_head.weight[0].mul_(2))
    assert moments_kept.folder_of(other, chosen) != place


def test_where_space_is_short_the_diagonal_is_kept_and_said(model, chosen, gathered):
    """Inputs of 64, 128 and 384; a block of the diagonal holds 128, so only the widest can be cut."""
    wide = write_model(model.parent / "wide", intermediate_size=384)
    spec = whatif.spec(wide, chosen) | {"limit": 1_200_000}
    events = list(statistics.run(spec, paths.home()))
    kept = Kept(moments_kept.folder_of(wide, chosen))
    H, estimated, _ = kept.moments(DOWN, 1)
    assert estimated and H.shape == (384, 384) and not H[:128, 128:].any() and H[130, 140] != 0
    assert not kept.moments(UP, 1)[1]
    assert all(
        DOWN.replace(".1.", f".{event.block}.") in event.estimated for event in events if isinstance(event, MomentsKept)
    )
    answer = next(bench(wide, chosen, kept.folder).answers(1, DOWN, Choice(method="rtn", group_size=32)))
    assert answer.estimated


@pytest.mark.parametrize("method", ["rtn", "awq", "gptq", "awq+gptq"])
def test_an_answer_is_what_the_run_then_reports(model, chosen, gathered, tmp_path, method):
    """q_proj of the first block: nothing before it is quantized, so the run sees the same inputs."""
    choice = Choice(method=method, bits=4, group_size=32, symmetric=False)
    made = replace(chosen, attention=choice, mlp=KEEP)
    events = quantized(model, tmp_path / "out", made)
    done = next(event for event in events if isinstance(event, ModuleDone) and event.name == Q)
    (answer,) = bench(model, chosen, gathered[1]).answers(7, Q, choice)
    assert answer.id == 7 and answer.final and answer.compensated and answer.rows == 128
    if method == "rtn":  # the run calibrates nothing then and has no output error to compare
        assert answer.after == done.after and answer.levels == done.levels
        assert answer.weight_error == pytest.approx(done.weight_error, rel=1e-4)
        assert answer.output_error == pytest.approx(answer.plain_output_error)
        return
    assert answer.output_error == pytest.approx(done.output_error, rel=0.05)
    assert answer.plain_output_error == pytest.approx(done.plain_output_error, rel=0.02)
    assert answer.output_error < answer.plain_output_error
    assert answer.bytes == 128 * 64 // 2 + 128 * 2 * 2 + 16 + 128 // 8 * 2 * 4


def test_a_large_layer_gets_a_quick_answer_that_says_so_and_then_the_whole(model, chosen, gathered, monkeypatch):
    monkeypatch.setattr(trial, "WHOLE_WORK", 1e3)
    monkeypatch.setattr(trial, "QUICK_WORK", 64 * 64**2)
    choice = Choice(method="gptq", group_size=32)
    quick, whole = bench(model, chosen, gathered[1]).answers(1, UP, choice)
    assert (quick.rows, quick.final, quick.compensated) == (64, False, False)
    assert (whole.rows, whole.final, whole.compensated) == (128, True, True)
    assert whole.output_error < quick.output_error  # compensation is what is still missing
    assert sum(quick.before) == 64 * 64 and sum(whole.before) == 128 * 64
    assert quick.plain_output_error == pytest.approx(whole.plain_output_error, rel=0.3)


def test_a_layer_of_4096_inputs_is_answered_at_once(tmp_path):
    """The goal is 1 s on two idle cores (tests/bench/whatif.py measures it); ten times that on any machine."""
    chosen = recipe.PRESETS["layered"]
    folder = write_layer(tmp_path / "m", 4096, chosen, ["down"])
    answering = bench(folder, chosen, moments_kept.folder_of(folder, chosen))
    answers = {}
    for method in ("rtn", "awq", "gptq", "awq+gptq"):
        begun_s = time.monotonic()
        answers[method] = answering.first(1, f"{MLP}.down_proj", Choice(method=method, group_size=128))
        assert time.monotonic() - begun_s < 10
    assert all(answer.rows < 4096 and not answer.final for answer in answers.values())
    assert answers["awq"].output_error < answers["rtn"].output_error == answers["rtn"].plain_output_error


def test_a_scale_is_searched_once_for_choices_that_share_it(model, chosen, gathered, monkeypatch):
    searched = []
    search = trial.awq.search_scale
    monkeypatch.setattr(trial.awq, "search_scale", lambda *given: searched.append(1) or search(*given))
    answering = bench(model, chosen, gathered[1])
    choice = Choice(method="awq", group_size=32)
    for asked in (choice, replace(choice, clip=False), replace(choice, method="awq+gptq", damping=0.1), choice):
        answering.first(1, UP, asked)
    assert len(searched) == 1
    answering.first(1, UP, replace(choice, bits=3))
    assert len(searched) == 2


def test_without_statistics_the_weights_alone_are_judged_and_keep_changes_nothing(model, chosen, tmp_path, gathered):
    (answer,) = bench(model, chosen, tmp_path).answers(1, UP, Choice(method="rtn", group_size=32))
    assert answer.output_error is None and answer.plain_output_error is None and answer.weight_error > 0
    (kept,) = bench(model, chosen, gathered[1]).answers(1, UP, KEEP)
    assert kept.output_error == 0 and kept.before == kept.after and kept.bytes == 128 * 64 * 2


def test_what_cannot_be_answered_is_a_sentence(model, chosen, gathered):
    with pytest.raises(WorkbenchError, match="Groups of 128 do not divide the 64 inputs"):
        next(bench(model, chosen, gathered[1]).answers(1, UP, Choice(group_size=128)))
    with pytest.raises(WorkbenchError, match="no linear layer called lm_head"):
        next(bench(model, chosen, gathered[1]).answers(1, "lm_head", Choice()))


def test_a_new_question_interrupts_a_whole_answer(model, chosen, gathered, tmp_path, monkeypatch):
    """The whole answer to the first would take a minute; the second comes while it is being made."""
    monkeypatch.setattr(trial, "WHOLE_WORK", 1e3)
    first = {"id": 1, "module": UP, "choice": asdict(Choice(bits=4, group_size=32))}
    second = {"id": 2, "module": DOWN, "choice": asdict(Choice(bits=4, group_size=32))}
    requests = tmp_path / whatif.REQUESTS
    requests.write_text(json.dumps(first) + "\n")
    whole, slow = trial.Bench.whole, [True]

    def slowly(self, number, name, choice):
        if slow.pop() if slow else False:
            with requests.open("a") as file:
                file.write("".join(json.dumps(line) + "\n" for line in (second, {"close": True})))
            for _ in range(6000):
                time.sleep(0.01)
        return whole(self, number, name, choice)

    monkeypatch.setattr(trial.Bench, "whole", slowly)
    begun_s = time.monotonic()
    events = [event for event in resident.run(whatif.spec(model, chosen), tmp_path) if isinstance(event, WhatIf)]
    assert time.monotonic() - begun_s < 30
    assert [(event.id, event.final) for event in events] == [(1, False), (2, False), (1, True), (2, True)]


def test_a_weight_that_is_no_number_is_named_and_nothing_is_kept(chosen, tmp_path):
    """H04: one NaN in up_proj of the first block."""

    def spoil(whole):
        whole.model.layers[0].mlp.up_proj.weight[3, 5] = torch.nan

    folder = write_model(tmp_path / "m", change=spoil)
    with pytest.raises(WorkbenchError, match=r"layers\.0\.mlp\.up_proj\.weight holds 1 value"):
        list(statistics.run(whatif.spec(folder, chosen), paths.home()))
    place = moments_kept.folder_of(folder, chosen)
    assert not list(place.glob("*.safetensors"))
    with pytest.raises(WorkbenchError, match="holds 1 value"):
        next(bench(folder, chosen, place).answers(1, "model.layers.0.mlp.up_proj", Choice(group_size=32)))


def test_the_queue_answers_the_newest_and_refuses_without_ending(model, chosen, gathered, tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "WHOLE_WORK", 1e3)
    lines = [
        {"id": 1, "module": UP, "choice": asdict(Choice(bits=3, group_size=32))},
        {"id": 2, "module": DOWN, "choice": asdict(Choice(bits=4, group_size=32))},
        {"id": 3, "module": UP, "choice": asdict(Choice(bits=8, group_size=32))},
        {"id": 4, "module": "nothing", "choice": asdict(Choice())},
        {"id": 5, "module": UP, "choice": asdict(Choice(bits=4)) | {"bits": 5}},
        {"id": 6, "module": UP, "choice": asdict(Choice(bits=2, group_size=32))},
        {"close": True},
    ]
    (tmp_path / whatif.REQUESTS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    *events, end = resident.run(whatif.spec(model, chosen), tmp_path)
    answers = [(event.id, event.final) for event in events if isinstance(event, WhatIf)]
    assert answers == [(6, False), (2, False), (6, True), (2, True)]  # all first answers come before refinements
    assert [event.id for event in events if isinstance(event, WhatIfRefused)] == [4]
    assert isinstance(end, Finished)


@pytest.mark.parametrize("family", ["gemma2", "mixtral", "deepseek_v3"])
def test_every_layer_of_other_families_is_measured_and_answered(chosen, tmp_path, family):
    """Norms on both sides, experts that share a scheme but not an input, and latent attention."""
    folder = write_family(tmp_path / "m", family)
    events = list(sensitivity.run(whatif.spec(folder, chosen), paths.home()))
    linears = catalog.inspect(folder).linears
    assert {event.name for event in events if isinstance(event, SensitivityMeasured)} == {each.name for each in linears}
    answering = bench(folder, chosen, moments_kept.folder_of(folder, chosen))
    for linear in linears[-8:]:
        (answer,) = answering.answers(1, linear.name, Choice(method="awq", group_size=32))
        assert 0 < answer.output_error <= answer.plain_output_error * 1.001


async def test_the_real_worker_answers_through_the_client_and_is_quickly_gone(model, chosen, gathered):
    answered = asyncio.Event()
    trials = whatif.Trials(model, chosen, Settings(), lambda event: isinstance(event, WhatIf) and answered.set())
    task = asyncio.create_task(trials.run())
    trials.ask(UP, Choice(method="rtn", group_size=32))
    await asyncio.wait_for(answered.wait(), 60)
    answered.clear()
    asked_s = time.monotonic()
    trials.ask(UP, Choice(method="awq", group_size=32))
    await asyncio.wait_for(answered.wait(), 10)
    assert time.monotonic() - asked_s < 2 and trials.answers[UP].method == "awq"
    asked_s = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - asked_s < 2
    assert jobs.listing() == []


def test_a_second_scan_measures_only_layers_whose_grid_is_another(model, chosen, gathered):
    first = list(sensitivity.run(whatif.spec(model, chosen), paths.home()))
    fine = recipe.with_rules(chosen, (DOWN,), Choice(group_size=32))
    second = list(sensitivity.run(whatif.spec(model, fine), paths.home()))
    assert [event for event in second if isinstance(event, Stage)] == [Stage("Measuring the sensitivity", 1)]
    told = {event.name: event for event in second if isinstance(event, SensitivityMeasured)}
    before = {event.name: event for event in first if isinstance(event, SensitivityMeasured)}
    assert told.keys() == before.keys() and told[DOWN].group_size == 32 != before[DOWN].group_size
    assert {name for name in told if told[name] != before[name]} == {DOWN}


@pytest.mark.parametrize("alike", [0.0, 0.9])
@pytest.mark.parametrize("loud", [0.0, 1.0])
def test_what_a_method_leaves_of_the_damage_is_foreseen(alike, loud):
    """Inputs of one loudness or of many, independent or moving together: against really rounding a layer."""
    torch.manual_seed(0)
    weight, inputs = torch.randn(256, 128), torch.randn(4096, 128)
    inputs += alike / (1 - alike) * torch.randn(4096, 4) @ torch.randn(4, 128)
    inputs *= torch.randn(128).mul(loud).exp()
    H = inputs.T @ inputs / len(inputs)
    d, rung = sensitivity.unexplained(H), sensitivity.sensitivities.Rung(4, 32, True)
    left = sensitivity.remaining(weight, rung, torch.bfloat16, torch.diagonal(H), d, torch.ones(256))

    def error(method: str) -> float:
        choice = Choice(method=method.removeprefix("awq+") if "gptq" in method else method, group_size=32, clip=False)
        scale = trial.awq.search_scale([weight], H, choice, torch.bfloat16) if "awq" in method else torch.ones(128)
        result = trial.rounded(weight * scale, H / scale / scale[:, None], choice, torch.bfloat16)
        return trial.output_error(weight - result.grid.values(result.integers) / scale, H)

    for method, share in left.items():
        share /= sensitivity.SEARCHED[method]
        assert share == pytest.approx(error(method) / error("rtn"), rel=0.35, abs=0.01), (method, left)
    assert left["awq+gptq"] <= left["gptq"] and left["awq"] <= sensitivity.SEARCHED["awq"]
    assert loud or alike or left["gptq"] > 0.9 * sensitivity.SEARCHED["gptq"]


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_the_predicted_damage_is_near_what_rounding_one_layer_does(chosen, tmp_path, family):
    """Against the model itself, on the calibration text: KL to second order, so only near for small errors."""
    folder = write_model(tmp_path / "m", family)
    events = list(sensitivity.run(whatif.spec(folder, chosen), paths.home()))
    found = {event.name: event for event in events if isinstance(event, SensitivityMeasured)}
    assert found.keys() == {linear.name for linear in catalog.inspect(folder).linears}
    whole = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    batch = torch.tensor(statistics._spread(sequences(folder, chosen).pieces))
    predicted, real = [], []
    with torch.no_grad():
        right = log_softmax(whole(batch).logits, -1)
        for name, event in found.items():
            weight = whole.get_submodule(name).weight
            original = weight.clone()
            choice = Choice(method="rtn", bits=4, group_size=event.group_size, symmetric=event.symmetric)
            grid = sensitivity.grid.fit(original, choice, torch.bfloat16)
            weight.copy_(grid.values(grid.integers(original)))
            ours = log_softmax(whole(batch).logits, -1)
            weight.copy_(original)
            real.append((right.exp() * (right - ours)).sum(-1).mean().item())
            predicted.append(event.damage[f"4/{event.group_size}"])
    ranks = torch.tensor([predicted, real]).argsort(1).argsort(1).double()
    assert torch.corrcoef(ranks)[0, 1] > 0.6, list(zip(found, predicted, real, strict=True))
    assert 0.3 < sum(predicted) / sum(real) < 3
    again = list(sensitivity.run(whatif.spec(folder, chosen), paths.home()))
    assert again == [event for event in events if isinstance(event, SensitivityMeasured | Finished)]
