"""Who met the targets, and that simulator and bench mean the same by it; how wide intervals are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from made_runs import run_of
from slipstream.core.goodput import Target, meets
from slipstream.core.interval import interval_of, interval_of_share, mean_of
from slipstream.core.latency import Latency, latency_of
from slipstream.core.request import TrafficClass
from slipstream.sim.fate import Fate
from slipstream.sim.measures import latencies

ALL = Target(ttft_s=0.5, tpot_s=0.05, e2e_s=3.0)
limits = st.none() | st.floats(0.01, 3.0)
LATENCIES = st.tuples(st.floats(0.0, 2.0), st.floats(0.0, 2.0), st.integers(1, 40))


@pytest.mark.parametrize(
    ("latency", "tokens", "good"),
    [
        (Latency(0.5, 0.05, 3.0), 10, True),
        (Latency(0.51, 0.05, 3.0), 10, False),
        (Latency(0.5, 0.051, 3.0), 10, False),
        (Latency(0.5, 0.05, 3.1), 10, False),
        (Latency(None, 0.05, 3.0), 10, False),
        (Latency(0.5, None, 3.0), None, False),
        (Latency(0.5, None, 3.0), 1, True),
    ],
    ids=["at every limit", "ttft", "tpot", "e2e", "unknown ttft", "unknown tokens", "one token has no tpot"],
)
def test_a_request_is_good_when_all_that_has_a_target_is_known_and_within(
    latency: Latency, tokens: int | None, good: bool
) -> None:
    assert meets(ALL, latency, tokens) is good


def test_without_targets_every_finished_request_is_good() -> None:
    assert meets(Target(), Latency(None, None, 1e9), None)


@settings(max_examples=60)
@given(st.lists(LATENCIES, min_size=1, max_size=8), limits, limits, limits)
def test_the_simulator_finds_the_same_requests_good(
    requests: list[tuple[float, float, int]], ttft_s: float | None, tpot_s: float | None, e2e_s: float | None
) -> None:
    target = Target(ttft_s, tpot_s, e2e_s)
    first = [ttft for ttft, _, _ in requests]
    ended = [ttft + more for ttft, more, _ in requests]
    run = run_of(
        arrival_s=[0.0] * len(requests),
        first_token_s=first,
        ended_s=ended,
        output_tokens=[tokens for _, _, tokens in requests],
        fate=[Fate.FINISHED] * len(requests),
    )
    simulated = latencies(run, {TrafficClass.INTERACTIVE: target}).good.tolist()
    assert simulated == [
        meets(target, latency_of(0.0, begin, end, tokens), tokens)
        for begin, end, (_, _, tokens) in zip(first, ended, requests, strict=True)
    ]


def test_wilsons_interval_is_that_of_the_tables() -> None:
    """R. Newcombe, Statistics in Medicine 17, 1998, table I, method 3: 81 of 263, 15 of 148, 0 of 20, 1 of 29."""
    for hits, count, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)):
        found = interval_of_share(hits / count, count)
        assert found is not None
        assert found == pytest.approx((low, high), abs=5e-5)
    assert interval_of_share(0.5, 0.0) is None


@given(st.floats(0.0, 1.0), st.floats(0.5, 1e6))
def test_an_interval_of_a_share_holds_it_and_stays_a_share(share: float, count: float) -> None:
    found = interval_of_share(share, count)
    assert found is not None
    assert 0.0 <= found[0] <= share + 1e-9
    assert share - 1e-9 <= found[1] <= 1.0


def test_too_few_values_have_no_interval() -> None:
    assert (mean_of([]), interval_of([])) == (None, None)
    assert (mean_of([4.0]), interval_of([4.0])) == (4.0, None)
    found = interval_of([1.0, 3.0])
    assert found is not None
    assert np.mean(found) == pytest.approx(2.0)
