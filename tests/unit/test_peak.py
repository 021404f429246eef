"""The memory's peak bandwidth: the highest that was ever measured of a processor and its threads."""

import json
import os

import pytest

from workbench.catalog import peak


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def machine(monkeypatch):
    """Asks as a new process does, on a machine whose memory shows this much just now."""

    def ask(shown, processor="EPYC", threads=4):
        peak.peak_bandwidth.cache_clear()
        monkeypatch.setattr(peak, "measured", lambda count: shown)
        monkeypatch.setattr(peak, "_threads", lambda: threads)
        return peak.peak_bandwidth(processor)

    yield ask
    peak.peak_bandwidth.cache_clear()


def test_it_only_gets_better(machine):
    assert [machine(shown) for shown in (20e9, 8e9, 43e9, None, 10e9)] == [20e9, 20e9, 43e9, 43e9, 43e9]


def test_each_processor_and_number_of_threads_has_its_own(machine):
    assert [machine(40e9), machine(10e9, threads=2), machine(15e9, "Xeon"), machine(9e9)] == [40e9, 10e9, 15e9, 40e9]


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "\x00", "[" * 100_000, '{"EPYC, 4 threads": "fast"}',
                                  '{"EPYC, 4 threads": 1e300}', '{"EPYC, 4 threads": -1}', '{"EPYC, 4 threads": NaN}',
                                  '{"EPYC, 4 threads": true}'])  # fmt: skip
def test_a_damaged_file_is_measured_anew(machine, home, text):
    (home / "bandwidth.json").write_text(text)
    assert machine(5e9) == 5e9
    assert json.loads((home / "bandwidth.json").read_text()) == {"EPYC, 4 threads": 5e9}


def test_what_else_the_file_knows_stays(machine, home):
    (home / "bandwidth.json").write_text('{"Xeon, 8 threads": 3e11, "EPYC, 4 threads": null}')
    machine(5e9)
    assert json.loads((home / "bandwidth.json").read_text()) == {"Xeon, 8 threads": 3e11, "EPYC, 4 threads": 5e9}


def test_a_disk_that_takes_it_not_and_a_machine_that_cannot_be_measured(machine, home):
    (home / "bandwidth.json").mkdir()
    assert machine(5e9) == 5e9
    assert machine(None) is None


def test_this_machine_is_measured():
    few = peak.measured(1, 0.05)
    assert 1e8 < few < 1e13, "slow memory on a busy machine, and none that exists"
    assert peak._threads() == min(len(os.sched_getaffinity(0)), peak.THREADS)
