"""Plans: sizes to the byte, and every conflict that must be found before a run."""

import json
import shutil
import subprocess
import sys
import time
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny as maker

from workbench import recipe as recipes
from workbench.catalog.folder import inspect
from workbench.catalog.headers import Tensor
from workbench.plan import make
from workbench.recipe import LAYERED, PRESETS, WHOLE_ROW, Choice, Rule


@pytest.fixture(scope="session")
def starter_shapes(tmp_path_factory):
    """SmolLM2-135M by its headers alone: the file has no values, only a hole where they would be."""
    hidden, intermediate, layers, narrow, vocab = 576, 1536, 30, 192, 49152
    path = tmp_path_factory.mktemp("starter")
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    for layer in range(layers):
        at = f"model.layers.{layer}"
        shapes |= {
            f"{at}.self_attn.q_proj.weight": (hidden, hidden),
            f"{at}.self_attn.k_proj.weight": (narrow, hidden),
            f"{at}.self_attn.v_proj.weight": (narrow, hidden),
            f"{at}.self_attn.o_proj.weight": (hidden, hidden),
            f"{at}.mlp.gate_proj.weight": (intermediate, hidden),
            f"{at}.mlp.up_proj.weight": (intermediate, hidden),
            f"{at}.mlp.down_proj.weight": (hidden, intermediate),
            f"{at}.input_layernorm.weight": (hidden,),
            f"{at}.post_attention_layernorm.weight": (hidden,),
        }
    maker.save_headers(path / "model.safetensors", shapes)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "head_dim": 64,
        "intermediate_size": intermediate, "num_hidden_layers": layers, "num_attention_heads": 9,
        "num_key_value_heads": 3, "vocab_size": vocab, "max_position_embeddings": 8192, "tie_word_embeddings": True,
    }  # fmt: skip
    (path / "config.json").write_text(json.dumps(config))
    return inspect(path)


@pytest.fixture
def model(tiny):
    return inspect(tiny)


def codes(found) -> list[str]:
    return [each.code for each in found]


def test_the_layered_default_fits_the_starter(starter_shapes):
    plan = make(starter_shapes, LAYERED)
    assert not plan.blocks and plan.warnings == () and len(plan.quantized) == 210
    for planned in plan.linears:
        expected = ("awq", 32, False) if planned.linear.in_attention else ("gptq", 64, True)
        assert (planned.choice.method, planned.choice.group_size, planned.choice.symmetric) == expected
    assert "model.embed_tokens" in plan.kept and "model.norm" in plan.kept
    # The size of the real file that this plan gave.
    assert plan.predicted_bytes == pytest.approx(114_434_016, rel=0.001)
    assert plan.average_bits == pytest.approx(4.344, abs=0.001)


def test_automatic_groups_are_128_where_that_divides(write_tiny):
    values = {
        f"model.layers.0.{leaf}.weight": np.zeros((128, width), np.float32)
        for leaf, width in (
            ("self_attn.q_proj", 256),
            ("self_attn.o_proj", 128),
            ("mlp.up_proj", 128),
            ("mlp.down_proj", 96),
        )
    }
    path = write_tiny()
    maker.save(path / "model.safetensors", values)
    sizes = {entry.linear.leaf: entry.choice.group_size for entry in make(inspect(path), LAYERED).linears}
    assert sizes == {"q_proj": 128, "o_proj": 128, "up_proj": 32, "down_proj": 32}


def test_group_128_names_exactly_the_180_modules(starter_shapes):  # H08
    start = time.perf_counter()
    plan = make(starter_shapes, recipes.with_group_size(LAYERED, 128))
    assert time.perf_counter() - start < 1
    (conflict,) = plan.conflicts
    expected = {linear.name for linear in starter_shapes.linears if linear.leaf != "down_proj"}
    assert plan.blocks and set(conflict.modules) == expected and len(conflict.modules) == 180
    assert "128" in str(conflict.sentence) and "576" in str(conflict.sentence) and "64, 32" in str(conflict.hint)
    assert not make(starter_shapes, recipes.with_group_size(LAYERED, 64)).blocks


def test_each_fix_of_group_128_gives_a_plan_that_runs(starter_shapes):
    (conflict,) = make(starter_shapes, recipes.with_group_size(LAYERED, 128)).conflicts
    all_64, mixed, kept = (make(starter_shapes, fix.recipe) for fix in conflict.fixes)
    assert not all_64.blocks and {entry.choice.group_size for entry in all_64.linears} == {64}
    assert not mixed.blocks
    assert {(entry.linear.leaf == "down_proj", entry.choice.group_size) for entry in mixed.linears} == {
        (True, 128),
        (False, 64),
    }
    assert all(entry.choice.method == ("awq" if entry.linear.in_attention else "gptq") for entry in mixed.linears)
    assert not kept.blocks and {entry.linear.leaf for entry in kept.quantized} == {"down_proj"}


