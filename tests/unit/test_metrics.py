"""The /metrics page in its several moods (H42)."""

from dataclasses import replace
from pathlib import Path

import pytest

from workbench.engine.metrics import rates, read_engine
from workbench.engine_events import EngineSample
from workbench.errors import WorkbenchError

SPECULATION = """\
# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{{engine="0",model_name="m"}} {drafts}
vllm:spec_decode_num_drafts_created{{engine="0",model_name="m"}} 1.7e+09
vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="m"}} {drafted}
vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="m"}} {accepted}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="m",position="0"}} {first}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="m",position="1"}} {second}
vllm:generation_tokens_total{{engine="0",model_name="m"}} {generated}
"""


def page(drafts=0.0, drafted=0.0, accepted=0.0, first=0.0, second=0.0, generated=0.0) -> str:
    return SPECULATION.format(**locals())


def test_nothing_drafted_is_a_dash():
    zero = rates(read_engine(page(), 0.0), read_engine(page(), 1.0))
    same = rates(read_engine(page(9, 18, 7, 5, 2, 40), 0.0), read_engine(page(9, 18, 7, 5, 2, 40), 1.0))
    for now in (zero, same):
        assert (now.acceptance, now.mean_accepted, now.acceptance_by_position) == (None, None, ())
        assert now.tokens_per_s == 0.0


def test_rates_are_of_the_interval():
    now = rates(read_engine(page(10, 20, 10, 8, 2, 100), 5.0), read_engine(page(14, 28, 15, 11, 4, 109), 7.0))
    assert now.acceptance == 5 / 8
    assert now.mean_accepted == 1 + 5 / 4
    assert now.acceptance_by_position == (3 / 4, 2 / 4)
    assert now.tokens_per_s == 4.5


@pytest.mark.parametrize("steps", [255, 51])
def test_a_token_takes_its_part_of_a_step_that_brings_several(steps):
    """On an H200 vLLM told 34.5 ms between tokens for steps of five tokens; the client had one each 6.2 ms."""
    before = EngineSample(0.0, ttft=(0.5, 1.0), inter_token=(1.0, 200.0), generated_tokens=201.0)
    after = EngineSample(2.0, ttft=(0.6, 2.0), inter_token=(2.02, 200.0 + steps), generated_tokens=457.0)
    assert rates(before, after).inter_token_s == pytest.approx(0.004)
    assert rates(before, replace(after, generated_tokens=None)).inter_token_s == pytest.approx(1.02 / steps)
    assert rates(before, replace(before, at_s=1.0)).inter_token_s is None


def test_a_restart_makes_no_spike():
    before, after = read_engine(page(10, 20, 10, 8, 2, 100), 0.0), read_engine(page(), 1.0)
    assert rates(before, after).tokens_per_s is None
    assert rates(before, after).acceptance is None
    assert rates(after, read_engine(page(1, 2, 1, 1, 0, 3), 2.0)).tokens_per_s == 3.0


def test_the_same_moment_twice_divides_by_nothing():
    assert rates(read_engine(page(), 1.0), read_engine(page(1, 2, 1, 1, 0, 3), 1.0)).tokens_per_s is None


def test_old_names_are_understood():
    sample = read_engine('vllm:gpu_cache_usage_perc{model_name="m"} 0.37\n', 0.0)
    assert sample.kv_usage == 0.37
    old = "vllm:time_per_output_token_seconds_sum 2.0\nvllm:time_per_output_token_seconds_count 4.0\n"
    assert read_engine(old, 0.0).inter_token == (2.0, 4.0)
    assert read_engine("vllm:num_preemptions 3\n", 0.0).preemptions == 3


def test_of_two_names_for_one_figure_one_counts():
    both = "".join(
        f"vllm:{name}_sum 2.0\nvllm:{name}_count 4.0\n"
        for name in ("time_per_output_token_seconds", "inter_token_latency_seconds")
    )
    assert read_engine(both, 0.0).inter_token == (2.0, 4.0)


def test_several_engines_are_summed_and_the_fullest_cache_shown():
    text = "".join(
        f'vllm:generation_tokens_total{{engine="{n}"}} {10 + n}\n'
        f'vllm:kv_cache_usage_perc{{engine="{n}"}} {0.2 + n / 10}\n'
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="{n}",position="0"}} {n}\n'
        for n in range(2)
    )
    sample = read_engine(text, 0.0)
    assert (sample.generated_tokens, sample.kv_usage, sample.accepted_per_position) == (
        21.0,
        0.30000000000000004,
        (1.0,),
    )


