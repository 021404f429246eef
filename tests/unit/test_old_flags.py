"""Commands of 2024, as posts and scripts hold them, become profiles of today with a note on each change."""

from pathlib import Path

import pytest

from workbench.engine.facts import EngineFacts
from workbench.engine.old_flags import translate
from workbench.engine.profile import Adapter, Profile
from workbench.engine.speculation import Speculation
from workbench.errors import WorkbenchError

FLAGS = frozenset({
    "--model", "--dtype", "--max-model-len", "--scheduling-policy", "--tensor-parallel-size", "--enforce-eager",
    "--seed", "--enable-chunked-prefill", "--quantization",
})  # fmt: skip
FACTS = EngineFacts("/usr/bin/python3", "0.32.0", None, False, FLAGS, True, None)
# The command of a 2024 post about INT4 with speculation and prefill preemption.
POST = r"""
$ python -m vllm.entrypoints.openai.api_server \
    --model ./glm-4-9b-int4 --quantization awq \
    --speculative-model ./glm-draft --num-speculative-tokens 5 \
    --speculative-disable-by-batch-size 8 \
    --enable-prefill-preemption --scheduler-policy priority \
    --block-size 32 --kv-cache-dtype fp16 --gpu-memory-utilization 0.9 --host 0.0.0.0
"""


def test_the_posts_command_is_translated_with_a_note_on_each_flag():
    found = translate(POST, FACTS)
    assert found.profile == Profile(
        Path("glm-4-9b-int4"),
        memory_share=0.9,
        block_size=32,
        kv_dtype="float16",
        scheduling="priority",
        speculation=Speculation("draft_model", 5, Path("glm-draft"), steps=((8, 5),)),
    )
    said = {flag: str(sentence) for flag, sentence in found.notes}
    assert list(said) == [
        "--quantization", "--speculative-model", "--num-speculative-tokens", "--speculative-disable-by-batch-size",
        "--enable-prefill-preemption", "--scheduler-policy", "--kv-cache-dtype", "--host",
    ]  # fmt: skip
    assert "chunks" in said["--enable-prefill-preemption"] and "this machine only" in said["--host"]
    assert said["--scheduler-policy"] == "--scheduler-policy is called --scheduling-policy today."


@pytest.mark.parametrize(
    ("text", "profile"),
    [
        ("vllm serve /m --max-model-len 32k", Profile(Path("/m"), context=32000)),
        ("vllm serve /m --max_model_len=4K", Profile(Path("/m"), context=4096)),
        ("VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve /m", Profile(Path("/m"), attention="FLASHINFER")),
        ("vllm serve '/my models/m' --served-model-name a b", Profile(Path("/my models/m"), name="a")),
        (
            "vllm serve /m --speculative-model '[ngram]' --num-speculative-tokens 3 --ngram-prompt-lookup-max 4",
            Profile(Path("/m"), speculation=Speculation("ngram", 3, lookup_min=1, lookup_max=4)),
        ),
        ("vllm serve /m -tp 2 --seed -1", Profile(Path("/m"), tensor_parallel=2, extra=("--seed", "-1"))),
        ("vllm serve /m --no-enable-prefix-caching", Profile(Path("/m"), prefix_cache=False)),
        (
            'vllm serve /m --enable-lora --max-lora-rank 64 --lora-modules a=/l/a \'{"name": "b", "path": "/l/b"}\'',
            Profile(Path("/m"), adapters=(Adapter("a", Path("/l/a")), Adapter("b", Path("/l/b")))),
        ),
        (
            "docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.6.0 --model /m --port 81",
            Profile(Path("/m"), port=81),
        ),
        ("vllm serve /m --enforce-eager --dtype half", Profile(Path("/m"), running="eager", dtype="float16")),
    ],
)
def test_what_a_command_means(text, profile):
    assert translate(text, FACTS).profile == profile


def test_what_is_gone_or_unknown_is_left_out_and_said():
    found = translate("vllm serve /m --swap-space 4 --use-v2-block-manager --max-paddings 9 --api-key k", FACTS)
    assert found.profile == Profile(Path("/m"))
    assert [str(sentence) for _, sentence in found.notes] == [
        "--swap-space is gone: a sequence that does not fit is computed again, not swapped out.",
        "--use-v2-block-manager is gone: vLLM does it by itself.",
        "vLLM 0.32.0 does not know --max-paddings; it is left out.",
        "--api-key is left out: each start makes a new key.",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no model"),
        ("vllm serve --port 80", "names no model"),
        ("vllm serve /m --max-model-len lots", "--max-model-len lots is no number"),
        ("vllm serve /m --port", "--port has no value"),
        ("vllm serve '/m", "cannot be read"),
        ("vllm serve /m --num-speculative-tokens 3", "draft model is missing"),
        ("vllm serve /m --lora-modules x", "names no LoRA adapter"),
        ("vllm serve /m --scheduling-policy fair", "Scheduling cannot be fair"),
    ],
)
def test_what_cannot_be_meant_is_a_sentence(text, said):
    with pytest.raises(WorkbenchError, match=said) as caught:
        translate(text, FACTS)
    assert caught.value.hint
