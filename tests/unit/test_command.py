"""The command of an engine: exact arguments, only known flags, the key out of sight."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from workbench.engine import command
from workbench.engine.facts import EngineFacts
from workbench.engine.profile import Profile, Speculation
from workbench.errors import WorkbenchError

FLAGS = frozenset({
    "--model", "--dtype", "--max-model-len", "--kv-cache-memory-bytes", "--speculative-config", "--block-size",
    "--seed", "--per-request-spec-decode-metrics", "--gpu-memory-utilization", "--max-num-seqs",
    "--enable-prefix-caching",
})  # fmt: skip
CPU = EngineFacts("/usr/bin/python3", "0.32.0", "2.13.0+cpu", True, FLAGS, True, None)
GPU = replace(CPU, cpu=False)
MODEL = Path("/模型 库/ünï 'quote' & co/m1")


def built(facts=CPU, **chosen):
    return command.build(Profile(MODEL, **chosen), 8123, "secret-key", facts)


def value(command, flag):
    return command.argv[command.argv.index(flag) + 1]


def test_the_path_is_one_element_and_the_address_loopback():
    argv = built().argv
    assert argv[:3] == ("/usr/bin/python3", "-m", "vllm.entrypoints.openai.api_server")
    assert argv[argv.index("--model") + 1] == str(MODEL)
    assert argv[argv.index("--host") : argv.index("--host") + 4] == ("--host", "127.0.0.1", "--port", "8123")


def test_two_names_are_served_and_the_second_is_the_keys():
    argv = built(name="my model").argv
    start = argv.index("--served-model-name")
    assert argv[start + 1 : start + 4] == ("my model", command.proof_name("secret-key"), "--host")
    assert command.proof_name("secret-key") != command.proof_name("another-key")


def test_the_key_is_in_the_environment_alone():
    result = built()
    assert result.env["VLLM_API_KEY"] == "secret-key"
    assert not any("secret-key" in part for part in result.argv)
    assert "secret-key" not in command.shown(result)


def test_what_is_shown_is_what_is_run():
    result = built(speculation=Speculation())
    words = shlex.split(command.shown(result).replace('"$LATHE_KEY"', "secret-key"))
    settings, argv = words[: len(result.env)], words[len(result.env) :]
    assert dict(each.split("=", 1) for each in settings) == result.env
    assert tuple(argv) == result.argv


def test_the_cpu_computes_in_float32_and_gets_a_cache_it_can_have():
    result = built()
    assert value(result, "--dtype") == "float32"
    assert "--enforce-eager" in result.argv
    assert value(result, "--kv-cache-memory-bytes") == str(2**30)
    assert value(built(kv_gib=0.5, dtype="bfloat16"), "--kv-cache-memory-bytes") == str(2**29)
    assert value(built(dtype="bfloat16"), "--dtype") == "bfloat16"


def test_the_gpu_is_left_to_decide_unless_told():
    assert value(built(GPU), "--dtype") == "auto"
    assert "--enforce-eager" not in built(GPU).argv
    assert "--kv-cache-memory-bytes" not in built(GPU).argv
    result = built(GPU, memory_share=0.5, context=4096, max_sequences=8, block_size=32)
    assert value(result, "--gpu-memory-utilization") == "0.5"
    assert value(result, "--max-model-len") == "4096"
    assert value(result, "--max-num-seqs") == "8"
    assert value(result, "--block-size") == "32"


def test_speculation_is_one_element_of_json():
    ngram = built(speculation=Speculation(tokens=3, lookup_min=2, lookup_max=5))
    assert json.loads(value(ngram, "--speculative-config")) == {
        "method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 2, "prompt_lookup_max": 5,
    }  # fmt: skip
    assert value(ngram, "--per-request-spec-decode-metrics") == "detailed"
    draft = built(speculation=Speculation("draft_model", draft=MODEL / "klein"))
    assert json.loads(value(draft, "--speculative-config"))["model"] == str(MODEL / "klein")
    assert "--per-request-spec-decode-metrics" not in built().argv


def test_an_older_engine_gets_only_what_it_knows():
    older = replace(CPU, flags=FLAGS - {"--per-request-spec-decode-metrics", "--kv-cache-memory-bytes"})
    result = built(older, speculation=Speculation(), kv_gib=1.5)
    assert "--per-request-spec-decode-metrics" not in result.argv
    assert "--kv-cache-memory-bytes" not in result.argv
    assert result.env["VLLM_CPU_KVCACHE_SPACE"] == "2"
    with pytest.raises(WorkbenchError, match="--speculative-config"):
        built(replace(CPU, flags=FLAGS - {"--speculative-config"}), speculation=Speculation())


def test_further_arguments_are_passed_on_but_not_ours_and_not_unknown_ones():
    assert built(extra=("--seed", "3", "--no-enable-prefix-caching")).argv[-3:] == (
        "--seed", "3", "--no-enable-prefix-caching",
    )  # fmt: skip
    for extra in ("--host=0.0.0.0", "--api_key", "--uds", "--served-model-name"):
        with pytest.raises(WorkbenchError, match="Lathe"):
            built(extra=(extra,))
    for extra in ("--hos", "--serv=x", "--nonsense"):  # argparse would complete the first two
        with pytest.raises(WorkbenchError):
            built(extra=(extra,))


def test_loopback_joins_the_proxy_exceptions(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "intra.example,localhost")
    assert built().env["NO_PROXY"] == built().env["no_proxy"] == "intra.example,localhost,127.0.0.1,::1"
    monkeypatch.delenv("NO_PROXY")
    assert built().env["NO_PROXY"] == "localhost,127.0.0.1,::1"


def test_everything_stays_on_this_machine_and_offline():
    env = built().env
    assert env["LATHE_ENGINE"] == "1"
    assert env["HF_HUB_OFFLINE"] == env["TRANSFORMERS_OFFLINE"] == env["VLLM_NO_USAGE_STATS"] == "1"
    assert env["VLLM_HOST_IP"] == env["VLLM_LOOPBACK_IP"] == "127.0.0.1"
    assert env["GLOO_SOCKET_IFNAME"] == "lo"


def test_intels_openmp_comes_first_and_only_on_the_cpu(monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "/lib/other.so")
    assert built(replace(CPU, openmp="/v/lib/libiomp5.so")).env["LD_PRELOAD"] == "/v/lib/libiomp5.so:/lib/other.so"
    assert "LD_PRELOAD" not in built(replace(GPU, openmp="/v/lib/libiomp5.so")).env


def test_a_whole_gib_setting_of_the_user_does_not_override_ours(monkeypatch):
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "40")
    assert "VLLM_CPU_KVCACHE_SPACE" not in command.environment(built())


def test_an_interpreter_without_our_plugin_finds_it_by_path():
    assert "PYTHONPATH" not in built().env
    assert (Path(built(replace(CPU, plugin=False)).env["PYTHONPATH"].split(":")[0]) / "workbench" / "guard.py").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"dtype": "int3"}, {"port": 70000}, {"memory_share": 1.5}, {"context": 0}, {"kv_gib": -1.0},
    ],
)  # fmt: skip
def test_a_profile_that_makes_no_sense_is_a_sentence(wrong):
    with pytest.raises(WorkbenchError):
        Profile(MODEL, **wrong)


@pytest.mark.parametrize(
    "wrong", [{"method": "oracle"}, {"tokens": 0}, {"method": "draft_model"}, {"lookup_min": 5, "lookup_max": 2}]
)
def test_speculation_that_makes_no_sense_is_a_sentence(wrong):
    with pytest.raises(WorkbenchError):
        Speculation(**wrong)


def test_openmp_below_a_folder_with_a_space_is_found_by_its_folder(monkeypatch):
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    env = built(replace(CPU, openmp="/my models/v/lib/libiomp5.so")).env
    assert env["LD_PRELOAD"] == "libiomp5.so"
    assert env["LD_LIBRARY_PATH"] == "/my models/v/lib:/opt/lib"
    assert "LD_PRELOAD" not in built(replace(CPU, openmp="/a:b/libiomp5.so")).env


def test_nothing_is_compiled_where_torch_cannot_compile():
    assert built(replace(CPU, python="/my models/v/bin/python")).env["TORCHDYNAMO_DISABLE"] == "1"
    assert "TORCHDYNAMO_DISABLE" not in built().env
