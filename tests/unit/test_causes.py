"""Each row of the table of refusals against the engine's own words, and a healthy log against all of them."""

import json
import re
from pathlib import Path

import pytest

from workbench.engine.causes import cause, cause_line, known
from workbench.engine.refusals import ROWS

CORE = "(EngineCore pid=8602) ERROR 11-29 17:16:08 [core.py:1301] "
API = "(APIServer pid=8423) "
PYDANTIC = (
    " [type=value_error, input_value=ArgsKwargs((), {'model': ...nderer_num_workers': 1}), input_type=ArgsKwargs]"
)
HEALTHY = Path(__file__).parent / "data" / "healthy_engine.log"
KILLED_CORE = Path(__file__).parent / "data" / "killed_core.log"  # kill -9 of the core while it answered, vLLM 0.32

# Whole logs are long and hold names and paths: what is kept of each is what it ends with.
REFUSALS = json.loads((Path(__file__).parent / "data" / "refusals.json").read_text(encoding="utf-8"))
SOURCE = re.compile(
    r"made here with vLLM [\d.]+ on the CPU: .+|https://github\.com/[\w.-]+/[\w.-]+/(?:issues|pull)/\d+"
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal["source"].removeprefix("https://github.com/"))
def test_a_refusal_is_a_sentence_with_its_figures(refusal):
    found = known(["something before", *refusal["log"], CORE + "RuntimeError: Engine core initialization failed."])
    assert found is not None
    assert {name: found.sentence.values[name] for name in refusal["values"]} == refusal["values"]
    assert "{" not in str(found.sentence) + str(found.hint)


def test_every_row_rests_on_a_log_made_here_or_on_a_thread():
    assert [each["source"] for each in REFUSALS if not SOURCE.fullmatch(each["source"])] == []
    told = [known(each["log"]) for each in REFUSALS]
    met = {(found.sentence.template, found.hint.template) for found in told}
    assert met == {(row.sentence.template, row.hint.template) for row in ROWS}
    patterns = [row.pattern for row in ROWS]
    unmet = [each.pattern for each in patterns if not any(each.search("\n".join(row["log"])) for row in REFUSALS)]
    assert unmet == []


def test_a_refusal_that_the_log_wrapped_is_known():
    text, values = REFUSALS[0]["log"][0], REFUSALS[0]["values"]
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
    assert "from elsewhere" in cause([], 143).sentence.template
    assert "itself" in cause([], 0).sentence.template
    assert cause([], 3).sentence.values == {"code": 3}


def test_an_engine_that_died_under_its_server_is_told_as_that():
    killed = KILLED_CORE.read_text(encoding="utf-8").splitlines()
    assert len(killed) > 30 and known(killed) is None
    for code in (None, 0, 1):
        assert "core was killed" in cause(killed, code).sentence.template
    assert "core was killed" in cause([], None).sentence.template
    broken = cause([CORE + "ValueError: the tensor is empty.", *killed], None)
    assert str(broken.sentence) == "The engine died: ValueError: the tensor is empty."
    assert known([CORE + "torch.OutOfMemoryError: CUDA out of memory.", *killed]) == cause(
        [CORE + "torch.OutOfMemoryError: CUDA out of memory.", *killed], None
    )


def test_an_engine_that_failed_did_not_end_by_itself_though_its_server_ended_well():
    dead = "EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause."
    found = cause([CORE + "ValueError: the tensor is empty.", API + dead], 0)
    assert str(found.sentence) == "The engine died: ValueError: the tensor is empty."
