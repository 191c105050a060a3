"""A median that forgets, in bounded memory, with an interval that covers."""

from __future__ import annotations

from random import Random
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.core.acceptance.fading_median import FadingMedian, bin_of

VALUES = st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=60)


def of(values: list[float], weight: float = 1.0) -> FadingMedian:
    found = FadingMedian()
    for value in values:
        found.add(bin_of(value), weight)
    return found


@settings(max_examples=50)
@given(values=VALUES)
def test_it_is_the_median_to_within_a_bin(values: list[float]) -> None:
    found = of(values).value
    assert found is not None
    ordered = sorted(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    assert low / 1.021 <= found <= high * 1.021


@settings(max_examples=50)
@given(values=VALUES, odd=st.lists(st.sampled_from([0.0, 1e-9, 1e12]), max_size=2))
def test_odd_values_move_it_no_further_than_to_a_neighbour(values: list[float], odd: list[float]) -> None:
    found = of([*values, *odd]).value
    assert found is not None
    if len(odd) < len(values):
        assert min(values) / 1.021 <= found <= max(values) * 1.021


@settings(max_examples=30)
@given(values=VALUES, factor=st.integers(-20, 20).map(lambda power: 2.0**power))
def test_one_factor_for_all_weights_changes_nothing(values: list[float], factor: float) -> None:
    plain, scaled, merged = of(values), of(values), FadingMedian()
    scaled.scale(factor)
    merged.merge(plain, factor)
    for other in (scaled, merged):
        assert other.count == plain.count
        assert other.value == pytest.approx(plain.value, rel=1e-6)
        assert other.effective == pytest.approx(len(values))


def test_nothing_is_known_of_nothing_and_no_interval_of_five() -> None:
    nothing = FadingMedian()
    assert (nothing.value, nothing.interval, nothing.effective, nothing.count) == (None, None, 0.0, 0)
    assert of([1.0] * 5).interval is None
    assert of([1.0] * 6).interval == pytest.approx((1.0, 1.0), rel=0.021)


def test_what_is_new_outweighs_what_is_old() -> None:
    found = of([1.0] * 100)
    for _ in range(30):
        found.add(bin_of(2.0), 8.0)
    assert found.value == pytest.approx(2.0, rel=0.021)
    assert found.effective < 130


def test_its_interval_holds_the_true_median_as_often_as_it_says() -> None:
    draw = Random(5)
    held = 0
    for _ in range(400):
        interval = of([draw.lognormvariate(0.0, 0.5) for _ in range(50)]).interval
        assert interval is not None
        held += interval[0] <= 1.0 <= interval[1]
    assert 0.92 <= held / 400 <= 0.99


def test_its_memory_is_bounded_and_what_is_beyond_its_bins_belongs_to_the_last() -> None:
    draw = Random(1)
    found = of([10.0 ** draw.uniform(-8.0, 9.0) for _ in range(5_000)])
    assert len(found._weights) <= 1_400
    assert of([1e30]).value == pytest.approx(1e7, rel=0.03)
    assert of([0.0]).value == pytest.approx(1e-5, rel=0.03)
    assert median([1.0, 2.0, 3.0]) == pytest.approx(of([1.0, 2.0, 3.0]).value, rel=0.021)
