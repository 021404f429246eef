"""A profile's choices in a real engine: what it then says of itself, and LoRA adapters that come and go."""

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import in_vllm
import psutil
import pytest
import torch
from safetensors.torch import save_file
from tiny_models import TEXT, write_plain

from workbench import guard
from workbench.catalog import devices
from workbench.catalog.folder import inspect
from workbench.engine import adapters, command, memory_kept, overlay
from workbench.engine.client import models
from workbench.engine.endpoint import Endpoint
from workbench.engine.facts import EngineFacts
from workbench.engine.fit import fit
from workbench.engine.profile import Adapter, Profile
from workbench.engine.speculation import Speculation
from workbench.engine_events import EngineMemory
from workbench.errors import WorkbenchError
from workbench.settings import Settings


def write_adapter(folder: Path, seed: int = 0, rank: int = 8) -> Path:
    """A LoRA of the query and value projections, as PEFT writes it, strong enough to change what is said."""
    folder.mkdir(parents=True)
    torch.manual_seed(seed)
    tensors = {}
    for layer in range(2):
        for name, out in (("q_proj", 128), ("v_proj", 64)):
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            tensors[f"{prefix}.lora_A.weight"] = torch.randn(rank, 128)
            tensors[f"{prefix}.lora_B.weight"] = torch.randn(out, rank)
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"], "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config | {"task_type": "CAUSAL_LM"}))
    return folder


@pytest.fixture(scope="module")
def running(served, tmp_path_factory):
    folder = tmp_path_factory.mktemp("profile")
    template = folder / "own template.jinja"
    template.write_text("{% for message in messages %}<<{{ message['content'] }}>>{% endfor %}")
    profile = Profile(
        write_plain(folder / "m", tokenizer=True), context=256, kv_gib=0.25, max_sequences=4, block_size=32,
        batched_tokens=512, prefix_cache=False, scheduling="priority", running="eager", chat_template=template,
        adapters=(Adapter("style", write_adapter(folder / "first, of = two")),),
    )  # fmt: skip
    engine = served(profile, compiled=False)
    assert engine.ready, engine.tail()
    return engine


@pytest.fixture
def endpoint(running):
    return Endpoint(running.ready.url, running.ready.key, running.ready.model)


def ask(endpoint, path="/v1/completions", **fields):
    body = {"model": endpoint.model, "max_tokens": 8, "temperature": 0, **fields}
    headers = {"Authorization": f"Bearer {endpoint.key}"}
    reply = httpx.post(endpoint.root + path, json=body, headers=headers, timeout=60, trust_env=False)
    return reply.raise_for_status().json()


def test_the_engine_has_what_was_chosen(running, endpoint):
    metrics = httpx.get(endpoint.root + "/metrics", trust_env=False).text
    (config,) = [line for line in metrics.splitlines() if line.startswith("vllm:cache_config_info{")]
    assert 'block_size="32"' in config and 'enable_prefix_caching="False"' in config
    log = running.log.read_text()
    assert "'max_num_batched_tokens': 512" in log and "'max_num_seqs': 4" in log
    ask(endpoint, prompt=TEXT, priority=3)  # answered with 400 unless scheduling goes by priority


def test_the_cache_is_as_large_as_was_said_and_the_next_estimate_is_what_was_measured(running):
    memory = [event for event in running.events if isinstance(event, EngineMemory)][-1]
    (device,) = devices.devices()
    model, profile = inspect(running.profile.model), running.profile
    first = fit(model, profile, device)
    assert f"CPU KV cache size: {first.kv_tokens:,} tokens" in running.log.read_text()
    assert (memory.kv_tokens, memory.context, memory.kv_bytes) == (first.kv_tokens, 256, first.kv_budget)
    assert f"{memory.concurrency:.2f}" == f"{first.concurrency:.2f}"
    assert next(str(each) for each in overlay.sentences(first, memory)).startswith(
        f"By vLLM the KV cache holds {first.kv_tokens:,} tokens, as estimated"
    )
    second = fit(model, profile, device, memory_kept.recall(profile, Settings().interpreter, device))
    assert second.learned and second.overhead == memory.overhead
    # Three processes with torch hold more than a gigabyte, and no tiny model makes it more than our estimate.
    assert 10**9 < memory.overhead < 1.1 * first.overhead and memory.others > 0
    held = sum(psutil.Process(pid).memory_full_info().pss for pid in tree_of(running.ready.pid))
    assert second.weights + second.overhead + second.kv_budget == pytest.approx(held, rel=0.02)


