"""Each row of the table against the engine's own words, and a healthy log against all of them."""

from pathlib import Path

import pytest

from workbench.engine.causes import ROWS, cause, cause_line, known

CORE = "(EngineCore pid=8602) ERROR 11-29 17:16:08 [core.py:1301] "
API = "(APIServer pid=8423) "
PYDANTIC = (
    " [type=value_error, input_value=ArgsKwargs((), {'model': ...nderer_num_workers': 1}), input_type=ArgsKwargs]"
)
HEALTHY = Path(__file__).parent / "data" / "healthy_engine.log"

# What vLLM 0.32 printed, or by its source prints, and what must be among the values. Wrapped as it was.
REFUSALS = [
    (
        CORE + "ValueError: To serve at least one request with the model's max seq len (131072), (2.81 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (0.65 GiB). Based on the available memory, the "
        "estimated maximum model length is 30208. Try increasing `gpu_memory_utilization`",
        {"context": 131072, "need": "2.81", "have": "0.65", "max_length": 30208},
    ),
    (
        "ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in "
        "KV cache (27120). Try increasing `gpu_memory_utilization` or decreasing `max_model_len`",
        {"context": 32768, "max_length": 27120},
    ),
    (
        CORE + "ValueError: To serve at least one request with the model's max seq len (8192), (2.81 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (0.01 GiB). Try increasing",
        {"context": 8192, "need": "2.81", "have": "0.01"},
    ),
    (
        API + "  Value error, User-specified max_model_len (999999) is greater than the derived max_model_len "
        "(max_position_embeddings=8192.0 or model_max_length=None in model's config.json). To allow overriding",
        {"context": 999999, "max_length": 8192},
    ),
    (CORE + "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`", {}),
    (
        CORE + "ValueError: Free memory on device cuda:0 (11.2/23.6 GiB) on startup is less than desired GPU memory "
        "utilization (0.92, 21.7 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
        {"free": "11.2", "total": "23.6", "wanted": "21.7"},
    ),
    (
        CORE + "ValueError: Available memory on node 0 (5.1/8.84 GiB) on startup is less than desired CPU memory "
        "utilization (0.92, 8.13 GiB). On the CPU backend, the `--gpu-memory-utilization` flag controls",
        {"free": "5.1", "total": "8.84", "wanted": "8.13"},
    ),
    (
        CORE + "ValueError: Available memory on node 0 (5.1/8.84 GiB) on kv cache allocation is less than requested "
        "memory for kv (40.0 GiB). Decrease --kv-cache-memory-bytes, VLLM_CPU_KVCACHE_SPACE, or reduce",
        {"free": "5.1", "total": "8.84", "wanted": "40.0"},
    ),
    (
        CORE
        + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU 0 has a total capacity of "
        "23.64 GiB of which 133.88 MiB is free.",
        {},
    ),
    (
        CORE
        + "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: "
        "you tried to allocate 42949672960 bytes. Error code 12 (Cannot allocate memory)",
        {},
    ),
    (
        "(EngineCore pid=9) ERROR 11-29 17:16:08 [multiproc_executor.py:316] Worker proc VllmWorker-0 died "
        "unexpectedly (exit code: -9), shutting down executor.",
        {},
    ),
    ("OSError: [Errno 28] No space left on device: '/psm_1f0c4b8c'", {}),
    (API + "OSError: [Errno 98] Address already in use", {}),
    (
        API
        + "RuntimeError: Failed to infer device type, please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG`",
        {},
    ),
    (API + "  Value error, Invalid repository ID or local directory specified: '/m/empty'.", {}),
    (
        CORE + "RuntimeError: Cannot find any model weights with `/m/empty`",
        {},
    ),
    (
        CORE
        + "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully "
        "covered",
        {"reason": "Error while deserializing header: incomplete metadata, file not fully covered"},
    ),
    (
        API
        + "  Value error, The repository /m/remote contains custom code which must be executed to correctly load the "
        "model. You can inspect the repository content at /m/remote .",
        {},
    ),
    (
        API + "  Value error, Model architectures ['FancyForCausalLM'] are not supported for now. Supported "
        "architectures: dict_keys(['AfmoeForCausalLM', 'ApertusForCausalLM'])" + PYDANTIC,
        {"architecture": "FancyForCausalLM"},
    ),
    (
        API + "  Value error, The checkpoint you are trying to load has model type `fancy` but Transformers does not "
        "recognize this architecture. This could be because of an issue with the checkpoint",
        {"architecture": "fancy"},
    ),
    (
        API
        + "  Value error, Unknown quantization method: bitsandbytes. Must be one of ['awq', 'auto_awq']."
        + PYDANTIC,
        {"method": "bitsandbytes"},
    ),
    (
        API + "  Value error, Quantization method specified in the model config (awq) does not match the quantization "
        "method specified in the `quantization` argument (gptq)." + PYDANTIC,
        {"method": "awq"},
    ),
    (
        API + "  Value error, torch.float32 is not supported for quantization method awq. Supported dtypes: "
        "[torch.float16, torch.bfloat16]" + PYDANTIC,
        {"dtype": "float32", "method": "awq"},
    ),
    (
        CORE + "ValueError: Found different quantization schemes for the shards of model.layers.0.self_attn.qkv_proj. "
        "vLLM requires all to use the same scheme.",
        {"module": "model.layers.0.self_attn.qkv_proj"},
    ),
    (CORE + "AttributeError: '_OpNamespace' '_C' object has no attribute 'cpu_gemm_wna16'", {}),
    (
        API
        + "  Value error, Target and draft model should have the same vocabulary size. Target model vocab_size=49152. "
        "Draft model vocab_size=1000. Using models with different tokenizers can cause out-of-bounds errors",
        {"target": 49152, "draft": 1000},
    ),
    (
        API + "  Value error, Unknown attention backend: 'FAST'. Valid options are: FLASH_ATTN, TRITON_ATTN",
        {"name": "FAST"},
    ),
    (
        CORE + "ValueError: Selected backend AttentionBackendEnum.FLASH_ATTN is not valid for this configuration. "
        "Reason: ['kv_cache_dtype not supported']",
        {"name": "FLASH_ATTN", "reason": "'kv_cache_dtype not supported'"},
    ),
    ("api_server.py: error: unrecognized arguments: --nonsense 3", {"arguments": "--nonsense 3"}),
]


