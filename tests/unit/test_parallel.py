"""An engine on several devices: its flags, what cannot be cut is a sentence, what each holds."""

import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from workbench.catalog.devices import Device
from workbench.catalog.folder import inspect
from workbench.engine import command, exports, parallel, probe
from workbench.engine.facts import EngineFacts
from workbench.engine.old_flags import translate
from workbench.engine.profile import Profile
from workbench.engine.speculation import Speculation
from workbench.errors import WorkbenchError

FLAGS = frozenset({*command.FLAGS.values(), "--data-parallel-backend", "--enable-auto-tool-choice"})
GPU = EngineFacts("/usr/bin/python3", "0.32.0", None, False, FLAGS, True, None, ray=True)
CPU = replace(GPU, cpu=True)


@pytest.fixture(autouse=True)
def no_ray_address(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def refusal(profile, facts=GPU):
    with pytest.raises(WorkbenchError) as caught:
        parallel.check(profile, facts)
    assert caught.value.hint
    return str(caught.value), caught.value.hint


def test_one_device_needs_no_flag(tiny):
    argv = command.build(Profile(tiny), 8000, "", GPU).argv
    assert not any("parallel" in part or "executor" in part or "tool" in part for part in argv)


@pytest.mark.parametrize(
    ("shown", "count"),
    [(None, 4), ("1,3", 2), ("2, 0", 2), ("0,9,1", 1), ("GPU-5c1a,GPU-77b0,1", 3), ("-1", 0), ("", 0)],
)
def test_only_gpus_that_the_environment_shows_count(monkeypatch, shown, count):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if shown is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    four = [Device("GPU", "gpu", 24 << 30, 24 << 30)] * 4
    assert parallel.gpus(four) == count and parallel.gpus(four, "3") == 1, "a leg's own stand before ours"
    assert parallel.gpus([Device("CPU", "cpu", 1, 1)]) == 0


def test_the_flags_and_where_the_parts_may_talk(tiny):
    profile = Profile(tiny, tensor_parallel=2, pipeline_parallel=2, data_parallel=3, executor="mp")
    built = command.build(profile, 8000, "", GPU)
    told = dict(zip(built.argv, built.argv[1:], strict=False))
    assert told["--tensor-parallel-size"] == "2" and told["--pipeline-parallel-size"] == "2"
    assert told["--data-parallel-size"] == "3" and told["--distributed-executor-backend"] == "mp"
    assert built.env["VLLM_HOST_IP"] == "127.0.0.1" and built.env["GLOO_SOCKET_IFNAME"] == "lo"
    assert profile.devices == 12


def test_only_a_cluster_of_ray_may_leave_this_machine(tiny, monkeypatch):
    local = command.build(Profile(tiny, executor="ray"), 8000, "", GPU)
    assert "RAY_ADDRESS" not in local.env and local.env["VLLM_HOST_IP"] == "127.0.0.1"
    assert parallel.remark("ray", "") is None and "network" in str(parallel.remark("ray", "head:6379"))
    far = Profile(tiny, executor="ray", ray_address="head:6379", data_parallel=2)
    built = command.build(far, 8000, "", GPU)
    assert built.env["RAY_ADDRESS"] == "head:6379"
    assert "VLLM_HOST_IP" not in built.env and "NCCL_SOCKET_IFNAME" not in built.env
    assert built.argv[built.argv.index("--data-parallel-backend") + 1] == "ray"
    assert built.argv[built.argv.index("--host") + 1] == "127.0.0.1"  # its address for requests stays here
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    found = command.build(Profile(tiny, executor="ray"), 8000, "", GPU)
    assert parallel.remark("ray", "") and not parallel.remark("mp", "")
    assert found.env["RAY_ADDRESS"] == "auto" and "VLLM_HOST_IP" not in found.env
    assert "RAY_ADDRESS=auto" in command.shown(found)


def test_the_exports_have_the_same_arguments(tiny):
    profile = Profile(tiny, tensor_parallel=2, executor="ray", ray_address="head:6379")
    built = command.build(profile, 8000, "", GPU)
    unit = exports.unit(profile, built, GPU)
    line = next(line for line in unit.splitlines() if line.startswith("ExecStart="))
    assert tuple(shlex.split(line.removeprefix("ExecStart="))) == built.argv
    assert 'Environment="RAY_ADDRESS=head:6379"' in unit
    (service,) = yaml.safe_load(exports.compose(profile, built, GPU))["services"].values()
    assert service["environment"]["RAY_ADDRESS"] == "head:6379" and "--tensor-parallel-size" in service["command"]


def test_a_pasted_command_fills_the_fields():
    text = (
        "vllm serve /m -tp 4 --pipeline-parallel-size 2 -dp=2 --distributed-executor-backend ray "
        "--enable-auto-tool-choice --tool-call-parser hermes"
    )
    found = translate(text, GPU)
    assert found.profile == Profile(
        Path("/m"), tensor_parallel=4, pipeline_parallel=2, data_parallel=2, executor="ray", tool_parser="hermes"
    )
    assert not found.notes


def test_heads_and_layers_decide_how_often_a_model_can_be_cut(tiny):
    """4 heads over 2 key/value heads, 2 layers."""
    parallel.check(Profile(tiny, tensor_parallel=2, pipeline_parallel=2), GPU)
    parallel.check(Profile(tiny, tensor_parallel=4), GPU)  # each key/value head twice
    said, hint = refusal(Profile(tiny, tensor_parallel=3))
    assert "4 attention heads" in said and "tensor parallel 2" in hint
    said, hint = refusal(Profile(tiny, pipeline_parallel=3))
    assert "2 layers" in said and "3 pipeline stages" in said and "2" in hint


def test_packed_groups_decide_as_well(tiny, tmp_path):
    """o_proj of 128 inputs in groups of 64 can be cut twice, not four times."""
    model = inspect(tiny)
    scales = tuple(
        replace(model.tensors[0], name=f"{each.name}.weight_scale", shape=(each.out_features, each.in_features // 64))
        for each in model.linears
    )
    packed = replace(model, tensors=(*model.tensors, *scales), quantization=object())
    assert parallel._packed(packed, 2) is None
    told = str(parallel._packed(packed, 4))
    assert "o_proj has 32 inputs" in told and "group size 64" in told
    words = replace(model.tensors[0], name=f"{model.linears[0].name}.weight_zero_point", shape=(6, 1))
    assert "cut apart" in str(parallel._packed(replace(packed, tensors=(words,)), 4))


def test_a_cpu_has_no_pipeline(tiny):
    said, hint = refusal(Profile(tiny, pipeline_parallel=2), CPU)
    assert "on a CPU" in said and "tensor parallel" in hint
    parallel.check(Profile(tiny, tensor_parallel=2), CPU)


def test_what_ray_needs(tiny):
    said, hint = refusal(Profile(tiny, executor="ray"), replace(GPU, ray=False))
    assert "not installed" in said and "pip install ray" in hint
    said, _ = refusal(Profile(tiny, executor="ray"), CPU)
    assert "GPUs" in said
    with pytest.raises(WorkbenchError, match="Ray executor"):
        Profile(tiny, ray_address="head:6379")
    for wrong in ("head", "http://head:1", "head:6379/x", "a b:1"):
        with pytest.raises(WorkbenchError, match="no Ray address"):
            Profile(tiny, executor="ray", ray_address=wrong)
    for right in ("auto", "local", "10.0.0.1:6379", "ray://head:10001"):
        Profile(tiny, executor="ray", ray_address=right)


def test_devices_must_be_there(tiny, monkeypatch):
    profile = Profile(tiny, tensor_parallel=2, data_parallel=2)
    with pytest.raises(WorkbenchError, match=r"needs 4 GPUs .*sees 2"):
        parallel.check_devices(profile, GPU, 2)
    parallel.check_devices(profile, GPU, 4)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    parallel.check_devices(profile, CPU, 0)
    with pytest.raises(WorkbenchError, match=r"8 processes .*has 4"):
        parallel.check_devices(replace(profile, data_parallel=2 * profile.data_parallel), CPU, 0)
    parallel.check_devices(replace(profile, executor="ray"), GPU, 1)


def test_a_parser_of_tool_calls_must_be_known(tiny):
    facts = replace(GPU, tool_parsers=frozenset({"hermes", "mistral"}))
    argv = command.build(Profile(tiny, tool_parser="hermes"), 8000, "", facts).argv
    at = argv.index("--enable-auto-tool-choice")
    assert argv[at + 1 : at + 3] == ("--tool-call-parser", "hermes")
    said, hint = refusal(Profile(tiny, tool_parser="hermez"), facts)
    assert "hermez" in said and "hermes, mistral" in hint


def test_draft_tokens_by_load_do_not_go_with_data_parallel(tiny):
    said, _ = refusal(Profile(tiny, data_parallel=2, speculation=Speculation(steps=((4, 4), (16, 1)))))
    assert "data parallel" in said


@pytest.mark.parametrize("name", ["tensor_parallel", "pipeline_parallel", "data_parallel"])
def test_a_count_below_one_is_refused(name):
    with pytest.raises(WorkbenchError, match="cannot be 0"):
        Profile(Path("/m"), **{name: 0})


def test_what_one_device_holds(tiny):
    model = inspect(tiny)
    assert parallel.share(model, Profile(tiny)) == parallel.Share(1, 1)
    assert parallel.share(model, Profile(tiny, tensor_parallel=2)) == parallel.Share(0.5, 0.5)
    assert parallel.share(model, Profile(tiny, tensor_parallel=4)) == parallel.Share(0.25, 0.5)
    assert parallel.share(replace(model, layers=3), Profile(tiny, pipeline_parallel=2)) == parallel.Share(2 / 3, 2 / 3)
    assert parallel.share(replace(model, latent=576), Profile(tiny, tensor_parallel=2)) == parallel.Share(0.5, 1)


def test_the_probe_knows_ray_and_the_parsers(tmp_path):
    """Of the interpreter that runs the tests, which holds vLLM."""
    told = subprocess.run([sys.executable, "-P", probe.__file__], capture_output=True, text=True, check=True)
    found = json.loads(told.stdout.splitlines()[-1])
    assert "hermes" in found["tool_parsers"] and found["ray"] in (True, False)


def test_the_command_line_has_all_of_it(tiny, tmp_path):
    env = {**os.environ, "LATHE_HOME": str(tmp_path), "LATHE_LANGUAGE": "en"}

    def lathe(*options):
        command = [sys.executable, "-m", "workbench.cli", "serve", str(tiny), "--show", *options]
        return subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)

    shown = lathe(
        "--tensor-parallel", "2", "--data-parallel", "2", "--executor", "mp", "--tool-parser", "hermes",
    ).stdout  # fmt: skip
    for part in (
        "--tensor-parallel-size 2", "--data-parallel-size 2",
        "--distributed-executor-backend mp", "--enable-auto-tool-choice --tool-call-parser hermes",
    ):  # fmt: skip
        assert part in shown, part
    refused = lathe("--tensor-parallel", "3")
    assert refused.returncode == 1 and "4 attention heads" in refused.stderr
    assert "Ray executor" in lathe("--ray-address", "head:6379").stderr
