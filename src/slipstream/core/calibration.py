"""What a node's profile was measured on and what it promises, to be held against what the node is and does now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import NamedTuple

__all__ = [
    "Calibration",
    "ExpectedTime",
    "MeasuredAcceptance",
    "MeasuredTime",
    "MeasuredTraffic",
    "expected_time",
]


class MeasuredTime(NamedTuple):
    """Time per token of one user where ``batch_size`` sequences decode, with ``k`` tokens drafted a step (0 = the
    standard arm): in seconds, and the ends of its 95 % interval.
    """

    k: int
    batch_size: float
    tpot_s: float
    low_s: float
    high_s: float


class MeasuredAcceptance(NamedTuple):
    """Tokens per step of a category with a speculator, by its fingerprint, and their 95 % interval."""

    speculator: str
    category: str
    tokens_per_step: float
    interval: tuple[float, float]


class MeasuredTraffic(NamedTuple):
    """What was asked: requests' ``shares`` (0..1) by category, and the least and most tokens that sequences held."""

    shares: tuple[tuple[str, float], ...]
    least_context: float
    most_context: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The fingerprint of a profile in use, and its figures that a gateway can see for itself.

    ``file`` is where it was read from and ``date`` when it was measured, both for people. ``speculators`` are the
    fingerprints of the speculators measured, ``system_fingerprints`` what answers said of the nodes (each arm has its
    own). Empty or ``None`` = the profile does not say. ``times`` rise by batch size. ``prefill`` is what a prompt
    takes: base and a token, in seconds.
    """

    file: str
    date: str
    engine: str
    version: str
    model: str
    speculators: tuple[str, ...] = ()
    hardware: str | None = None
    replicas: int | None = None
    system_fingerprints: tuple[str, ...] = ()
    times: tuple[MeasuredTime, ...] = ()
    acceptance: tuple[MeasuredAcceptance, ...] = ()
    traffic: MeasuredTraffic | None = None
    prefill: tuple[float, float] = (0.0, 0.0)


class ExpectedTime(NamedTuple):
    """Time per token that a profile promises over a range of occupancies, in seconds: in the middle of it, and the
    least and most within it, intervals included.
    """

    tpot_s: float
    low_s: float
    high_s: float


def expected_time(times: Sequence[MeasuredTime], k: int, least: int, most: int | None) -> ExpectedTime | None:
    """At ``least`` to ``most`` (``None`` = any number of) sequences, as far as that was measured; ``None`` where it was
    not. Between two batch sizes the logarithm is a straight line, as in a table profile.
    """
    points = [point for point in times if point.k == k]
    if not points:
        return None
    low = max(float(least), points[0].batch_size)
    high = points[-1].batch_size if most is None else min(float(most), points[-1].batch_size)
    if low > high:
        return None
    ends = [_at(points, low), _at(points, high)]
    within = ends + [point for point in points if low < point.batch_size < high]
    return ExpectedTime(
        sqrt(ends[0].tpot_s * ends[1].tpot_s),
        min(point.low_s for point in within),
        max(point.high_s for point in within),
    )


def _at(points: Sequence[MeasuredTime], batch_size: float) -> MeasuredTime:
    after = next(place for place, point in enumerate(points) if point.batch_size >= batch_size)
    upper = points[after]
    if upper.batch_size == batch_size:
        return upper
    lower = points[after - 1]
    share = log(batch_size / lower.batch_size) / log(upper.batch_size / lower.batch_size)
    return MeasuredTime(
        upper.k,
        batch_size,
        _between(lower.tpot_s, upper.tpot_s, share),
        _between(lower.low_s, upper.low_s, share),
        _between(lower.high_s, upper.high_s, share),
    )


def _between(lower: float, upper: float, share: float) -> float:
    return exp(log(lower) + share * (log(upper) - log(lower)))
