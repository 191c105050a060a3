"""What a load was worth, reckoned by hand from its requests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from made_loads import load_of, result_of
from slipstream.bench.measures import attainment_of, measures_of, tokens_per_s_of
from slipstream.bench.samples import joined, samples_of
from slipstream.core.goodput import Target

TARGET = Target(ttft_s=0.2, tpot_s=0.15, e2e_s=5.0)


def test_goodput_counts_who_was_no_warm_up_and_met_every_target() -> None:
    """By row: warm-up; good; first token late; tokens slow; end late; failed; an answer of one token."""
    results = [
        result_of(0, 0.0),
        result_of(1, 1.0),
        result_of(2, 2.0, ttft_s=0.3),
        result_of(3, 3.0, e2e_s=2.1),
        result_of(4, 4.0, e2e_s=6.0, tokens=101),
        result_of(5, 5.0, error="status 503"),
        result_of(6, 6.0, ttft_s=0.1, e2e_s=0.1, tokens=1),
    ]
    samples = samples_of(load_of(results, warm_up=1, end_s=7.0), TARGET)
    assert samples.good.tolist() == [True, True, False, False, False, False, True]
    found = measures_of(samples)
    assert (found.requests.offered, found.requests.finished, found.requests.failed) == (6, 5, 1)
    assert found.window_s == 6.0
    assert found.requests.attainment.value == pytest.approx(2 / 6)
    assert found.requests.goodput.value == pytest.approx(2 / 6)
    assert found.requests.e2e.mean.value == pytest.approx((1.1 + 1.1 + 2.1 + 6.0 + 0.1) / 5)
    assert found.requests.tpot.p50.value == pytest.approx((0.1 + 0.08) / 2)
    assert samples.errors == {"status 503": 1}
    assert found.prompt_tokens == 8.0
    assert found.output_tokens == pytest.approx((11 * 4 + 101 + 1) / 6)
    assert not found.fell_behind


def test_tokens_count_where_they_come_whoever_asked_for_them() -> None:
    """Eleven tokens from 0.1 s to 1.1 s each; the window is from 0.6 s on: half of the first, all of the others."""
    results = [result_of(0, 0.0), result_of(1, 0.6), result_of(2, 1.0)]
    samples = samples_of(load_of(results, warm_up=1, end_s=4.6), Target())
    assert tokens_per_s_of(samples).value == pytest.approx((5.0 + 11.0 + 11.0) / 4.0)
    assert measures_of(samples).requests_per_s.value == pytest.approx(3 / 4.0)


def test_what_nobody_says_is_not_known() -> None:
    samples = samples_of(load_of([result_of(0, 0.0, tokens=None)], end_s=0.0), TARGET)
    found = measures_of(samples)
    assert (found.output_tokens, found.tokens_per_s.value, found.requests.goodput.value) == (None, None, None)
    assert found.requests.attainment.value == 0.0  # a target that can not be judged is not met
    assert tokens_per_s_of(samples_of(load_of([result_of(0, 0.0, tokens=None)]), TARGET)).value is None


def test_gaps_between_chunks_belong_to_their_request() -> None:
    results = [result_of(0, 0.0, chunk_gaps=[9.0]), result_of(1, 1.0, chunk_gaps=[0.1, 0.3])]
    found = measures_of(samples_of(load_of(results, warm_up=1), TARGET))
    assert found.requests.itl.mean.value == pytest.approx(0.2)


def test_a_generator_that_fell_behind_is_told() -> None:
    results = [result_of(place, float(place), late_s=0.02 if place % 10 == 0 else 0.0) for place in range(50)]
    found = measures_of(samples_of(load_of(results), TARGET))
    assert found.late_p50_s == 0.0
    assert found.late_p99_s == pytest.approx(0.02)
    assert found.fell_behind


def test_several_categories_are_told_apart() -> None:
    results = [
        result_of(place, float(place), label="code" if place % 2 else "chat", ttft_s=0.1 + place % 2)
        for place in range(20)
    ]
    found = measures_of(samples_of(load_of(results), TARGET))
    assert found.categories.keys() == {"code", "chat"}
    assert (found.categories["code"].attainment.value, found.categories["chat"].attainment.value) == (0.0, 1.0)
    assert found.categories["chat"].offered == 10
    one = measures_of(samples_of(load_of(results[::2]), TARGET))
    assert one.categories == {}


def test_a_load_of_which_nothing_ended_is_worth_nothing() -> None:
    empty = load_of([result_of(0, 0.0)])
    samples = samples_of(
        type(empty)(**{name: getattr(empty, name) for name in empty.__slots__} | {"results": []}), TARGET
    )
    found = measures_of(samples)
    assert (found.requests.offered, found.requests.attainment.value, found.fell_behind) == (0, None, False)


def test_requests_that_fail_together_count_as_fewer() -> None:
    block = np.arange(400) // 40
    scattered = np.arange(400) % 10 != 0
    together = block != 3
    wide, narrow = attainment_of(together, block).interval, attainment_of(scattered, block).interval
    assert wide is not None
    assert narrow is not None
    assert attainment_of(together, block).value == attainment_of(scattered, block).value == 0.9
    assert wide[1] - wide[0] > 3 * (narrow[1] - narrow[0])


@settings(max_examples=40)
@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_attainment_lies_in_its_interval(good: list[bool]) -> None:
    found = attainment_of(np.array(good), np.arange(len(good)) // 3)
    assert found.value is not None
    assert found.interval is not None
    assert 0.0 <= found.interval[0] <= found.value + 1e-12
    assert found.value - 1e-12 <= found.interval[1] <= 1.0


def test_joined_loads_follow_one_another() -> None:
    first = samples_of(
        load_of([result_of(0, 0.0, chunk_gaps=[0.5]), result_of(1, 1.0, error="lost")], end_s=2.0), TARGET
    )
    second = samples_of(
        load_of([result_of(0, 0.0), result_of(1, 3.0, chunk_gaps=[0.7, 0.8])], warm_up=1, end_s=4.0), TARGET
    )
    both = joined([first, second])
    assert len(both) == 4
    assert both.window_s == 3.0
    assert both.counted.tolist() == [True, True, False, True]
    assert (np.diff(both.begin_s) > 0.0).all()
    assert np.array(both.windows_s) == pytest.approx(np.array([(0.0, 2.0), (2.1 + 3.0, 2.1 + 4.0)]))
    assert both.gap_row.tolist() == [0, 3, 3]
    assert both.errors == {"lost": 1}
    assert measures_of(both).requests.offered == 3
