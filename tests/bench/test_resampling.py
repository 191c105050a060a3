"""Intervals hold the truth about as often as they say, also where requests are alike because they queued together."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from slipstream.bench.resampling import FEWEST, Distribution, blocks_of, difference, distribution, given_blocks

TRIALS = 50


def whole(values: NDArray[np.float64]) -> Distribution:
    return distribution(values, np.arange(len(values)), blocks_of(len(values)))


def holds(distribution: Distribution, name: str, truth: float) -> bool:
    ends = getattr(distribution, name).interval
    return ends is not None and bool(ends[0] <= truth <= ends[1])


def alike(rng: np.random.Generator, count: int, kept: float) -> NDArray[np.float64]:
    """Standard normal values, each keeping a share of the one before, as waiting times do."""
    values = rng.standard_normal(count)
    for place in range(1, count):
        values[place] = kept * values[place - 1] + np.sqrt(1.0 - kept**2) * values[place]
    return values


def test_of_independent_values() -> None:
    rng = np.random.default_rng(1)
    found = [whole(rng.standard_exponential(300)) for _ in range(TRIALS)]
    for name, truth in (("mean", 1.0), ("p50", np.log(2.0)), ("p95", np.log(20.0))):
        assert sum(holds(one, name, truth) for one in found) / TRIALS >= 0.88, name


def test_values_that_are_alike_do_not_count_as_many() -> None:
    rng = np.random.default_rng(2)
    found = [whole(alike(rng, 1000, 0.8)) for _ in range(TRIALS)]
    assert sum(holds(one, "mean", 0.0) for one in found) / TRIALS >= 0.85
    widths = [one.mean.interval[1] - one.mean.interval[0] for one in found if one.mean.interval is not None]
    assert np.mean(widths) > 2.0 * 2.0 * 1.96 / np.sqrt(1000)  # those of as many independent ones, twice


def test_few_blocks_give_wider_intervals() -> None:
    values = np.random.default_rng(3).standard_normal(600)
    rows = np.arange(600)
    few = distribution(values, rows, given_blocks(rows // 150, 4)).mean.interval
    assert few is not None
    held = 0
    rng = np.random.default_rng(4)
    for _ in range(TRIALS):
        held += holds(distribution(rng.standard_normal(60), rows[:60], given_blocks(rows[:60] // 10, 6)), "mean", 0.0)
    assert held / TRIALS >= 0.88


def test_figures_are_those_of_the_values_known() -> None:
    values = np.array([np.nan, *range(1, 101)], float)
    found = whole(values)
    assert (found.mean.value, found.p50.value, found.p95.value, found.p99.value) == pytest.approx(
        (50.5, 50.5, 95.05, 99.01)
    )
    assert whole(np.array([np.nan])) == Distribution()
    few = whole(np.arange(FEWEST - 1.0))
    assert (few.mean.value, few.mean.interval) == (4.0, None)


def test_the_same_values_are_not_uncertain() -> None:
    found = whole(np.full(20, 7.0))
    assert (found.p95.value, found.p95.interval) == (7.0, (7.0, 7.0))


def test_more_values_than_bins_are_resampled_as_well() -> None:
    values = np.random.default_rng(5).standard_exponential(40_000)
    found = whole(values)
    assert holds(found, "p99", float(np.log(100.0)))
    assert found.p99.interval is not None
    assert found.p99.interval[1] - found.p99.interval[0] < 0.5


def test_one_block_has_no_interval() -> None:
    rows = np.arange(50)
    assert distribution(np.arange(50.0), rows, given_blocks(np.zeros(50, np.int64), 1)).mean.interval is None


def test_what_a_block_does_to_both_cancels() -> None:
    """Blocks differ by ten and the two by one: unpaired, nothing could be told."""
    rng = np.random.default_rng(6)
    rows = np.arange(400)
    blocks = given_blocks(rows // 40, 10)
    level = np.repeat(rng.standard_normal(10) * 10.0, 40)
    ours, theirs = level + rng.standard_normal(400), level + 1.0 + rng.standard_normal(400)
    found = difference(ours, rows, blocks, theirs, rows, blocks).mean
    assert found.value == pytest.approx(1.0, abs=0.3)
    assert found.interval is not None
    assert 0.5 < found.interval[0] < found.interval[1] < 1.5


def test_differences_that_can_not_be_told() -> None:
    rows, blocks = np.arange(20), blocks_of(20)
    nothing = np.full(20, np.nan)
    assert difference(nothing, rows, blocks, np.ones(20), rows, blocks) == Distribution()
    few = difference(np.ones(3), rows[:3], blocks, np.full(20, 3.0), rows, blocks)
    assert (few.mean.value, few.mean.interval) == (2.0, None)
    with pytest.raises(ValueError, match="20 blocks can not be paired with 4"):
        difference(np.ones(20), rows, blocks, np.ones(4), rows[:4], blocks_of(4))
