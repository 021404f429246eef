"""Several devices in the form: what it sums up, when Ray has an address, and what is said before the start."""

import pytest

from ui.serve.parallel_options import ParallelOptions
from workbench.words import Sentence


@pytest.fixture
def options(qtbot, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    made = ParallelOptions()
    qtbot.addWidget(made)
    made.show()
    return made


def choose(options, executor):
    options.executor.setCurrentIndex(options.executor.findData(executor))
    options.executor.activated.emit(options.executor.currentIndex())


def test_the_numbers_are_summed_up_and_told(options, qtbot):
    assert str(options.summary) == "1 device" and not options.note.isVisible()
    with qtbot.waitSignal(options.changed):
        options.counts["tensor_parallel"].setValue(2)
    options.counts["data_parallel"].setValue(3)
    assert str(options.summary) == "6 devices"
    assert options.fields()["tensor_parallel"] == 2 and options.fields()["executor"] == "auto"


def test_too_few_gpus_are_said_at_once(options):
    options.show_gpus(2)
    options.counts["tensor_parallel"].setValue(4)
    assert options.note.isVisible() and "needs 4 GPUs" in options.note.text() and "sees 2" in options.note.text()
    choose(options, "ray")
    assert not options.note.isVisible()
    choose(options, "mp")
    options.counts["tensor_parallel"].setValue(2)
    assert not options.note.isVisible()
    options.show_gpus(0)  # a processor: each part is a process
    options.counts["tensor_parallel"].setValue(4)
    assert not options.note.isVisible()


def test_ray_has_an_address_and_a_word_on_the_network(options, qtbot):
    assert not options.address.isVisible()
    choose(options, "ray")
    assert options.address.isVisible() and not options.note.isVisible() and str(options.summary) == "1 device, Ray"
    qtbot.keyClicks(options.address, "head:6379")
    assert "network" in options.note.text() and options.fields()["ray_address"] == "head:6379"
    choose(options, "auto")
    assert options.fields()["ray_address"] == ""


def test_what_the_engine_does_not_know_is_switched_off_with_the_reason(options):
    options.counts["data_parallel"].setValue(2)
    reason = Sentence("vLLM {version} does not know {flag}.", {"version": "0.1", "flag": "--x"})
    options.show_missing(dict.fromkeys(("pipeline_parallel", "data_parallel", "executor"), reason))
    assert not options.counts["pipeline_parallel"].isEnabled() and not options.executor.isEnabled()
    assert options.counts["data_parallel"].isEnabled(), "what is set can be taken back"
    assert options.counts["tensor_parallel"].isEnabled()
    assert "0.1" in options.executor.toolTip()
