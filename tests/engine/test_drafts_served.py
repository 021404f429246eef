"""A head through the whole of serving: its method is corrected and told, it drafts, and refuses what we leave out."""

import httpx
import pytest
from tiny_heads import write_eagle3
from tiny_models import write_plain

from workbench.catalog.devices import devices
from workbench.catalog.folder import inspect
from workbench.engine.fit import fit
from workbench.engine.profile import Profile
from workbench.engine.sampling import Sampling
from workbench.engine.speculation import REFUSED_FIELDS, Speculation
from workbench.engine_events import EngineMemory
from workbench.events import Note

PROMPT = "every step creaked"


@pytest.fixture(scope="module")
def engine(served, tmp_path_factory):
    made = tmp_path_factory.mktemp("served")
    target = write_plain(made / "target", layers=4, tokenizer=True)
    head = write_eagle3(made / "three-layers")
    assert inspect(target).can_serve
    drafting = Speculation("eagle", 3, head, steps=((4, 2),))
    running = served(Profile(target, context=256, kv_gib=0.25, speculation=drafting), compiled=False)
    assert running.ready, running.tail()
    return running


def complete(engine, **fields):
    body = {"model": engine.ready.model, "prompt": PROMPT, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
    return httpx.post(
        engine.ready.url + "/v1/completions", json=body | fields, timeout=120, trust_env=False,
        headers={"Authorization": f"Bearer {engine.ready.key}"},
    )  # fmt: skip


def test_h25_the_method_is_corrected_and_told(engine):
    told = [event.values for event in engine.events if isinstance(event, Note)]
    assert {"name": "three-layers", "method": "EAGLE-3"} in told


def test_it_drafts(engine):
    assert complete(engine).status_code == 200
    metrics = httpx.get(engine.ready.url + "/metrics", trust_env=False).text
    lines = [line for line in metrics.splitlines() if line.startswith("vllm:spec_decode")]
    counted = {line.partition("{")[0]: float(line.split()[-1]) for line in lines}
    drafts, drafted = counted["vllm:spec_decode_num_drafts_total"], counted["vllm:spec_decode_num_draft_tokens_total"]
    assert drafts > 0 and drafted == 2 * drafts, "two tokens a step while one request runs"


def test_the_cache_is_as_large_as_was_said_with_the_heads_part_in_it(engine):
    told = [event for event in engine.events if isinstance(event, EngineMemory)][-1]
    (device,) = devices()
    found = fit(inspect(engine.profile.model), engine.profile, device)
    assert (told.kv_tokens, told.kv_bytes) == (found.kv_tokens, found.kv_budget) and found.draft > 0


@pytest.mark.parametrize("field", REFUSED_FIELDS)
def test_h26_what_we_leave_out_is_refused(engine, field):
    refused = complete(engine, temperature=0.7, **{field: 0.05 if field == "min_p" else {"5": 1.0}})
    assert refused.status_code == 400 and "speculative" in refused.text
    allowed = Sampling(max_tokens=4, temperature=0.7, min_p=0.05).allowed(speculates=True)
    assert complete(engine, **allowed.chosen()).status_code == 200
