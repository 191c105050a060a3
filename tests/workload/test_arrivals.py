"""Arrivals are those of the process they are named for: seeds are fixed, and a wrong rate is found out."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from slipstream.workload import arrivals
from slipstream.workload.arrivals import (
    MOST_REQUESTS,
    Arrivals,
    BurstArrivals,
    ConstantArrivals,
    GammaArrivals,
    PoissonArrivals,
    RateArrivals,
)
from slipstream.workload.errors import ImpossibleWorkload

DAY = RateArrivals(
    ((100.0, 5.0), (400.0, 80.0), (400.0, 10.0), (700.0, 10.0), (900.0, 0.0), (950.0, 0.0), (950.0, 40.0))
)
BURSTS = BurstArrivals(per_s=10.0, burst_per_s=100.0, burst_s=5.0, every_s=30.0)
PROCESSES: list[Arrivals] = [
    ConstantArrivals(40.0),
    PoissonArrivals(40.0),
    GammaArrivals(40.0, 2.5),
    GammaArrivals(40.0, 0.3),
    BURSTS,
    DAY,
]


def rng(seed: int = 7) -> np.random.Generator:
    return np.random.default_rng(seed)


def rate_of(process: BurstArrivals | RateArrivals, at_s: NDArray[np.float64]) -> NDArray[np.float64]:
    if isinstance(process, BurstArrivals):
        quiet = at_s % process.every_s < process.every_s - process.burst_s
        return np.where(quiet, process.per_s, process.burst_per_s)
    points_s, per_s = np.array(process.rates).T
    rates: NDArray[np.float64] = np.interp(at_s, points_s, per_s)
    return rates


def expected_before(process: BurstArrivals | RateArrivals, at_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rate's integral, added up over a grid: no word of the inverse that the process itself uses."""
    width_s = 0.005
    middles = np.arange(0.0, float(at_s.max()) + width_s, width_s) + width_s / 2.0
    sums = np.concatenate(([0.0], np.cumsum(rate_of(process, middles) * width_s)))
    expected: NDArray[np.float64] = np.interp(at_s, np.arange(len(sums)) * width_s, sums)
    return expected


def test_constant_arrivals_are_evenly_spaced_from_zero_on() -> None:
    times = ConstantArrivals(4.0).times(3.0, None, rng())
    assert times.tolist() == (np.arange(12) / 4.0).tolist()
    # Also where one block of draws ends and the next begins.
    assert np.array_equal(ConstantArrivals(4.0).times(math.inf, 40_000, rng()), np.arange(40_000) / 4.0)


@pytest.mark.parametrize("per_s", [0.5, 80.0])
def test_gaps_of_poisson_arrivals_are_exponential(per_s: float) -> None:
    times = PoissonArrivals(per_s).times(math.inf, 20_000, rng())
    gaps = np.diff(times, prepend=0.0)
    assert stats.kstest(gaps, stats.expon(scale=1.0 / per_s).cdf).pvalue > 0.01
    assert stats.kstest(gaps, stats.expon(scale=1.08 / per_s).cdf).pvalue < 1e-6
    # One gap says nothing of the next: five standard errors of a correlation of none.
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 5.0 / math.sqrt(len(gaps))


def test_counts_of_poisson_arrivals_in_windows_are_poisson() -> None:
    counts = np.bincount(PoissonArrivals(10.0).times(4000.0, None, rng()).astype(int), minlength=4000)
    dispersion = counts.var() / counts.mean() * len(counts)
    assert 0.005 < stats.chi2(len(counts) - 1).cdf(dispersion) < 0.995


@pytest.mark.parametrize("cv", [0.3, 1.0, 2.5])
def test_gaps_of_gamma_arrivals_have_their_distribution(cv: float) -> None:
    gaps = np.diff(GammaArrivals(20.0, cv).times(math.inf, 20_000, rng()), prepend=0.0)
    assert stats.kstest(gaps, stats.gamma(cv**-2, scale=cv**2 / 20.0).cdf).pvalue > 0.01
    # Where most gaps are tiny, the form tells more than the rate.
    assert stats.kstest(gaps, stats.gamma(cv**-2, scale=cv**2 / 20.0 * 1.4).cdf).pvalue < 1e-6
    assert stats.kstest(gaps, stats.gamma((1.15 * cv) ** -2, scale=(1.15 * cv) ** 2 / 20.0).cdf).pvalue < 1e-6
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.04)


@pytest.mark.parametrize("process", [BURSTS, DAY], ids=["bursts", "rates"])
def test_a_rate_that_changes_gives_the_poisson_process_of_that_rate(process: BurstArrivals | RateArrivals) -> None:
    times = process.times(1500.0, None, rng())
    # In the time in which requests are expected at rate 1, gaps are exponential with mean 1.
    assert stats.kstest(np.diff(expected_before(process, times), prepend=0.0), stats.expon.cdf).pvalue > 0.01
    edges = np.linspace(0.0, 1500.0, 76)
    expected = np.diff(expected_before(process, edges))
    counts = np.histogram(times, edges)[0]
    some = expected > 20.0
    chi2 = float(((counts - expected)[some] ** 2 / expected[some]).sum())
    assert stats.chi2(int(some.sum())).sf(chi2) > 0.01
    wrong = float(((counts - 1.1 * expected)[some] ** 2 / (1.1 * expected[some])).sum())
    assert stats.chi2(int(some.sum())).sf(wrong) < 1e-6


