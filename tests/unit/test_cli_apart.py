"""`lathe serve` with prefill and decode apart: what its options mean."""

import asyncio
import json
import re
from pathlib import Path

import fake_engine
import pytest
from typer.testing import CliRunner

from workbench import cli, cli_apart, cli_ledger, cli_serve
from workbench.cli_apart import Asked, changed, separation_of
from workbench.engine import profiles_kept
from workbench.engine.profile import Profile
from workbench.engine_events import EngineReady, EngineSample
from workbench.errors import WorkbenchError
from workbench.events import LegEvent
from workbench.measure import mixed_load
from workbench.measure.mixed_load import Comparison, Measured, Mix

PROFILE = Profile(Path("/models/m"), port=8100)


def made(shape="1x1", **asked):
    return separation_of(Asked(shape, **asked), PROFILE, 8100)


def test_a_shape_names_the_engines():
    assert list(made("2x1").legs()) == ["prefill 1", "prefill 2", "decode"] and made().port == 8100
    for wrong in ("1", "0x1", "x", "1x1x1"):
        with pytest.raises(WorkbenchError, match="no number of engines"):
            made(wrong)


def test_gpus_and_widths_are_for_each_kind():
    legs = made("1x2", devices=(["0"], ["1,2", "3,4"]), widths=(None, 2)).legs()
    assert [leg.devices for leg in legs.values()] == [(0,), (1, 2), (3, 4)]
    assert [leg.profile.tensor_parallel for leg in legs.values()] == [1, 2, 2]
    with pytest.raises(WorkbenchError, match="lists of GPUs"):
        made("1x3", devices=([], ["1", "2"]))


def test_a_form_of_one_command_is_refused_before_anything_starts(lathe):
    refused = lathe("--separate", "1x1", "--export", "systemd")
    assert refused.exit_code == 1 and isinstance(refused.exception, WorkbenchError | SystemExit), refused.output
    assert lathe("--separate", "1x1", "--export", "command").stdout.startswith("# prefill engine")


def test_gpus_for_all_of_a_kind_are_shared_out_where_they_do():
    for gpus, parts in (("0,1,2,3", [(0, 1), (2, 3)]), ("4,5", [(4, 5), (4, 5)])):
        legs = made("2x1", devices=([gpus], []), widths=(2, None)).prefill
        assert [leg.devices for leg in legs] == parts


def test_running_engines_need_no_model():
    there = separation_of(Asked(urls=(["http://a:1"], ["http://b:1"]), key="k"), None, 0)
    assert (there.key, there.decode[0].url) == ("k", "http://b:1")
    with pytest.raises(WorkbenchError, match="run already"):
        separation_of(Asked("1x1", urls=(["http://a:1"], ["http://b:1"])), None, 0)


@pytest.fixture
def lathe(tmp_path, monkeypatch):
    """`lathe serve` of a model folder, with a stand-in for the engine's interpreter."""
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))
    for part in (cli_serve, cli_apart):
        monkeypatch.setattr(part, "servable", lambda model: model)
    python = fake_engine.install(tmp_path)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "settings.json").write_text(json.dumps({"engine_python": str(python)}))
    model = tmp_path / "m1"
    model.mkdir()
    (model / "config.json").write_text("{}")
    return lambda *arguments: CliRunner().invoke(cli.app, ["serve", str(model), *arguments])


def test_show_prints_every_command_and_no_key(lathe):
    shown = lathe("--separate", "1x1", "--show", "--port", "9000", "--context", "256")
    lines = shown.stdout.splitlines()
    assert lines[::2] == ["# prefill engine", "# decode engine", "# router"], shown.output
    assert all("--max-model-len 256" in line and "NixlConnector" in line for line in lines[1:4:2])
    roles = [re.search('"kv_role": "(\\w+)"', line)[1] for line in lines[1:4:2]]
    assert roles == ["kv_producer", "kv_consumer"], "vLLM's own word for an engine that is either goes"
    assert "vllm_router.launch_router" in lines[5] and "--port 9000" in lines[5] and "$LATHE_KEY" in lines[5]