def test_no_group_fits(write_tiny):
    path = write_tiny()
    values = maker.tensors() | {"model.layers.0.mlp.down_proj.weight": np.zeros((64, 100), np.float32)}
    maker.save(path / "model.safetensors", values)
    model = inspect(path)
    (conflict,) = make(model, LAYERED).conflicts
    assert conflict.modules == ("model.layers.0.mlp.down_proj",) and len(conflict.fixes) == 1
    assert not make(model, conflict.fixes[0].recipe).blocks


def test_one_of_the_fused_left_out(model):  # H13 a
    rule = Rule("*layers.1.self_attn.k_proj", Choice(method="keep"))
    (conflict,) = make(model, replace(LAYERED, rules=(rule,))).conflicts
    names = [f"model.layers.1.self_attn.{leaf}_proj" for leaf in "qkv"]
    assert list(conflict.modules) == names and all(name in str(conflict.sentence) for name in names)
    like, kept = (make(model, fix.recipe) for fix in conflict.fixes)
    assert not like.blocks and len(like.quantized) == 14
    assert not kept.blocks and len(kept.quantized) == 11


@pytest.mark.parametrize(
    ("pattern", "changes", "word"),
    [
        ("*.k_proj", {"group_size": 64}, "group size"),  # H13 b
        ("*.q_proj", {"symmetric": True}, "symmetry"),
        ("*.v_proj", {"bits": 8, "symmetric": True}, "bits"),
        ("*.up_proj", {"group_size": 32}, "group size"),
    ],
)
def test_fused_layers_that_differ(model, pattern, changes, word):
    part = LAYERED.mlp if "up" in pattern else LAYERED.attention
    (conflict,) = make(model, replace(LAYERED, rules=(Rule(pattern, replace(part, **changes)),))).conflicts
    assert conflict.code == "siblings_differ" and word in str(conflict.sentence)
    assert len(conflict.modules) == (4 if "up" in pattern else 6)
    for fix in conflict.fixes:
        assert not make(model, fix.recipe).blocks


def test_layers_that_are_not_fused_may_differ(model):
    rules = (Rule("*.o_proj", Choice(bits=8)), Rule("*.down_proj", Choice(method="keep")))
    assert not make(model, replace(LAYERED, rules=rules)).blocks


def test_an_unmatched_pattern_suggests_the_near_one(model):  # H14
    keep = Choice(method="keep")
    plan = make(model, replace(LAYERED, rules=(Rule("lm_head", keep), Rule("model.layer.0.*", keep))))
    (told,) = plan.conflicts
    assert "model.layer.0.*" in str(told.sentence) and "model.layers.0.*" in str(told.hint)
    fixed = make(model, told.fixes[0].recipe)
    assert not fixed.blocks and fixed.warnings == () and len(fixed.quantized) == 7


def test_few_calibration_tokens_are_a_warning(model):
    assert codes(make(model, replace(LAYERED, samples=31)).warnings) == ["few_tokens"]
    assert make(model, replace(LAYERED, samples=32)).warnings == ()
    assert make(model, replace(PRESETS["rtn"], samples=1)).warnings == ()


def test_models_that_cannot_be_quantized(write_tiny):
    packed = {"quant_method": "awq", "bits": 4, "group_size": 32}
    assert codes(make(inspect(write_tiny("a", config={"quantization_config": packed})), LAYERED).conflicts) == [
        "already_quantized"
    ]
    incomplete = write_tiny("b", shards=9)
    (incomplete / "model-00003-of-00009.safetensors").unlink()
    assert codes(make(inspect(incomplete), LAYERED).conflicts) == ["incomplete"]
    empty = write_tiny("c")
    maker.save(empty / "model.safetensors", {"wte.weight": np.zeros((4, 4), np.float32)})
    assert codes(make(inspect(empty), LAYERED).conflicts) == ["no_linears"]


def test_nothing_left_to_quantize(model):
    keep = Choice(method="keep")
    plan = make(model, replace(LAYERED, attention=keep, mlp=keep))
    assert codes(plan.conflicts) == ["nothing_quantized"] and plan.average_bits is None
    assert not make(model, plan.conflicts[0].fixes[0].recipe).blocks