def tree_of(pid: int) -> list[int]:
    """The server with all below it, and the guard above."""
    return [psutil.Process(pid).ppid(), pid, *guard.descendants(pid)]


def test_the_chat_template_is_the_chosen_one(endpoint):
    reply = ask(endpoint, "/v1/chat/completions", messages=[{"role": "user", "content": "abc"}])
    rendered = httpx.post(endpoint.root + "/tokenize", json={"prompt": "<<abc>>"}, trust_env=False).json()
    assert reply["usage"]["prompt_tokens"] == rendered["count"]


def test_an_adapter_is_a_model_that_comes_and_goes(endpoint, tmp_path):
    def names():
        return [name for name in asyncio.run(models(endpoint)) if not name.startswith("lathe-")]

    assert names() == ["m", "style"]
    plain, styled = ask(endpoint, prompt=TEXT), ask(replace(endpoint, model="style"), prompt=TEXT)
    assert plain["choices"][0]["text"] != styled["choices"][0]["text"]
    asyncio.run(adapters.unload(endpoint, "style"))
    assert names() == ["m"]
    with pytest.raises(WorkbenchError, match="style"):
        asyncio.run(adapters.unload(endpoint, "style"))

    other = Adapter("other", write_adapter(tmp_path / "other", seed=1, rank=4))
    asyncio.run(adapters.load(endpoint, other))
    assert names() == ["m", "other"]
    assert ask(replace(endpoint, model="other"), prompt=TEXT)["choices"][0]["text"] != plain["choices"][0]["text"]
    too_high = Adapter("high", write_adapter(tmp_path / "high", rank=16))
    with pytest.raises(WorkbenchError, match="rank"):
        asyncio.run(adapters.load(endpoint, too_high))
    with pytest.raises(WorkbenchError, match="no LoRA adapter"):
        asyncio.run(adapters.load(endpoint, Adapter("none", tmp_path)))


def test_vllms_own_parser_takes_every_flag(tmp_path):
    """Also those that need a GPU to do anything."""
    profile = Profile(
        Path("/models/m"), context=4096, memory_share=0.5, kv_gib=2.5, max_sequences=8, block_size=32, kv_dtype="fp8",
        batched_tokens=2048, prefix_cache=True, scheduling="priority", running="graphs", attention="FLASH_ATTN",
        adapters=(Adapter("a", write_adapter(tmp_path / "a", rank=12)),), chat_template=tmp_path / "t.jinja",
        speculation=Speculation(),
    )  # fmt: skip
    flags = frozenset({*command.FLAGS.values(), "--enable-lora", "--max-loras", "--max-lora-rank"})
    facts = EngineFacts(sys.executable, "0.32.0", None, False, flags, True, None)
    argv = command.build(profile, 8000, "", facts).argv[3:]
    told = in_vllm.run("parse_in_vllm.py", tmp_path / "told.json", json.dumps(argv))[0]["parsed"]
    wanted = {
        "kv_cache_dtype": "fp8", "max_num_batched_tokens": "2048", "scheduling_policy": "priority", "max_loras": "1",
        "enable_prefix_caching": "True", "max_lora_rank": "16", "enable_lora": "True", "block_size": "32",
    }  # fmt: skip
    assert {name: told[name] for name in wanted} == wanted
    assert "FLASH_ATTN" in told["attention_backend"] and "FULL_DECODE_ONLY" in told["compilation_config"]
    assert str(tmp_path / "a") in told["lora_modules"]
