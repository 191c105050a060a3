"""When requests arrive: processes as data, each of which draws its times.

Every process is a row of gaps with a mean of one, in a time that runs as fast as requests are expected, and a map from
that time to seconds (Cinlar, Introduction to Stochastic Processes, 1975, section 4.7: the time change that makes any
Poisson process from the one of rate 1). So a longer plan begins like a shorter one of the same seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slipstream.workload.errors import ImpossibleWorkload

__all__ = [
    "MOST_REQUESTS",
    "Arrivals",
    "BurstArrivals",
    "ConstantArrivals",
    "GammaArrivals",
    "PoissonArrivals",
    "RateArrivals",
]

MOST_REQUESTS = 20_000_000
"""A plan of more is a slip: it would take gigabytes."""
RATES_PER_S = (1e-9, 1e9)
"""From the least rate to the largest: what is beyond is a slip, too."""
SHORTEST_S = 1e-6
LONGEST_S = 1e9

_BLOCK = 16_384

Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ConstantArrivals:
    """One every ``1 / per_s`` seconds, the first at 0."""

    per_s: float

    def __post_init__(self) -> None:
        _check_rate("constant arrivals", self.per_s)

    def times(self, duration_s: float, requests: int | None, rng: np.random.Generator) -> Seconds:  # noqa: ARG002 - as the others
        """Arrivals in seconds, rising, all below ``duration_s`` and at most ``requests`` (``None`` = any number).

        One of the two ends it: ``duration_s`` may be infinite where ``requests`` is given.

        Raises:
            ImpossibleWorkload: it would never end, or with more than `MOST_REQUESTS`.
        """
        return _times(_ones, lambda expected: (expected - 1.0) / self.per_s, duration_s, requests)


@dataclass(frozen=True, slots=True)
class PoissonArrivals:
    """``per_s`` on average, each independent of the others: gaps are exponential."""

    per_s: float

    def __post_init__(self) -> None:
        _check_rate("poisson arrivals", self.per_s)

    def times(self, duration_s: float, requests: int | None, rng: np.random.Generator) -> Seconds:
        """As of `ConstantArrivals`."""
        return _times(rng.standard_exponential, lambda expected: expected / self.per_s, duration_s, requests)


@dataclass(frozen=True, slots=True)
class GammaArrivals:
    """Gaps of a gamma distribution with the mean ``1 / per_s`` and the coefficient of variation ``cv`` (standard
    deviation over mean): 1 is Poisson, more comes in clusters, less is more even. Time 0 counts as an arrival before
    the first.
    """

    per_s: float
    cv: float

    def __post_init__(self) -> None:
        _check_rate("gamma arrivals", self.per_s)
        if not 0.01 <= self.cv <= 100.0:
            raise ImpossibleWorkload(f"gamma arrivals have a cv from 0.01 to 100, not {self.cv:g}")

    def times(self, duration_s: float, requests: int | None, rng: np.random.Generator) -> Seconds:
        """As of `ConstantArrivals`."""
        shape = self.cv**-2.0
        return _times(
            lambda count: rng.standard_gamma(shape, count) / shape,
            lambda expected: expected / self.per_s,
            duration_s,
            requests,
        )


@dataclass(frozen=True, slots=True)
class BurstArrivals:
    """Poisson arrivals at ``per_s``, and at ``burst_per_s`` in the last ``burst_s`` seconds of every ``every_s``."""

    per_s: float
    burst_per_s: float
    burst_s: float
    every_s: float

    def __post_init__(self) -> None:
        if self.per_s != 0.0:
            _check_rate("bursts: arrivals between them", self.per_s)
        _check_rate("bursts", self.burst_per_s)
        if not SHORTEST_S <= self.burst_s < self.every_s <= LONGEST_S:
            raise ImpossibleWorkload(
                f"bursts last at least {SHORTEST_S:g} s, less than from one's begin to the next's, which is at most "
                f"{LONGEST_S:g} s, not {self.burst_s:g} s every {self.every_s:g} s"
            )

    def times(self, duration_s: float, requests: int | None, rng: np.random.Generator) -> Seconds:
        """As of `ConstantArrivals`."""
        quiet_s = self.every_s - self.burst_s
        period = _Curve([(0.0, self.per_s), (quiet_s, self.per_s), (quiet_s, self.burst_per_s)])
        expected_each = self.per_s * quiet_s + self.burst_per_s * self.burst_s

        def seconds(expected: Seconds) -> Seconds:
            periods, rest = np.divmod(expected, expected_each)
            return periods * self.every_s + np.minimum(period.seconds(rest), self.every_s)

        return _times(rng.standard_exponential, seconds, duration_s, requests)


@dataclass(frozen=True, slots=True)
class RateArrivals:
    """Poisson arrivals whose rate follows ``rates``: points (at_s, per_s), rising, straight lines between them.

    Before the first point and after the last the rate is theirs. Two points at one time are a step.
    """

    rates: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        if not self.rates:
            raise ImpossibleWorkload("rates have at least one point in time")
        before_s = 0.0
        for at_s, _ in self.rates:
            if not (at_s == before_s or before_s + SHORTEST_S <= at_s <= LONGEST_S):
                raise ImpossibleWorkload(
                    f"rates: {at_s:g} s after {before_s:g} s; points are in the order of time, from 0 to "
                    f"{LONGEST_S:g} s, at one time or at least {SHORTEST_S:g} s apart"
                )
            before_s = at_s
        for at_s, per_s in self.rates:
            if per_s != 0.0:
                _check_rate(f"rates: at {at_s:g} s", per_s)
        if not any(per_s for _, per_s in self.rates):
            raise ImpossibleWorkload("rates are above 0 somewhere")

    def times(self, duration_s: float, requests: int | None, rng: np.random.Generator) -> Seconds:
        """As of `ConstantArrivals`. Fewer than ``requests`` come where the last rate is 0."""
        curve = _Curve([(0.0, self.rates[0][1]), *self.rates])
        return _times(rng.standard_exponential, curve.seconds, duration_s, requests)


Arrivals = ConstantArrivals | PoissonArrivals | GammaArrivals | BurstArrivals | RateArrivals


class _Curve:
    """A rate over time in straight lines; ``expected`` is its integral at the points."""

    __slots__ = ("at_s", "expected", "per_s", "slope")

    def __init__(self, points: list[tuple[float, float]]) -> None:
        self.at_s, self.per_s = np.array(points, dtype=np.float64).T
        width = np.diff(self.at_s)
        rise = np.diff(self.per_s)
        self.slope = np.append(np.divide(rise, width, out=np.zeros_like(rise), where=width > 0.0), 0.0)
        self.expected = np.concatenate(([0.0], np.cumsum(width * (self.per_s[:-1] + self.per_s[1:]) / 2.0)))

    def seconds(self, expected: Seconds) -> Seconds:
        """When so many are expected to have arrived; infinite = never. The integral of a line, solved for its end in
        the form that does not cancel and that slope 0 needs no exception from.
        """
        segment = np.searchsorted(self.expected, expected, side="right") - 1
        rest = expected - self.expected[segment]
        start = self.per_s[segment]
        root = np.sqrt(np.maximum(start * start + 2.0 * self.slope[segment] * rest, 0.0))
        never = np.where(rest > 0.0, math.inf, 0.0)
        width = np.divide(2.0 * rest, start + root, out=never, where=start + root > 0.0)
        end: Seconds = np.append(self.at_s[1:], math.inf)[segment]
        seconds: Seconds = np.minimum(self.at_s[segment] + width, end)
        return seconds


def _times(
    gaps: Callable[[int], Seconds], seconds: Callable[[Seconds], Seconds], duration_s: float, requests: int | None
) -> Seconds:
    if (math.isinf(duration_s) and requests is None) or (requests or 0) > MOST_REQUESTS:
        raise ImpossibleWorkload(f"arrivals end after a time, or a number of requests up to {MOST_REQUESTS:,}")
    most = MOST_REQUESTS if requests is None else requests
    blocks: list[Seconds] = []
    expected = 0.0
    last_s = 0.0
    while not blocks or (last_s < duration_s and len(blocks) * _BLOCK < most):
        block = gaps(_BLOCK)
        block[0] += expected
        block = np.cumsum(block)
        expected = float(block[-1])
        blocks.append(seconds(block))
        last_s = float(blocks[-1][-1])
    if last_s < duration_s and requests is None:
        raise ImpossibleWorkload(
            f"more than {MOST_REQUESTS:,} requests would arrive in {duration_s:g} s: too many for one plan"
        )
    # Rounding at the points of a curve may turn two times around, by their last digit.
    times = np.maximum.accumulate(np.concatenate(blocks))
    return times[: min(most, int(np.searchsorted(times, duration_s)))]


def _ones(count: int) -> Seconds:
    return np.ones(count)


def _check_rate(what: str, per_s: float) -> None:
    least, most = RATES_PER_S
    if not least <= per_s <= most:
        raise ImpossibleWorkload(f"{what}: a rate is {least:g} to {most:g} a second, not {per_s:g}")
