"""Which local models and heads can draft for a model, and why not the others (H24, H25)."""

import json
from dataclasses import replace

import pytest
import tiny as maker
from test_folder import gguf

from workbench.catalog.devices import Device
from workbench.catalog.folder import inspect, scan
from workbench.engine import drafts
from workbench.engine.facts import EngineFacts
from workbench.engine.profile import Profile
from workbench.engine.speculation import Speculation
from workbench.errors import WorkbenchError

CPU = Device("CPU", "cpu", 32 * 2**30, 16 * 2**30, 1e10)
FACTS = EngineFacts("python", "0.32.0", None, True, frozenset(), True, None)


@pytest.fixture
def target(write_tiny):
    return inspect(write_tiny("target"))


@pytest.fixture
def write_head(tmp_path):
    """A head of this config; `shapes` are its tensors."""

    def write(name, config, **shapes):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        maker.save_headers(folder / "model.safetensors", shapes or {"fc.weight": (64, 192)})
        return inspect(folder)

    return write


def judge(target, draft, **chosen):
    return drafts.judge(target, draft, Profile(target.folder, **chosen), CPU, FACTS)


def said(candidate):
    return " ".join(str(reason.sentence) for reason in candidate.reasons)


def write_llama(folder, **config):
    """A Llama of holes with the starter's shape unless `config` says otherwise; F-TINY's tokenizer."""
    maker.write(folder)
    stored = json.loads((folder / "config.json").read_text())
    shape = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 4, "vocab_size": 1000} | config
    (folder / "config.json").write_text(
        json.dumps(stored | shape | {"num_attention_heads": 9, "num_key_value_heads": 3})
    )
    hidden, high = shape["hidden_size"], shape["intermediate_size"]
    shapes = {
        "model.embed_tokens.weight": (shape["vocab_size"], hidden),
        "lm_head.weight": (shape["vocab_size"], hidden),
    }
    for layer in range(shape["num_hidden_layers"]):
        for leaf, size in (("mlp.up_proj", (high, hidden)), ("mlp.down_proj", (hidden, high))):
            shapes[f"model.layers.{layer}.{leaf}.weight"] = size
    maker.save_headers(folder / "model.safetensors", shapes)
    return inspect(folder)


def test_a_smaller_sibling_fits_with_its_figures(tmp_path):
    target = write_llama(tmp_path / "target", num_hidden_layers=30)
    draft = write_llama(tmp_path / "draft", num_hidden_layers=2)
    candidate = judge(target, draft)
    assert (candidate.verdict, candidate.method, candidate.folder) == ("fits", "draft_model", draft.folder)
    assert candidate.speedup > 2 and candidate.cost < 0.2
    assert "256 tokens with the same numbers" in said(candidate)


def test_h24_padding_alone_is_adapted_or_mapped(tmp_path):
    target = write_llama(tmp_path / "target", num_hidden_layers=30, intermediate_size=16384, vocab_size=152064)
    draft = write_llama(tmp_path / "draft", vocab_size=151936)
    candidate = judge(target, draft)
    assert candidate.verdict == "adapt" and "128 of padding" in said(candidate)
    assert "mixed vocabularies" in str(candidate.telling.hint)
    with pytest.raises(WorkbenchError, match="padding"):
        drafts.settle(Profile(target.folder, speculation=Speculation("draft_model", 4, draft.folder)), FACTS)
    mixed = candidate.speculation(Speculation(sampling="greedy", tokens=3))
    assert mixed.mixed and mixed.tokens == 3
    assert drafts.settle(Profile(target.folder, speculation=mixed), FACTS).speculation == mixed


def test_h24_another_tokenizer_is_refused_before_a_command_is_built(target, write_tiny):
    folder = write_tiny("other")
    content = json.loads((folder / "tokenizer.json").read_text())
    vocab = content["model"]["vocab"]
    content["model"]["vocab"] = dict(
        zip(vocab, [*list(vocab.values())[:8], *reversed(list(vocab.values())[8:])], strict=True)
    )
    (folder / "tokenizer.json").write_text(json.dumps(content))
    candidate = judge(target, inspect(folder))
    assert candidate.verdict == "refused" and "The tokenizers differ: 8 of the model's 256 tokens" in said(candidate)
    with pytest.raises(WorkbenchError, match="differ"):
        drafts.settle(Profile(target.folder, speculation=Speculation("draft_model", 4, folder)), FACTS)


def test_h24_every_local_model_is_listed_with_its_reason_and_ngram_always(target, tmp_path, write_tiny):
    write_tiny("sibling")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{}")
    listed = drafts.listing(target, Profile(target.folder), scan([tmp_path]), CPU, FACTS)
    assert {each.name: each.verdict for each in listed} == {
        "n-gram": "fits", "suffix": "refused", "sibling": "poor", "broken": "refused",
    }  # fmt: skip
    assert all(each.telling.sentence for each in listed)
    assert drafts.listing(target, Profile(target.folder), [], CPU, replace(FACTS, suffix=True))[1].verdict == "fits"


