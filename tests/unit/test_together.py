"""Whether a pair of engines fits, and in which order it starts."""

from workbench import ledger, memory
from workbench.engine.profile import Profile
from workbench.engine.together import Need, decide, of_profiles
from workbench.memory import Measured, Room

GB = 10**9


def test_a_pair_that_fits_on_the_cpu_starts_at_once():
    chosen = decide(Need(2 * GB, GB), Need(2 * GB, GB), 16 * GB, 24 * GB, "cpu")
    assert chosen.order == "at once"
    assert chosen.shares is None
    assert "6.0 GB" in str(chosen.note) and "16.0 GB" in str(chosen.note)


def test_a_pair_that_does_not_fit_runs_one_at_a_time_and_says_so():
    chosen = decide(Need(15 * GB, 2 * GB), Need(5 * GB, 2 * GB), 22 * GB, 24 * GB, "gpu")
    assert chosen.order == "one at a time"
    assert "24.0 GB" in str(chosen.note) and "22.0 GB" in str(chosen.note)


def test_exactly_all_free_memory_is_too_much():
    assert decide(Need(4 * GB, GB), Need(4 * GB, GB), 10 * GB, 24 * GB, "cpu").order == "one at a time"


def test_a_pair_on_a_gpu_starts_in_turn_with_shares_that_cover_each_and_fit_in_what_is_free():
    first, second = Need(15 * GB, 2 * GB), Need(5 * GB, 2 * GB)
    chosen = decide(first, second, 70 * GB, 80 * GB, "gpu")
    assert chosen.order == "in turn"
    assert sum(chosen.shares) * 80 <= 70
    assert chosen.shares[0] * 80 * GB >= first.total - 0.8 * GB
    assert chosen.shares[1] * 80 * GB >= second.total
    # The surplus goes to both alike.
    assert abs((chosen.shares[0] * 80 - 17) - (chosen.shares[1] * 80 - 7)) < 1.0


def test_a_share_that_the_user_chose_stays(tmp_path):
    chosen = decide(Need(15 * GB, 2 * GB), Need(5 * GB, 2 * GB), 70 * GB, 80 * GB, "gpu")
    pair = chosen.shared((Profile(tmp_path, memory_share=0.25), Profile(tmp_path)))
    assert [profile.memory_share for profile in pair] == [0.25, chosen.shares[1]]
    alone = decide(Need(2 * GB, GB), Need(2 * GB, GB), 16 * GB, 24 * GB, "cpu")
    assert alone.shared((Profile(tmp_path), Profile(tmp_path)))[0].memory_share is None


def test_no_free_memory_at_all():
    assert decide(Need(GB, GB), Need(GB, GB), 0, 24 * GB, "gpu").order == "one at a time"


def test_a_pair_reckons_with_what_others_will_still_take(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(memory, "measure", lambda roots: Measured({"cpu": Room("CPU", 24 * GB, 12 * GB)}, {}))
    assert of_profiles(Profile(tiny), Profile(tiny)).order == "at once"
    job = ledger.new("quantize", "large", {"cpu": 9 * GB})
    assert ledger.claim(job, memory.measure([]))[0]
    assert of_profiles(Profile(tiny), Profile(tiny)).order == "one at a time"