def test_speculation_off_has_no_such_figures():
    sample = read_engine('vllm:num_requests_running{engine="0"} 1.0\nvllm:kv_cache_usage_perc{engine="0"} NaN\n', 0.0)
    assert (sample.drafts, sample.accepted_per_position, sample.kv_usage, sample.running) == (None, (), None, 1.0)


@pytest.mark.parametrize(
    "line",
    [
        "vllm:spec_decode_num_accepted_tokens_per_pos_total 1", "vllm:num_requests_running{bad",
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="a"} 1',
    ],
)  # fmt: skip
def test_a_page_that_something_between_wrote_anew_is_a_sentence(line):
    with pytest.raises(WorkbenchError, match="cannot be read"):
        read_engine(line + "\n", 1.0)


def test_the_cache_is_described():
    sample = read_engine(
        'vllm:cache_config_info{block_size="128",num_gpu_blocks="364",kv_cache_size_tokens="None",x="a b}"} 1.0\n', 0.0
    )
    assert (sample.kv_blocks, sample.kv_block_size, sample.kv_tokens) == (364, 128, None)


def test_latency_is_the_mean_of_what_finished():
    def at(total: float, count: int, at_s: float):
        return read_engine(
            f"vllm:time_to_first_token_seconds_sum {total}\nvllm:time_to_first_token_seconds_count {count}\n", at_s
        )

    assert rates(at(1.0, 2, 0), at(2.5, 5, 1)).ttft_s == 0.5
    assert rates(at(1.0, 2, 0), at(1.0, 2, 1)).ttft_s is None


def test_a_real_page_of_the_pinned_engine():
    """Taken from vLLM 0.32.0 with n-gram speculation, k = 4, after one reply of 53 tokens; comments cut."""
    sample = read_engine((Path(__file__).parent / "data" / "metrics_spec.txt").read_text(), 1.0)
    assert sample.drafts and sample.draft_tokens and sample.accepted_tokens
    assert len(sample.accepted_per_position) == 4
    assert sample.kv_blocks and sample.kv_block_size == 128 and sample.kv_tokens
    assert sample.ttft and sample.inter_token and sample.generated_tokens
    assert None not in (sample.running, sample.waiting, sample.kv_usage, sample.prompt_tokens, sample.preemptions)


QUEUED = """\
vllm:request_queue_time_seconds_sum{{engine="0"}} {seconds}
vllm:request_queue_time_seconds_count{{engine="0"}} {count}
vllm:prefix_cache_queries_total{{engine="0"}} {queries}
vllm:prefix_cache_hits_total{{engine="0"}} {hits}
vllm:num_preemptions_total{{engine="0"}} {preempted}
vllm:prompt_tokens_by_source_total{{engine="0",source="local_compute"}} 900.0
vllm:prompt_tokens_by_source_total{{engine="0",source="external_kv_transfer"}} {external}
vllm:iteration_tokens_total_sum{{engine="0"}} 50.0
vllm:iteration_tokens_total_count{{engine="0"}} {steps}
"""


def queued(seconds=0.0, count=0, queries=0, hits=0, preempted=0, external=0, steps=0, at_s=0.0):
    return read_engine(QUEUED.format(**locals()), at_s)


def test_queueing_cache_hits_preemptions_and_steps_are_of_the_interval():
    now = rates(queued(1.0, 2, 100, 50, 3, 8, 10), queued(2.5, 5, 200, 75, 4, 252, 30, at_s=2.0))
    assert (now.queue_s, now.prefix_hits, now.preempted, now.external_tokens, now.steps_per_s) == (
        0.5,
        0.25,
        1,
        244,
        10,
    )


def test_nothing_looked_up_and_nobody_queued_is_a_dash():
    now = rates(queued(), queued(at_s=1.0))
    assert (now.queue_s, now.prefix_hits, now.preempted, now.steps_per_s) == (None, None, 0, 0)
    assert rates(queued(1.0, 2, 100, 50, 3, 8, 10), queued(at_s=1.0)).preempted is None, "a restart is a gap"


def test_the_older_name_of_what_came_from_elsewhere():
    assert read_engine("vllm:external_prefix_cache_hits_total 7\n", 0.0).external_tokens == 7
    assert read_engine("vllm:prefix_cache_hits_total 7\n", 0.0).external_tokens is None
