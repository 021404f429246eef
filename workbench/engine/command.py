"""A profile as the exact command that starts its engine. vLLM's flags appear here and nowhere else.

Only the keys of its speculative config are in speculation.py, and flags of earlier versions in old_flags.py.
"""

import hashlib
import json
import math
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.catalog import quantized
from workbench.catalog.quantized import OWN_FILES, Quantized
from workbench.engine import lora, parallel, speculation
from workbench.engine.facts import EngineFacts, source_root
from workbench.engine.profile import Profile
from workbench.engine.speculation import Speculation
from workbench.errors import WorkbenchError
from workbench.words import Sentence

HOST = "127.0.0.1"
KEY = "VLLM_API_KEY"
SENT_KEY = "OPENAI_API_KEY"  # the router's, for the engines behind it
LOOPBACK = ("localhost", "127.0.0.1", "::1")
CPU_KV = "VLLM_CPU_KVCACHE_SPACE"  # whole GiB
RPC_FOLDER = "VLLM_RPC_BASE_PATH"
# Nothing may listen beyond this machine, also not the parts of the engine among themselves.
OWN_MACHINE = {
    "VLLM_HOST_IP": HOST, "VLLM_LOOPBACK_IP": HOST, "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo",
}  # fmt: skip
CPU_KV_GIB = 1.0  # vLLM's own default on the CPU is a share of all memory, which a desktop does not have free
OURS = {"--model", "--served-model-name", "--host", "--port", "--uds", "--api-key", "--config", "--grpc", "--grpc-port"}

# The flag that a field of a profile needs; a field at its default needs none.
FLAGS = {
    "context": "--max-model-len",
    "memory_share": "--gpu-memory-utilization",
    "kv_gib": "--kv-cache-memory-bytes",
    "max_sequences": "--max-num-seqs",
    "block_size": "--block-size",
    "kv_dtype": "--kv-cache-dtype",
    "batched_tokens": "--max-num-batched-tokens",
    "long_prefill": "--long-prefill-token-threshold",
    "prefix_cache": "--enable-prefix-caching",
    "scheduling": "--scheduling-policy",
    "running": "--compilation-config",
    "attention": "--attention-backend",
    "adapters": "--lora-modules",
    "chat_template": "--chat-template",
    "speculation": "--speculative-config",
    "tensor_parallel": "--tensor-parallel-size",
    "pipeline_parallel": "--pipeline-parallel-size",
    "data_parallel": "--data-parallel-size",
    "executor": "--distributed-executor-backend",
    "tool_parser": "--tool-call-parser",
}
GRAPHS = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}  # vLLM's mode 0 compiles nothing


