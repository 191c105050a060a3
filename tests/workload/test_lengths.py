"""Lengths have the mean, the quantiles and the ends that they are asked for. Seeds are fixed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from slipstream.workload.errors import ImpossibleWorkload
from slipstream.workload.lengths import (
    MOST_P95_OVER_MEAN,
    MOST_TOKENS,
    ExponentialLengths,
    FixedLengths,
    Lengths,
    ListedLengths,
    LognormalLengths,
    UniformLengths,
)

COUNT = 40_000


def drawn(lengths: Lengths, count: int = COUNT) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return lengths.draw(count, np.random.default_rng(11))


@pytest.mark.parametrize(
    ("lengths", "mean"),
    [
        (FixedLengths(77), 77.0),
        (UniformLengths(10, 31), 20.5),
        (ExponentialLengths(1.0), 1.0),
        (ExponentialLengths(1.7), 1.7),
        (ExponentialLengths(250.0), 250.0),
        (LognormalLengths(211.0, 560.0), 211.0),
        (LognormalLengths(12_035.0, 40_000.0), 12_035.0),
        (ListedLengths((1, 2, 9)), 4.0),
    ],
    ids=str,
)
def test_the_mean_is_as_asked_within_four_standard_errors(lengths: Lengths, mean: float) -> None:
    tokens = drawn(lengths)
    error = float(tokens.std()) / math.sqrt(COUNT)
    assert abs(float(tokens.mean()) - mean) <= 4.0 * error
    assert 4.0 * error < 0.05 * mean, "the error is so small that a mean that is a twentieth off is found"


def test_fixed_lengths_are_all_the_same() -> None:
    assert set(drawn(FixedLengths(5), 100)) == {5}


def test_uniform_lengths_are_every_number_as_often_both_ends_included() -> None:
    counts = np.bincount(drawn(UniformLengths(3, 12)))[3:]
    assert len(counts) == 10
    assert stats.chisquare(counts).pvalue > 0.01


def test_exponential_lengths_are_the_exponential_distribution_in_whole_numbers() -> None:
    tokens = drawn(ExponentialLengths(400.0))
    # Moved back by a number within the token, they are exponential but for the last thousandth.
    spread = tokens - np.random.default_rng(3).random(COUNT)
    assert stats.kstest(spread, stats.expon(scale=400.0).cdf).pvalue > 0.01
    assert stats.kstest(spread, stats.expon(scale=420.0).cdf).pvalue < 1e-6


def test_lognormal_lengths_have_their_95th_percentile_and_their_shape() -> None:
    tokens = drawn(LognormalLengths(1000.0, 2500.0))
    assert float(np.quantile(tokens, 0.95)) == pytest.approx(2500.0, rel=0.03)
    logarithms = np.log(tokens)
    assert stats.kstest((logarithms - logarithms.mean()) / logarithms.std(), stats.norm.cdf).pvalue > 0.01


def test_lognormal_lengths_of_no_spread_are_their_mean() -> None:
    assert set(drawn(LognormalLengths(50.0, 50.0), 100)) == {50}


def test_lognormal_lengths_at_the_largest_ratio_keep_the_95th_percentile() -> None:
    tokens = drawn(LognormalLengths(1000.0, 1000.0 * MOST_P95_OVER_MEAN))
    assert float(np.quantile(tokens, 0.95)) == pytest.approx(1000.0 * MOST_P95_OVER_MEAN, rel=0.06)


@pytest.mark.parametrize(
    ("whole", "cut"),
    [
        (ExponentialLengths(300.0), ExponentialLengths(300.0, maximum=600)),
        (LognormalLengths(300.0, 700.0), LognormalLengths(300.0, 700.0, maximum=600)),
    ],
    ids=["exponential", "lognormal"],
)
def test_a_maximum_cuts_and_leaves_what_is_below_it(whole: Lengths, cut: Lengths) -> None:
    assert np.array_equal(drawn(cut), np.minimum(drawn(whole), 600))
    assert drawn(whole).max() > 600


def test_listed_lengths_are_those_of_the_list_each_as_often() -> None:
    values, counts = np.unique(drawn(ListedLengths((7, 100, 7, 3))), return_counts=True)
    assert values.tolist() == [3, 7, 100]
    assert stats.chisquare(counts, np.array([1, 2, 1]) * COUNT / 4).pvalue > 0.01


@given(
    st.one_of(
        st.builds(FixedLengths, st.integers(1, MOST_TOKENS)),
        st.builds(ExponentialLengths, st.floats(1.0, MOST_TOKENS)),
        st.floats(1.0, 1e6).flatmap(
            lambda mean: st.builds(
                LognormalLengths,
                st.just(mean),
                st.floats(mean, mean * 3.8),
                st.integers(math.ceil(mean), MOST_TOKENS),
            )
        ),
    ),
    st.integers(0, 300),
)
@settings(max_examples=60, deadline=None)
def test_all_lengths_are_whole_from_one_to_the_maximum(lengths: Lengths, count: int) -> None:
    tokens = lengths.draw(count, np.random.default_rng(0))
    assert len(tokens) == count
    assert tokens.dtype == np.int64
    assert ((tokens >= 1) & (tokens <= getattr(lengths, "maximum", MOST_TOKENS))).all()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: FixedLengths(0), "a fixed length is 1 to 100,000,000 tokens, not 0"),
        (lambda: UniformLengths(0, 5), "the least length is"),
        (lambda: UniformLengths(1, MOST_TOKENS + 1), "the largest length is"),
        (lambda: UniformLengths(6, 5), "uniform lengths rise, not from 6 to 5"),
        (lambda: ExponentialLengths(0.5), "a mean length is"),
        (lambda: ExponentialLengths(math.nan), "not nan"),
        (lambda: ExponentialLengths(100.0, maximum=99), "at least their mean of 100, not 99"),
        (lambda: LognormalLengths(100.0, 99.0), "1 to 3.87 times their mean, not 99 at a mean of 100"),
        (lambda: LognormalLengths(100.0, 400.0), "not 400 at a mean of 100"),
        (lambda: LognormalLengths(100.0, math.inf), "a 95th percentile is"),
        (lambda: LognormalLengths(100.0, 200.0, maximum=0), "a maximum is"),
        (lambda: ListedLengths(()), "at least one"),
        (lambda: ListedLengths((3, 0)), "a length of the list is"),
    ],
)
def test_lengths_that_can_not_be_are_a_sentence(make: object, sentence: str) -> None:
    assert callable(make)
    with pytest.raises(ImpossibleWorkload) as refused:
        make()
    assert sentence in str(refused.value)
