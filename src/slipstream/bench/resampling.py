"""How far figures can be trusted, from one run: requests that queued together are one observation, not many.

Rows in the order of arrival are cut into blocks of consecutive ones, and blocks are drawn anew with replacement (the
block bootstrap: H. Künsch, Annals of Statistics 17, 1989; blocks that do not overlap: E. Carlstein, ibid. 14, 1986).
An interval holds the middle 95 % of a figure's draws, and more than that where blocks are few, by as much as Student's
t is wider than the normal distribution (the expanded percentile interval: T. Hesterberg, The American Statistician 69,
2015).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import erfc, sqrt

import numpy as np
from numpy.typing import NDArray

from slipstream.core.acceptance.student import t_quantile_97_5
from slipstream.core.interval import Interval

__all__ = ["FEWEST", "Blocks", "Distribution", "Figure", "blocks_of", "difference", "distribution", "given_blocks"]

MOST_BLOCKS = 64
DRAWS = 1000
BINS = 1024
"""A column that is longer is put into so many bins of equal counts before it is drawn from: ends of intervals are right
to 1/1024 of a rank.
"""
FEWEST = 10
"""Values below which an interval would mean nothing."""
PERCENTILES = (50.0, 95.0, 99.0)

Column = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure and its 95 % interval; ``None`` where nothing, or too little, is known."""

    value: float | None = None
    interval: Interval | None = None


@dataclass(frozen=True, slots=True)
class Distribution:
    """Of the values known. Percentiles lie on the line between two values."""

    mean: Figure = Figure()
    p50: Figure = Figure()
    p95: Figure = Figure()
    p99: Figure = Figure()


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The block of each row, from 0 to ``count - 1``, and how often each draw (a row of ``weights``) has each block."""

    of_row: Numbers
    count: int
    weights: Column


def blocks_of(rows: int) -> Blocks:
    """Rows cut into blocks as equal as can be, `MOST_BLOCKS` where there are as many rows."""
    count = max(1, min(rows, MOST_BLOCKS))
    return given_blocks(np.arange(rows, dtype=np.int64) * count // max(rows, 1), count)


def given_blocks(of_row: Numbers, count: int) -> Blocks:
    """Blocks as they are: that of each row, from 0 to ``count - 1``."""
    return Blocks(of_row, count, _draws(count))


def distribution(values: Column, rows: Numbers, blocks: Blocks) -> Distribution:
    """Of the values of ``rows``, one each; NaN is left out."""
    known = ~np.isnan(values)
    values, rows = values[known], rows[known]
    if not values.size:
        return Distribution()
    found = _figures(values)
    if values.size < FEWEST:
        return Distribution(*(Figure(value) for value in found))
    return _with_intervals(found, _resampled(values, rows, blocks), blocks.count)


def difference(
    ours: Column, our_rows: Numbers, our_blocks: Blocks, theirs: Column, their_rows: Numbers, their_blocks: Blocks
) -> Distribution:
    """How much more ``theirs`` is than ``ours``. Both draw the same blocks, so that what a block does to both cancels.
    ValueError when they have different numbers of blocks.
    """
    if our_blocks.count != their_blocks.count:
        raise ValueError(f"{our_blocks.count} blocks can not be paired with {their_blocks.count}")
    of_ours, of_theirs = ~np.isnan(ours), ~np.isnan(theirs)
    ours, our_rows = ours[of_ours], our_rows[of_ours]
    theirs, their_rows = theirs[of_theirs], their_rows[of_theirs]
    if not ours.size or not theirs.size:
        return Distribution()
    found = [their - our for our, their in zip(_figures(ours), _figures(theirs), strict=True)]
    if min(ours.size, theirs.size) < FEWEST:
        return Distribution(*(Figure(value) for value in found))
    draws = _resampled(theirs, their_rows, their_blocks) - _resampled(ours, our_rows, our_blocks)
    return _with_intervals(found, draws, our_blocks.count)


@cache
def _draws(count: int) -> Column:
    rng = np.random.Generator(np.random.PCG64(count))
    return rng.multinomial(count, np.full(count, 1.0 / count), DRAWS).astype(np.float64)


def _figures(values: Column) -> list[float]:
    return [float(values.mean()), *np.percentile(values, PERCENTILES).tolist()]


def _resampled(values: Column, rows: Numbers, blocks: Blocks) -> Column:
    """Mean and percentiles in each draw; NaN where it has no value."""
    order = np.argsort(values, kind="stable")
    values, block = values[order], blocks.of_row[rows[order]]
    bins = min(values.size, BINS)
    of_bin = np.arange(values.size, dtype=np.int64) * bins // values.size
    cell = block * bins + of_bin
    counts = np.bincount(cell, minlength=blocks.count * bins).reshape(blocks.count, bins)
    sums = np.bincount(block, weights=values, minlength=blocks.count)
    ends = np.cumsum(blocks.weights @ counts, axis=1)
    total = ends[:, -1]
    drawn = np.where(total > 0.0, total, np.nan)
    middles = np.bincount(of_bin, weights=values) / np.bincount(of_bin)
    columns = [blocks.weights @ sums / drawn]
    for percentile in PERCENTILES:
        place = (ends < (percentile / 100.0 * total)[:, None]).sum(axis=1)
        columns.append(np.where(total > 0.0, middles[np.minimum(place, bins - 1)], np.nan))
    return np.stack(columns, axis=1)


def _with_intervals(found: list[float], draws: Column, blocks: int) -> Distribution:
    usable = draws[~np.isnan(draws).any(axis=1)]
    if blocks < 2 or len(usable) < DRAWS // 2:
        return Distribution(*(Figure(value) for value in found))
    tail = erfc(t_quantile_97_5(blocks - 1.0) * sqrt(blocks / (blocks - 1.0)) / sqrt(2.0)) / 2.0
    ends = np.quantile(usable, (tail, 1.0 - tail), axis=0).T.tolist()
    return Distribution(*(Figure(value, (low, high)) for value, (low, high) in zip(found, ends, strict=True)))