def test_what_is_kept_starts_by_its_name_with_what_is_given_in_place(lathe, tmp_path):
    """Shape, GPUs and port too; another shape takes the profile alone."""
    kept = lathe("--separate", "2x1", "--prefill-devices", "0,1", "--context", "256", "--port", "9000",
                 "--keep", "apart")  # fmt: skip
    assert kept.exit_code == 0, kept.output
    run = CliRunner()
    shown = run.invoke(cli.app, ["serve", "--profile", "apart", "--show"]).stdout
    names = [line[2:] for line in shown.splitlines() if line.startswith("# ")]
    assert names == ["prefill engine 1", "prefill engine 2", "decode engine", "router"], shown
    for part, times in (("CUDA_VISIBLE_DEVICES=0", 1), ("CUDA_VISIBLE_DEVICES=1", 1), ("--max-model-len 256", 3),
                        ("--port 9000", 1), (f"--model {tmp_path / 'm1'}", 3)):  # fmt: skip
        assert shown.count(part) == times, part
    given = ["--context", "128", "--port", "9100", "--decode-devices", "3"]
    other = run.invoke(cli.app, ["serve", "--profile", "apart", "--show", *given]).stdout
    for part, times in (("--max-model-len 128", 3), ("--port 9100", 1), ("CUDA_VISIBLE_DEVICES", 3),
                        ("CUDA_VISIBLE_DEVICES=3", 1)):  # fmt: skip
        assert other.count(part) == times, part
    fewer = run.invoke(cli.app, ["serve", "--profile", "apart", "--separate", "1x1", "--show"]).stdout
    assert fewer.count("# ") == 3 and "--port 9000" in fewer and "CUDA_VISIBLE_DEVICES" not in fewer
    assert "2P1D" in run.invoke(cli.app, ["profiles"]).stdout


def test_kept_engines_of_others_take_a_key_and_nothing_else(lathe):
    there = ["serve", "--prefill-url", "http://a:1", "--decode-url", "http://b:1", "--key", "secret"]
    assert CliRunner().invoke(cli.app, [*there, "--keep", "far"]).exit_code == 0
    kept = profiles_kept.load("far")
    assert (kept.key, changed(kept, Asked(key="k"), None, {}).key) == ("", "k")
    for asked, model, given in ((Asked(), Path("/m"), {}), (Asked(), None, {"context": 4}),
                                (Asked(devices=(["0"], [])), None, {})):  # fmt: skip
        with pytest.raises(WorkbenchError, match="run already"):
            changed(kept, asked, model, given)


def test_the_comparison_is_a_table_and_json(lathe, monkeypatch):
    async def measured(separation, mix, settings, on_event):
        return Comparison(mix, Measured([0.2], [0.1], [1.0], 10, 5.0), Measured([0.4], [0.05], [0.5], 10, 10.0))

    monkeypatch.setattr(mixed_load, "compare_separated", measured)
    shown = lathe("--separate", "1x1", "--measure")
    assert "0.50×" in shown.stdout and "does not raise the throughput" in shown.stdout, shown.output
    told = json.loads(lathe("--separate", "1x1", "--measure", "--json").stdout)
    assert told["first_median_s"] == {"one": 0.2, "apart": 0.4, "speedup": 0.5}
    assert told["between_p95_s"]["speedup"] == 2.0 and told["failed"]["one"] == 0
    assert Mix().prompts > 1


async def test_engines_apart_end_when_all_were_idle_and_not_while_they_start():
    unloading, ended = cli_ledger.Unloading(1), []

    async def serving():
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    running = asyncio.ensure_future(unloading.run("m1", serving()))
    for at_s, busy in ((0, 0.0), (500, 0.0), (None, 0.0), (510, 1.0), (569, 0.0)):
        if at_s is None:
            unloading.take(EngineReady("http://127.0.0.1:1", "k", "m1", 1, 1.0))
            continue
        unloading.take(LegEvent("prefill", EngineSample(at_s, 0.0, 0.0)))
        unloading.take(LegEvent("decode", EngineSample(at_s, busy, 0.0)))
        await asyncio.sleep(0)
        assert not running.done()
    unloading.take(LegEvent("decode", EngineSample(571, 0.0, 0.0)))
    told = await asyncio.wait_for(running, 5)
    assert told.values == {"name": "m1", "minutes": "1"} and ended
