"""What is said of the prompt tokens that another engine has read."""

from workbench.engine import handed
from workbench.engine_events import EnginePhase, EngineReady, EngineSample
from workbench.events import LegEvent
from workbench.runs import EngineRun

READY = EngineReady("http://127.0.0.1:1", "", "m", 1, 3.0, 1.0)


def run_of(**samples: EngineSample) -> EngineRun:
    run = EngineRun()
    for name, sample in samples.items():
        for event in (EnginePhase("starting", 0.0), READY, sample):
            run.apply(LegEvent(name.replace("_", " "), event))
    return run


def test_the_decode_engines_are_summed_and_the_prefill_engine_left_out():
    run = run_of(
        prefill=EngineSample(1.0, prompt_tokens=5000.0, external_tokens=0.0),
        decode_1=EngineSample(1.0, prompt_tokens=1200.0, external_tokens=1100.0),
        decode_2=EngineSample(1.0, prompt_tokens=300.0, external_tokens=290.0),
    )
    assert str(handed.told(run)) == "1,390 of 1,500 prompt tokens came from the prefill engine."


def test_nothing_is_said_before_the_first_prompt_or_without_the_counter():
    assert handed.told(EngineRun()) is None
    assert handed.told(run_of(decode=EngineSample(1.0, prompt_tokens=0.0, external_tokens=0.0))) is None
    assert handed.told(run_of(decode=EngineSample(1.0, prompt_tokens=9.0))) is None