def test_a_draft_as_large_as_its_model_cannot_pay(target, write_tiny):
    candidate = judge(target, inspect(write_tiny("sibling")))
    assert candidate.verdict == "poor" and candidate.cost == pytest.approx(1)
    assert "Not much smaller than the model" in said(candidate)


def test_tokens_that_it_does_not_know_are_told(target, write_tiny):
    folder = write_tiny("sibling")
    content = json.loads((folder / "tokenizer.json").read_text())
    content["added_tokens"] = [each for each in content["added_tokens"] if each["content"] != "<|stop|>"]
    del content["model"]["vocab"]["<|stop|>"]
    (folder / "tokenizer.json").write_text(json.dumps(content))
    assert "does not know 1 added token, such as <|stop|>" in said(judge(target, inspect(folder)))


def test_moved_tokens_are_adapted(target, write_tiny):
    folder = write_tiny("sibling")
    content = json.loads((folder / "tokenizer.json").read_text())
    content["added_tokens"][3]["id"], content["added_tokens"][4]["id"] = 4, 3
    content["model"]["vocab"] |= {"<|pad|>": 4, "<|four|>": 3}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    candidate = judge(target, inspect(folder))
    assert "2 added tokens have other numbers than in the model, such as <|pad|>" in said(candidate)
    assert any(reason.verdict == "adapt" for reason in candidate.reasons)


def test_a_shorter_context_is_told(target, write_tiny):
    assert "Beyond 64 tokens it drafts nothing; the context is 128" in said(
        judge(target, inspect(write_tiny("short", positions=64)))
    )


def test_what_does_not_fit_beside_its_model_is_refused(tmp_path):
    target = write_llama(tmp_path / "target", num_hidden_layers=30)
    draft = write_llama(tmp_path / "draft")
    small = replace(CPU, free_bytes=2_330_000_000)
    candidate = drafts.judge(target, draft, Profile(target.folder), small)
    assert candidate.verdict == "refused" and "Too large beside the model" in said(candidate)
    assert candidate.telling.estimated


def test_both_caches_count(target, write_tiny):
    """Two layers of 2 × 2 heads × 32 × 4 bytes in each: 2,048 bytes a token, half of them the draft's."""
    draft = inspect(write_tiny("sibling"))
    assert "holds 524,288 tokens" in said(judge(target, draft, kv_gib=1.0))
    candidate = judge(target, draft, kv_gib=100 * 2048 / 2**30, context=120)
    assert candidate.verdict == "refused" and "holds 100 tokens; the context is 120" in said(candidate)
    assert candidate.barrier is None, "the engine has the last word"
    alone = judge(target, draft, kv_gib=100 * 1024 / 2**30, context=120)
    assert alone.verdict == "poor" and "cache then holds 50 tokens" in said(alone), "too long without a draft as well"


@pytest.mark.parametrize("part", ["eagle-7b", "my-EAGLE3", "dspark"])
def test_a_path_that_vllm_takes_for_a_head(target, write_tiny, part):
    candidate = judge(target, inspect(write_tiny(f"{part}/sibling")))
    assert candidate.verdict == "refused" and "in its path" in said(candidate)


EAGLE3 = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "draft_vocab_size": 32000}


def test_h25_a_head_of_another_width_is_refused_with_both_sizes(target, write_head):
    candidate = judge(target, write_head("head", EAGLE3 | {"hidden_size": 4096}))
    assert candidate.verdict == "refused"
    assert "The head reads states of width 4096; those of this model are 64 wide" in said(candidate)


def test_h25_the_method_is_corrected_from_the_architecture(target, write_head):
    head = write_head("head", EAGLE3 | {"hidden_size": 64, "eagle_aux_hidden_state_layer_ids": [0, 1, 2]})
    chosen = Profile(target.folder, speculation=Speculation("eagle", 2, head.folder))
    assert drafts.settle(chosen, FACTS).speculation == Speculation("eagle3", 2, head.folder)


def test_h25_a_narrower_head_for_a_wider_model_is_fine(tmp_path, write_head):
    target = write_llama(tmp_path / "target", hidden_size=8192, intermediate_size=512)
    head = EAGLE3 | {"hidden_size": 6144, "target_hidden_size": 8192, "eagle_aux_hidden_state_layer_ids": [1, 2, 3]}
    candidate = judge(target, write_head("head", head))
    assert (candidate.verdict, candidate.method) == ("fits", "eagle3")


def test_h25_a_plain_draft_of_a_quantized_model_counts_by_its_own_config(tmp_path):
    target = write_llama(tmp_path / "target", num_hidden_layers=30)
    packed = json.loads((target.folder / "config.json").read_text()) | {
        "quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {}}
    }
    (target.folder / "config.json").write_text(json.dumps(packed))
    assert judge(inspect(target.folder), write_llama(tmp_path / "draft", num_hidden_layers=2)).verdict == "fits"


