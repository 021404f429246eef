"""A quantization's state is the sum of its events."""

from dataclasses import replace

from workbench.events import Advanced, Cancelled, Failed, Finished, Note, Stage, decode, encode
from workbench.quant_events import ModuleDone, ModuleStarted, QualityMeasured
from workbench.quant_run import QuantRun

DONE = ModuleDone(
    name="model.layers.0.self_attn.q_proj", block=0, method="awq", bits=4, group_size=32, symmetric=False,
    shape=(8, 8), low=-1.0, high=1.0, before=(32, 32), after=(30, 34), levels=(-1.0, 0.0, 1.0), not_finite=0,
    weight_error=0.01, output_error=0.002, plain_output_error=0.004, sqnr_db=27.0, kurtosis=0.1, outliers=0.0,
    clipped=0.0, seconds=0.1,
)  # fmt: skip


def folded(*events, **values):
    run = QuantRun()
    for event in events:
        run.apply(decode(encode(event)), **values)
    return run


def test_modules_come_by_block_and_last_name():
    other = replace(DONE, name="model.layers.3.mlp.down_proj", block=3)
    run = folded(Stage("Quantizing", 2), ModuleStarted(DONE.name, 0), DONE, Advanced(1), other, Advanced(2))
    assert run.blocks == {0: {"q_proj": DONE}, 3: {"down_proj": other}}
    assert (run.share, run.current, run.running) == (1.0, "", True)


def test_current_is_the_module_begun_and_not_done():
    run = folded(Stage("Quantizing", 2), ModuleStarted(DONE.name, 0))
    assert run.current == DONE.name and run.share == 0


def test_time_left_follows_the_pace():
    run = QuantRun()
    run.apply(Stage("Quantizing", 10), at_s=100.0)
    assert run.left_s(now_s=100.0) is None
    run.apply(Advanced(2), at_s=104.0)
    assert run.left_s(now_s=104.0) == 16.0
    assert run.left_s(now_s=105.0) == 15.0
    run.apply(Finished("/x", 5), at_s=130.0)
    assert run.left_s(now_s=130.0) is None


def test_unknown_length_has_no_share():
    assert folded(Stage("Writing", 0)).share is None


def test_ends():
    finished = folded(Stage("a"), QualityMeasured("m", 10, 0.1, 20.0, 19.0, 0.9), Finished("/out", 7))
    assert (finished.path, finished.size, finished.quality["m"].kl, finished.running) == ("/out", 7, 0.1, False)
    failed = folded(Stage("a"), Note("careful"), Failed("No {thing}.", "Add {thing}.", {"thing": "text"}))
    assert (str(failed.failed), str(failed.hint), failed.running) == ("No text.", "Add text.", False)
    assert failed.notes == [Note("careful")]
    assert folded(Stage("a"), Cancelled()).cancelled and not folded(Stage("a"), Cancelled()).running
