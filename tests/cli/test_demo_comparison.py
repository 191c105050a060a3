"""The two pools are compared within a category and a load, and nothing is called different that may be chance."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from slipstream.cli.demo_comparison import Stratum, by_category_and_pool, compare, latency_rows, ranked
from slipstream.core.latency import Latency
from slipstream.load import LoadResult, PlannedRequest

REQUEST = PlannedRequest("m", (), 64)
times = st.lists(st.integers(min_value=1, max_value=20).map(float), min_size=0, max_size=8)
groups = st.lists(st.tuples(times, times), max_size=5)


def result(category: str, pool: str, ttft: float | None, tpot: float | None = 0.01, concurrency: int = 1) -> LoadResult:
    return LoadResult(
        REQUEST, concurrency, 200, category=category, pool=pool, latency=Latency(ttft, tpot, 1.0), output_tokens=10
    )


@given(groups)
def test_swapping_the_pools_turns_the_verdict_round(strata: list[Stratum]) -> None:
    forth, back = ranked(strata), ranked([(standard, speculative) for speculative, standard in strata])
    assert forth.pairs == back.pairs
    if forth.faster_share is None or back.faster_share is None:
        assert forth.pairs == 0
        return
    assert forth.faster_share + back.faster_share == pytest.approx(1.0)
    assert (forth.z is None) == (back.z is None)
    if forth.z is not None and back.z is not None:
        assert forth.z == pytest.approx(-back.z)


@given(times.filter(bool), times.filter(bool))
def test_one_stratum_is_the_test_of_mann_and_whitney(speculative: list[float], standard: list[float]) -> None:
    ours = ranked([(speculative, standard)])
    if ours.z is None:
        assert len({*speculative, *standard}) == 1
        return
    truth = mannwhitneyu(speculative, standard, use_continuity=False, method="asymptotic")
    assert math.erfc(abs(ours.z) / math.sqrt(2)) == pytest.approx(truth.pvalue)


def test_a_mix_of_categories_is_no_effect() -> None:
    quick, slow = (1.0, 2.0), (11.0, 12.0)
    mixed = ranked([(quick, quick), (quick, quick), (quick, slow[:0]), (slow, slow)])
    assert (mixed.faster_share, mixed.z, mixed.verdict) == (0.5, 0.0, "no clear difference")


def test_few_pairs_are_not_called_different() -> None:
    assert ranked([((1.0,), (2.0,))]).verdict == "no clear difference"


@pytest.mark.parametrize(("speculative", "standard", "verdict"), [(1.0, 2.0, "faster"), (2.0, 1.0, "slower")])
def test_a_difference_in_every_stratum_is_clear(speculative: float, standard: float, verdict: str) -> None:
    strata: list[Stratum] = [((speculative, speculative + 0.1), (standard, standard + 0.1))] * 6
    assert ranked(strata).verdict == verdict


def test_nothing_to_compare_has_no_share() -> None:
    assert ranked([((1.0,), ())]).faster_share is None
    assert ranked([]).verdict == "no clear difference"


def test_requests_meet_only_those_of_their_category_and_concurrency() -> None:
    results = [
        result("code", "speculative", 0.1, 0.01),
        result("code", "standard", 0.2, 0.02),
        result("code", "standard", 0.05, 0.005, concurrency=8),
        result("chat", "standard", 0.01),
        result("chat", "speculative", None, None),
        LoadResult(REQUEST, 1, 503, "full", category="code", pool="standard"),
    ]
    ttft, tpot = compare(results)
    assert (ttft.pairs, ttft.faster_share) == (1, 1.0)
    assert (tpot.pairs, tpot.faster_share) == (1, 1.0)


def test_medians_by_category_and_pool_are_in_milliseconds_and_unknown_is_none() -> None:
    results = [
        result("code", "standard", 0.1, 0.02),
        result("code", "standard", 0.3, None),
        result("chat", "speculative", None, None),
        LoadResult(REQUEST, 1, None, "the connection failed"),
    ]
    medians = by_category_and_pool(results)
    assert medians["code"]["standard"].ttft_ms == pytest.approx(200.0)
    assert medians["code"]["standard"].tpot_ms == pytest.approx(20.0)
    assert latency_rows(results)[0] == {
        "category": "chat",
        "pool": "speculative",
        "requests": 1,
        "ttft_ms": None,
        "tpot_ms": None,
    }