@pytest.mark.parametrize(("line", "values"), REFUSALS)
def test_a_refusal_is_a_sentence_with_its_figures(line, values):
    found = known(["something before", line, CORE + "RuntimeError: Engine core initialization failed."])
    assert found is not None
    assert {name: found.sentence.values[name] for name in values} == values
    assert "{" not in str(found.sentence) + str(found.hint)


def test_every_row_has_its_refusal():
    met = {known([line]).sentence.template + known([line]).hint.template for line, _ in REFUSALS}
    assert met == {sentence.template + hint.template for _, sentence, hint in ROWS}


def test_a_refusal_that_the_log_wrapped_is_known():
    text, values = REFUSALS[0]
    words = text.removeprefix(CORE).split(" ")
    wrapped = [CORE + " ".join(words[start : start + 6]) for start in range(0, len(words), 6)]
    assert known(wrapped).sentence.values["max_length"] == values["max_length"]


def test_a_healthy_log_matches_nothing():
    lines = HEALTHY.read_text(encoding="utf-8").splitlines()
    assert len(lines) > 60 and any("leaked shared_memory" in line for line in lines)
    assert known(lines) is None
    assert known(["WARNING 11-29 17:16:08 [parallel.py:746] Address already in use. Retrying with a new port."]) is None


def test_without_a_row_the_line_that_states_the_error_counts():
    lines = [
        CORE + "Traceback (most recent call last):",
        CORE + "ValueError: The hidden size (576) is not a multiple of the number of attention heads (7).",
        API + "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        "  warnings.warn('resource_tracker: There appear to be %d '",
    ]
    assert (
        cause_line(lines) == "ValueError: The hidden size (576) is not a multiple of the number of attention heads (7)."
    )
    found = cause(lines, 1)
    assert found.sentence.values == {"code": 1, "line": cause_line(lines)}


def test_pydantic_says_it_shorter():
    assert cause_line([API + "  Value error, no." + PYDANTIC]) == "Value error, no."


def test_without_any_line_the_status_tells():
    assert "killed" in cause([], 137).sentence.template
    assert "itself" in cause([], 0).sentence.template
    assert cause([], 3).sentence.values == {"code": 3}