@dataclass(frozen=True, slots=True)
class Command:
    """The arguments, and what is set in the environment beside what is already there. The key is in `env` only."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


def build(profile: Profile, port: int, key: str, facts: EngineFacts) -> Command:
    """The command of one engine at `port`, of flags that this engine knows; a sentence where one is missing."""
    stored = quantized.of_folder(profile.model)
    parallel.check(profile, facts)
    argv = [
        facts.python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(profile.model),
        "--served-model-name", profile.served_name, proof_name(key), "--host", HOST, "--port", str(port),
        "--dtype", _dtype(profile, stored, facts),
    ]  # fmt: skip
    # On a CPU compiling makes it a fifth faster and the start 15 times longer.
    if profile.running == "eager" or (facts.cpu and profile.running == "auto"):
        argv.append("--enforce-eager")
    for flag, *values in _chosen(profile, stored, facts):
        if flag not in facts.flags and _positive(flag) not in facts.flags:
            raise WorkbenchError(
                "vLLM {version} does not know {flag}.", "Leave this choice out, or choose another engine interpreter.",
                version=facts.version, flag=flag,
            )  # fmt: skip
        argv += [flag, *values]
    if profile.speculation and "--per-request-spec-decode-metrics" in facts.flags:
        argv += ["--per-request-spec-decode-metrics", "detailed"]
    if "--disable-access-log-for-endpoints" in facts.flags:  # they are polled
        argv += ["--disable-access-log-for-endpoints", "/health,/metrics"]
    return Command((*argv, *_extra(profile, facts)), _environment(profile, key, facts))


def missing(facts: EngineFacts) -> dict[str, Sentence]:
    """The fields of a profile that this engine cannot take, each with the reason."""
    reasons = {
        name: Sentence("vLLM {version} does not know {flag}.", {"version": facts.version, "flag": flag})
        for name, flag in FLAGS.items()
        if flag not in facts.flags
    }
    if facts.cpu:
        reasons["memory_share"] = Sentence("This engine computes on the CPU.")
        reasons.pop("kv_gib", None)  # an environment variable does it there
    return reasons


def proof_name(key: str) -> str:
    """A second served name that only the engine of this key has; the key cannot be told from it."""
    return "lathe-" + hashlib.sha256(key.encode()).hexdigest()[:12]


def shown(command: Command) -> str:
    """The command as a line for a shell, to copy; the key stands as $LATHE_KEY."""
    settings = [
        f'{name}="$LATHE_KEY"' if name in (KEY, SENT_KEY) else f"{name}={shlex.quote(value)}"
        for name, value in command.env.items()
    ]
    return " ".join([*settings, shlex.join(command.argv)])


def environment(command: Command) -> dict[str, str]:
    """The whole environment of the child."""
    # The first would override the bytes we give, the second put the engine's sockets beside its temporary folder.
    outer = {name: value for name, value in os.environ.items() if name not in (CPU_KV, RPC_FOLDER)}
    return {**outer, **command.env}


def _dtype(profile: Profile, stored: Quantized | None, facts: EngineFacts) -> str:
    """On a CPU float32 by itself: the same results as elsewhere. Formats of 16-bit kernels are refused with it."""
    if profile.dtype != "auto" or not facts.cpu:
        return profile.dtype
    return "bfloat16" if stored and stored.half_only else "float32"


def _chosen(profile: Profile, stored: Quantized | None, facts: EngineFacts) -> Iterator[tuple[str, ...]]:
    """Each flag with its values, of everything that is not left to the engine."""
    if stored and stored.source in OWN_FILES and "--quantization" not in " ".join(profile.extra):
        yield "--quantization", stored.method  # vLLM looks for such a file only when told what it will find
    kv_gib = profile.kv_gib
    if kv_gib is None and facts.cpu:
        kv_gib = CPU_KV_GIB
    if kv_gib is not None and FLAGS["kv_gib"] in facts.flags:
        yield FLAGS["kv_gib"], str(int(kv_gib * 2**30))
    for name in (
        "context", "max_sequences", "block_size", "batched_tokens", "long_prefill", "memory_share", "attention",
    ):  # fmt: skip
        if (value := getattr(profile, name)) and not (name == "memory_share" and facts.cpu):
            yield FLAGS[name], str(value)
    if profile.kv_dtype != "auto":
        yield FLAGS["kv_dtype"], profile.kv_dtype
    if profile.prefix_cache is not None:
        yield (FLAGS["prefix_cache"] if profile.prefix_cache else FLAGS["prefix_cache"].replace("--", "--no-", 1),)
    if profile.scheduling != "fcfs":
        yield FLAGS["scheduling"], profile.scheduling
    if profile.running == "graphs":
        if facts.cpu:
            raise WorkbenchError("CUDA graphs need a GPU.", "Choose another way of running.")
        yield FLAGS["running"], json.dumps(GRAPHS)
    if profile.chat_template:
        yield FLAGS["chat_template"], str(profile.chat_template)
    if profile.adapters:
        yield from lora.arguments(profile.adapters, FLAGS["adapters"])
    for name in ("tensor_parallel", "pipeline_parallel", "data_parallel"):
        if (count := getattr(profile, name)) > 1:
            yield FLAGS[name], str(count)
    if profile.executor != "auto":
        yield FLAGS["executor"], profile.executor
    if profile.executor == "ray" and profile.data_parallel > 1:
        yield "--data-parallel-backend", "ray"
    if profile.tool_parser:
        yield ("--enable-auto-tool-choice",)
        yield FLAGS["tool_parser"], profile.tool_parser
    if profile.speculation:
        yield FLAGS["speculation"], json.dumps(_speculation(profile.speculation, facts), ensure_ascii=False)


def _speculation(chosen: Speculation, facts: EngineFacts) -> dict[str, Any]:
    """The drafting as this engine takes it; a sentence where it knows a key or the method not yet, or no more."""
    told = speculation.config(chosen)
    if facts.drafting:
        for word in (told["method"], *told):
            if word not in facts.drafting:
                raise WorkbenchError(
                    "vLLM {version} cannot draft with {word}.",
                    "Leave this choice out, or choose another engine interpreter.", version=facts.version, word=word,
                )  # fmt: skip
    return told


def _extra(profile: Profile, facts: EngineFacts) -> Iterator[str]:
    for part in profile.extra:
        if part.startswith("--"):
            flag = re.split(r"[=.]", part, maxsplit=1)[0].replace("_", "-")
            if flag in OURS:
                raise WorkbenchError(
                    "{flag} is set by Lathe itself.", "Remove it from the further arguments.", flag=flag
                )
            if flag not in facts.flags and _positive(flag) not in facts.flags:  # also refuses abbreviations
                raise WorkbenchError(
                    "vLLM {version} does not know {flag}.", "Remove it from the further arguments.",
                    version=facts.version, flag=flag,
                )  # fmt: skip
        yield part


def _positive(flag: str) -> str:
    """Of "--no-x" the "--x" that it switches off."""
    return "--" + flag.removeprefix("--").removeprefix("no-")


def _environment(profile: Profile, key: str, facts: EngineFacts) -> dict[str, str]:
    env = {
        KEY: key,
        "LATHE_ENGINE": "1",  # wakes our plugin
        "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
        "PYTHONUNBUFFERED": "1",
        **OWN_MACHINE,
        **no_proxy(),
    }  # fmt: skip
    if facts.cpu:
        env |= {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "KMP_BLOCKTIME": "1"}
        if "--kv-cache-memory-bytes" not in facts.flags:
            env[CPU_KV] = str(math.ceil(profile.kv_gib or CPU_KV_GIB))
        if facts.openmp:
            env |= _preloaded(facts.openmp)
        if re.search(r"\s", facts.python):
            env["TORCHDYNAMO_DISABLE"] = "1"  # torch's compiler cannot name its own headers below such a folder
    if profile.executor == "ray":
        env |= parallel.ray_environment(profile.ray_address)
        if parallel.leaves_machine(env):
            for name in OWN_MACHINE:
                del env[name]
    if profile.adapters:
        env["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"  # behind the key, like all of /v1
    if not facts.plugin:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(source_root()), os.environ.get("PYTHONPATH"))))
    return env


def _preloaded(library: str) -> dict[str, str]:
    """LD_PRELOAD ends a path at a space or colon, so such a library is named alone and found by its folder."""
    folder, name = os.path.split(library)
    if not re.search(r"[\s:;]", library):
        return {"LD_PRELOAD": ":".join(filter(None, (library, os.environ.get("LD_PRELOAD"))))}
    if re.search("[:;]", folder):
        return {}  # no variable can say this folder; the engine only computes more slowly
    return {
        "LD_PRELOAD": ":".join(filter(None, (name, os.environ.get("LD_PRELOAD")))),
        "LD_LIBRARY_PATH": ":".join(filter(None, (folder, os.environ.get("LD_LIBRARY_PATH")))),
    }


def no_proxy() -> dict[str, str]:
    """Loopback goes direct, the user's own exceptions stay. Libraries read either spelling."""
    listed = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    hosts = [host.strip() for host in listed.split(",") if host.strip()]
    joined = ",".join([*hosts, *(host for host in LOOPBACK if host not in hosts)])
    return {"NO_PROXY": joined, "no_proxy": joined}