def test_nothing_arrives_while_the_rate_is_zero() -> None:
    times = DAY.times(2000.0, None, rng())
    assert not ((times > 900.0) & (times < 950.0)).any()
    assert (times > 950.0).any()


def test_a_burst_ends_every_period() -> None:
    times = BurstArrivals(0.0, 200.0, 2.0, 10.0).times(40.0, None, rng())
    assert (times % 10.0 >= 8.0).all()
    assert set(times // 10.0) == {0.0, 1.0, 2.0, 3.0}


def test_rates_that_end_at_zero_end_the_arrivals() -> None:
    times = RateArrivals(((0.0, 10.0), (20.0, 0.0))).times(math.inf, 5000, rng())
    assert 60 < len(times) < 140
    assert times[-1] < 20.0


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: type(process).__name__)
def test_a_longer_time_begins_like_a_shorter_one(process: Arrivals) -> None:
    short, long = process.times(400.0, None, rng()), process.times(1400.0, None, rng())
    assert len(short) < len(long)
    assert np.array_equal(long[: len(short)], short)
    assert np.array_equal(process.times(math.inf, 1000, rng()), long[:1000])
    assert short.max() < 400.0 <= long[len(short)]


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: type(process).__name__)
def test_what_comes_first_ends_the_arrivals(process: Arrivals) -> None:
    assert len(process.times(1000.0, 3, rng())) == 3
    assert (process.times(20.0, 10_000_000, rng()) < 20.0).all()


@given(
    st.lists(st.tuples(st.floats(0.0, 100.0), st.floats(0.0, 50.0)), min_size=1, max_size=6),
    st.floats(0.01, 200.0),
    st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_arrivals_of_any_rates_rise_and_are_about_as_many_as_expected(
    points: list[tuple[float, float]], duration_s: float, seed: int
) -> None:
    rates = tuple((round(at_s, 3), round(per_s, 3)) for at_s, per_s in sorted(points))
    if not any(per_s for _, per_s in rates):
        return
    times = RateArrivals(rates).times(duration_s, None, rng(seed))
    assert (np.diff(times) >= 0.0).all()
    assert not len(times) or 0.0 <= times[0] <= times[-1] < duration_s
    knots = sorted({0.0, duration_s, *(at_s for at_s, _ in rates if at_s < duration_s)})
    middles = np.array([(a + b) / 2.0 for a, b in pairwise(knots)])
    points_s, per_s = np.array(rates).T
    expected = float((np.interp(middles, points_s, per_s) * np.diff(knots)).sum())
    assert abs(len(times) - expected) <= 6.0 * math.sqrt(expected) + 12.0


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ConstantArrivals(0.0), "constant arrivals: a rate is 1e-09 to 1e+09 a second, not 0"),
        (lambda: PoissonArrivals(-1.0), "poisson arrivals: a rate is"),
        (lambda: PoissonArrivals(math.nan), "not nan"),
        (lambda: GammaArrivals(math.inf, 1.0), "not inf"),
        (lambda: GammaArrivals(1.0, 0.0), "gamma arrivals have a cv from 0.01 to 100, not 0"),
        (lambda: BurstArrivals(-1.0, 1.0, 1.0, 2.0), "bursts: arrivals between them: a rate"),
        (lambda: BurstArrivals(0.0, 0.0, 1.0, 2.0), "bursts: a rate"),
        (lambda: BurstArrivals(1.0, 2.0, 2.0, 2.0), "not 2 s every 2 s"),
        (lambda: BurstArrivals(1.0, 2.0, 0.0, 2.0), "not 0 s every 2 s"),
        (lambda: RateArrivals(()), "at least one point"),
        (lambda: RateArrivals(((0.0, 0.0), (9.0, 0.0))), "above 0 somewhere"),
        (lambda: RateArrivals(((5.0, 1.0), (4.0, 1.0))), "rates: 4 s after 5 s"),
        (lambda: RateArrivals(((-1.0, 1.0),)), "rates: -1 s after 0 s"),
        (lambda: RateArrivals(((math.nan, 1.0),)), "rates: nan s"),
        (lambda: RateArrivals(((3.0, -1.0),)), "rates: at 3 s: a rate"),
        (lambda: PoissonArrivals(1.0).times(math.inf, None, rng()), "arrivals end after a time, or a number"),
        (lambda: PoissonArrivals(1.0).times(1.0, MOST_REQUESTS + 1, rng()), "arrivals end after a time, or a number"),
    ],
)
def test_what_can_not_arrive_is_a_sentence(make: object, sentence: str) -> None:
    assert callable(make)
    with pytest.raises(ImpossibleWorkload) as refused:
        make()
    assert sentence in str(refused.value)


def test_more_than_a_plan_can_hold_is_refused_while_it_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "MOST_REQUESTS", 50_000)
    with pytest.raises(ImpossibleWorkload, match="more than 50,000 requests would arrive in 1000 s"):
        PoissonArrivals(100.0).times(1000.0, None, rng())


def test_no_time_at_all_brings_no_request() -> None:
    assert len(PoissonArrivals(100.0).times(0.0, None, rng())) == 0
