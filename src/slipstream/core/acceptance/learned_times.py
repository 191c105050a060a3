"""What a node's own traffic teaches of its time per token, by how busy it was meanwhile.

A request belongs to the mean occupancy of its node while it was there: it may have begun on an empty node and ended on
a full one, and a profile's time at either would not be its own.
"""

from __future__ import annotations

from typing import NamedTuple

from slipstream.core.acceptance.by_occupancy import BUCKETS, bucket_of
from slipstream.core.acceptance.estimate import Interval
from slipstream.core.acceptance.fading_median import FadingMedian

__all__ = ["LearnedTime", "LearnedTimes"]


class LearnedTime(NamedTuple):
    """Time per token at ``least`` to ``most`` (``None`` = any number of) sequences: the median ``tpot_s`` in seconds
    with its 95 % ``interval``, ``None`` below six requests. ``requests`` since the start; ``effective``: as many
    recent ones would say as much.
    """

    least: int
    most: int | None
    requests: int
    effective: float
    tpot_s: float
    interval: Interval | None


class LearnedTimes:
    """The buckets of one node, in bounded memory. Weights are those of a `FadingClock`, one for all calls."""

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        self._buckets: list[FadingMedian | None] = [None] * len(BUCKETS)

    def add(self, mean_occupancy: float, place: int, weight: float) -> None:
        """A request took a time per token of the bin ``place`` (`bin_of`), at so many sequences on average."""
        bucket = bucket_of(max(1, int(mean_occupancy + 0.5)))
        times = self._buckets[bucket]
        if times is None:
            times = self._buckets[bucket] = FadingMedian()
        times.add(place, weight)

    def scale(self, factor: float) -> None:
        """Multiply every weight, when the clock was rebased."""
        for times in self._buckets:
            if times is not None:
                times.scale(factor)

    def figures(self) -> list[LearnedTime]:
        """The buckets that requests were in."""
        found = []
        for (least, most), times in zip(BUCKETS, self._buckets, strict=True):
            tpot_s = None if times is None else times.value
            if times is not None and tpot_s is not None:
                found.append(LearnedTime(least, most, times.count, times.effective, tpot_s, times.interval))
        return found