def test_the_place_of_the_result(model, tmp_path, monkeypatch):
    assert not make(model, LAYERED, tmp_path / "new" / "deep").blocks
    (tmp_path / "empty").mkdir()
    assert not make(model, LAYERED, tmp_path / "empty").blocks
    for inside in (model.folder, model.folder / "int4", tmp_path):
        assert codes(make(model, LAYERED, inside).conflicts) == ["output_is_source"]
    maker.write(tmp_path / "there")
    (taken,) = make(model, LAYERED, tmp_path / "there").conflicts
    assert taken.code == "output_exists" and taken.fixes[0].output == tmp_path / "there-2"
    assert not make(model, taken.fixes[0].recipe, taken.fixes[0].output).blocks
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9, 1000))
    assert codes(make(model, LAYERED, tmp_path / "new").conflicts) == ["no_space"]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "recipe",
    [
        LAYERED,
        recipes.with_group_size(LAYERED, WHOLE_ROW),
        replace(LAYERED, mlp=Choice(bits=8), rules=(Rule("*.0.mlp.*", Choice(method="keep")),)),
        replace(LAYERED, attention=Choice(bits=3, symmetric=False), mlp=Choice(bits=2, group_size=32)),
        replace(LAYERED, attention=Choice(bits=2, symmetric=False), mlp=Choice(bits=3, group_size=WHOLE_ROW)),
    ],
)
def test_the_predicted_size_is_that_of_the_file(write_tiny, tmp_path, recipe, tied, bias):
    """Written here by the layout's description: packed words, scales, zero points and shape of each linear."""
    plan = make(inspect(write_tiny(tied=tied, bias=bias)), recipe)
    values = maker.tensors(tied=tied, bias=bias)
    for entry in plan.quantized:
        rows, columns = values.pop(f"{entry.linear.name}.weight").shape
        choice = entry.choice
        groups = 1 if choice.group_size == WHOLE_ROW else columns // choice.group_size
        name = f"{entry.linear.name}.weight"
        values[f"{name}_packed"] = np.zeros((rows, -(-columns * choice.bits // 32)), np.int32)
        values[f"{name}_scale"] = np.zeros((rows, groups), np.float32)
        values[f"{name}_shape"] = np.array([rows, columns], np.int64)
        if not choice.symmetric:
            values[f"{name}_zero_point"] = np.zeros((-(-rows * choice.bits // 32), groups), np.int32)
    maker.save(tmp_path / "result.safetensors", values)
    assert plan.predicted_bytes == pytest.approx((tmp_path / "result.safetensors").stat().st_size, rel=0.005)


def test_a_header_is_counted_as_json_writes_it(model):
    """Without a quantized layer the file is the original's tensors: the same names, types and places."""
    odd = replace(model, tensors=(*model.tensors, Tensor('a "quoted" norm of 模型.weight', "F32", (3, 5), "", 0, 60)))
    keep = Choice(method="keep")
    entries, at = {"__metadata__": {"format": "pt"}}, 0
    for tensor in sorted(odd.tensors, key=lambda each: (-(each.bytes // each.elements), each.name)):
        places = [at, at + tensor.bytes]
        entries[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": places}
        at += tensor.bytes
    length = len(json.dumps(entries, separators=(",", ":")))
    assert make(odd, replace(LAYERED, attention=keep, mlp=keep)).predicted_bytes == 8 + length + -length % 8 + at


@pytest.fixture(scope="module")
def experts_18k(tmp_path_factory):
    """A mixture of 128 experts in 48 layers by its headers alone: 18,624 linear layers."""
    path, hidden, narrow = tmp_path_factory.mktemp("experts"), 2048, 768
    shapes = {"model.embed_tokens.weight": (1024, hidden), "model.norm.weight": (hidden,)}
    for layer in range(48):
        at = f"model.layers.{layer}"
        shapes |= {
            f"{at}.self_attn.{role}_proj.weight": (rows, columns)
            for role, rows, columns in (
                ("q", 4096, hidden),
                ("k", 512, hidden),
                ("v", 512, hidden),
                ("o", hidden, 4096),
            )
        }
        for expert in range(128):
            for leaf, shape in (("gate", (narrow, hidden)), ("up", (narrow, hidden)), ("down", (hidden, narrow))):
                shapes[f"{at}.mlp.experts.{expert}.{leaf}_proj.weight"] = shape
    maker.save_headers(path / "model.safetensors", shapes)
    (path / "config.json").write_text('{"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe"}')
    found = inspect(path)
    return replace(found, problems=tuple(each for each in found.problems if "quantize" not in each.blocks))


@pytest.mark.parametrize("kind", ["preset", "patterns", "a rule for each layer", "rules that differ"])
def test_many_experts_are_planned_within_a_second(experts_18k, kind):
    names = [linear.name for linear in experts_18k.linears]
    rules = {
        "preset": (),
        "patterns": tuple(Rule(f"model.layers.{block}.mlp.*", Choice(bits=8)) for block in range(48)),
        "a rule for each layer": tuple(Rule(name, Choice(bits=8)) for name in names),
        "rules that differ": tuple(Rule(name, Choice(bits=(4, 8)[at % 2])) for at, name in enumerate(names)),
    }[kind]
    start = time.process_time()  # other work on the machine does not count
    plan = make(experts_18k, replace(LAYERED, rules=rules))
    assert time.process_time() - start < 1  # 0.3 s where the machine has little else to do
    assert len(plan.linears) == len(names) > 18_000 and plan.blocks == (kind == "rules that differ")


def test_planning_and_describing_need_no_torch():
    code = "import sys, workbench.catalog.describe, workbench.catalog.starter; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2]).returncode == 0
