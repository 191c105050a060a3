"""Acceptance and time per token by how busy the node was: by this a new ceiling is judged.

A request belongs to the occupancy that its node had when it was placed there, itself included. The node may become
busier or emptier while it runs; over many requests that evens out, and the bucket of a ceiling is what a higher ceiling
would add to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from slipstream.core.acceptance.fading_median import FadingMedian
from slipstream.core.acceptance.measures import (
    MeanAcceptanceLength,
    PerTokenAcceptance,
    TokensPerStep,
    alpha_of,
    mean_acceptance_length_from_counts,
)
from slipstream.core.acceptance.sample import SpeculationSample, Steps

__all__ = ["BUCKETS", "OccupancyFigures", "OccupancyRecord", "bucket_of", "figures"]

BUCKETS: Final[tuple[tuple[int, int | None], ...]] = (
    (1, 1), (2, 2), (3, 4), (5, 8), (9, 12), (13, 16), (17, 32), (33, 64), (65, None),
)  # fmt: skip
"""Least and most sequences of each bucket; the last has no most."""

_INDEX: Final = tuple(
    next(place for place, (_, most) in enumerate(BUCKETS) if most is None or sequences <= most)
    for sequences in range(66)
)


class OccupancyFigures(NamedTuple):
    """What is known of one bucket. ``None`` = nothing.

    ``least`` and ``most`` sequences. ``requests`` told of their acceptance and ``timed`` had a time per token, since
    the start; the figures forget. ``tau`` and ``tokens_per_step`` in tokens, ``alpha`` 0..1 for the mean draft length
    ``k``; ``tpot_s`` is the median, in seconds.
    """

    least: int
    most: int | None
    requests: int
    timed: int
    tau: MeanAcceptanceLength | None
    alpha: PerTokenAcceptance | None
    k: float | None
    tokens_per_step: TokensPerStep | None
    tpot_s: float | None


class _Bucket:
    __slots__ = ("accepted", "decode", "drafted", "requests", "times", "verify")

    def __init__(self) -> None:
        self.requests = 0
        self.drafted = 0.0
        self.accepted = 0.0
        self.verify = 0.0
        self.decode = 0.0
        self.times = FadingMedian()

    def add(self, other: _Bucket, factor: float) -> None:
        self.requests += other.requests
        self.drafted += other.drafted * factor
        self.accepted += other.accepted * factor
        self.verify += other.verify * factor
        self.decode += other.decode * factor
        self.times.merge(other.times, factor)


class OccupancyRecord:
    """The buckets of one node. ``weight`` is that of a `FadingClock`, one for all calls."""

    __slots__ = ("buckets",)

    def __init__(self) -> None:
        self.buckets: list[_Bucket | None] = [None] * len(BUCKETS)
        """By place in ``BUCKETS``; ``None`` where no request was."""

    def accepted(self, occupancy: int, sample: SpeculationSample, steps: Steps, weight: float) -> None:
        """A finished request, placed at ``occupancy``, told of its acceptance."""
        bucket = self._bucket(occupancy)
        bucket.requests += 1
        bucket.drafted += weight * sample.drafted
        bucket.accepted += weight * sample.accepted
        bucket.verify += weight * steps.verify
        bucket.decode += weight * steps.decode

    def timed(self, occupancy: int, place: int, weight: float) -> None:
        """A finished request, placed at ``occupancy``, took a time per token after the first of the bin ``place``."""
        self._bucket(occupancy).times.add(place, weight)

    def scale(self, factor: float) -> None:
        """Multiply every sum, when the clock was rebased."""
        for place, bucket in enumerate(self.buckets):
            if bucket is not None:
                scaled = _Bucket()
                scaled.add(bucket, factor)
                self.buckets[place] = scaled

    def _bucket(self, occupancy: int) -> _Bucket:
        place = bucket_of(occupancy)
        bucket = self.buckets[place]
        if bucket is None:
            bucket = self.buckets[place] = _Bucket()
        return bucket


def bucket_of(occupancy: int) -> int:
    """The place in ``BUCKETS`` of an occupancy, 1 or more."""
    return _INDEX[min(occupancy, 65)]


def figures(records: Iterable[tuple[OccupancyRecord, float]]) -> list[OccupancyFigures]:
    """The buckets of several nodes as one, without those that no request was in.

    With each record comes the weight of now on its clock, by which the records are made comparable.
    """
    merged: list[_Bucket | None] = [None] * len(BUCKETS)
    for record, weight in records:
        for place, bucket in enumerate(record.buckets):
            if bucket is None:
                continue
            into = merged[place]
            if into is None:
                into = merged[place] = _Bucket()
            into.add(bucket, 1.0 / weight)
    return [_figures(place, bucket) for place, bucket in enumerate(merged) if bucket is not None]


def _figures(place: int, bucket: _Bucket) -> OccupancyFigures:
    least, most = BUCKETS[place]
    tau = mean_acceptance_length_from_counts(bucket.accepted, bucket.verify)
    k = bucket.drafted / bucket.verify if tau is not None else None
    return OccupancyFigures(
        least,
        most,
        bucket.requests,
        bucket.times.count,
        tau,
        alpha_of(tau, k) if tau is not None and k is not None and k > 0.0 else None,
        k,
        TokensPerStep(1.0 + bucket.accepted / bucket.decode) if bucket.decode > 0.0 else None,
        bucket.times.value,
    )