def test_eagle3_reads_three_layers_that_must_be_there(target, write_head):
    """Of two layers vLLM would choose 2, 1 and -1, and fail in the first step (ran)."""
    candidate = judge(target, write_head("head", EAGLE3 | {"hidden_size": 64}))
    assert "It reads the layers 2, 1, -1; this model has 2" in said(candidate)


@pytest.mark.parametrize(
    ("config", "shapes", "method"),
    [
        ({"architectures": ["EagleLlamaForCausalLM"], "hidden_size": 64}, {}, "eagle"),
        ({"architectures": ["LlamaForCausalLM"], "hidden_size": 64}, {"fc.weight": (64, 128)}, "eagle"),
        ({"architectures": ["LlamaForCausalLM"], "hidden_size": 64}, {"fc.weight": (64, 192)}, "eagle3"),
        (
            {
                "speculators_model_type": "peagle",
                "transformer_layer_config": {"hidden_size": 64},
                "eagle_aux_hidden_state_layer_ids": [0, 1, 2],
            },
            {},
            "eagle3",
        ),
        (
            {"medusa_num_heads": 2, "hidden_size": 64},
            {"0.0.linear.weight": (64, 64), "0.1.weight": (256, 64)},
            "medusa",
        ),
        ({"model_type": "mimo_mtp", "hidden_size": 64}, {}, "mtp"),
        ({"architectures": ["DFlashDraftModel"], "hidden_size": 64}, {}, "dflash"),
    ],
)
def test_the_method_is_read_from_the_head(target, write_head, config, shapes, method):
    candidate = judge(target, write_head("head", config, **shapes))
    assert candidate.method == method
    assert candidate.parallel == (config.get("speculators_model_type") == "peagle")


def test_medusa_drafts_as_many_tokens_as_it_has_layers_for(target, write_head):
    shapes = {f"{head}.0.linear.weight": (64, 64) for head in range(3)} | {"0.1.weight": (256, 64)}
    head = write_head("head", {"medusa_num_heads": 3, "hidden_size": 64}, **shapes)
    candidate = judge(target, head)
    assert candidate.most == 3 and candidate.speculation(Speculation(tokens=5, steps=((4, 2),))).tokens == 3
    with pytest.raises(WorkbenchError, match="layers for 3 tokens"):
        drafts.settle(Profile(target.folder, speculation=Speculation("medusa", 4, head.folder)), FACTS)
    wrong = write_head("wrong", {"medusa_num_heads": 3, "hidden_size": 64}, **shapes | {"0.1.weight": (300, 64)})
    assert "made for 300 tokens; this model has 256" in said(judge(target, wrong))


def test_own_layers_for_mtp_are_a_candidate_only_where_the_checkpoint_holds_them(write_tiny):
    config = {"architectures": ["MiMoForCausalLM"], "model_type": "mimo", "num_nextn_predict_layers": 1}
    stripped = inspect(write_tiny("stripped", config=config))
    extra = {"model.mtp_layers.0.input_proj.weight": maker.tensors()["lm_head.weight"]}
    whole = inspect(write_tiny("whole", config=config, edit=extra))
    methods = [each.method for each in drafts.listing(whole, Profile(whole.folder), [], CPU, FACTS)]
    assert methods == ["ngram", "suffix", "mtp"]
    assert len(drafts.listing(stripped, Profile(stripped.folder), [], CPU, FACTS)) == 2
    chosen = Profile(stripped.folder, speculation=Speculation("mtp", 1))
    with pytest.raises(WorkbenchError, match="no layers for MTP"):
        drafts.settle(chosen, FACTS)
    assert drafts.settle(replace(chosen, model=whole.folder), FACTS).speculation == chosen.speculation


def test_suffix_needs_its_package(target):
    chosen = Profile(target.folder, speculation=Speculation("suffix", 4))
    with pytest.raises(WorkbenchError, match="arctic-inference"):
        drafts.settle(chosen, FACTS)
    assert drafts.settle(chosen, replace(FACTS, suffix=True)) == chosen


def test_a_gguf_file_is_listed_as_what_it_is(target, tmp_path):
    place = tmp_path / "lib" / "packed"
    place.mkdir(parents=True)
    gguf(place / "model.gguf")
    candidate = judge(target, inspect(place))
    assert candidate.verdict == "refused" and "GGUF" in said(candidate)
    assert len(drafts.listing(inspect(place), Profile(place), [], CPU, FACTS)) == 2


def test_an_assistant_of_its_own_width_names_its_models(target, write_head):
    head = {"model_type": "gemma4_assistant", "hidden_size": 16, "backbone_hidden_size": 64}
    assert (judge(target, write_head("fits", head)).method, judge(target, inspect(target.folder)).method) == (
        "mtp", "draft_model",
    )  # fmt: skip
    assert judge(target, write_head("wide", head | {"backbone_hidden_size": 128})).verdict == "refused"
