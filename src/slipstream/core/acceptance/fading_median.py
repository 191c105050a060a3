"""A median that forgets: of any number of values in bounded memory, and moved by no single odd one."""

from __future__ import annotations

from math import exp, log, sqrt
from typing import Final

from slipstream.core.acceptance.estimate import Interval
from slipstream.core.acceptance.student import NORMAL_97_5

__all__ = ["FadingMedian", "bin_of"]

_BIN: Final = log(1.02)
"""Values are kept in bins of 2 %, so that a median can be told and one odd value can not move it."""
_LEAST: Final = 1e-5
_MOST: Final = 1e7
FEWEST: Final = 6.0
"""Below so many values no two of them hold the median between them with 95 % certainty."""


def bin_of(value: float) -> int:
    """The bin of a value, from 10 millionths to 10 millions; what is beyond belongs to the last."""
    return int(log(min(max(value, _LEAST), _MOST) / _LEAST) / _BIN)


class FadingMedian:
    """Weights by bin, at most 1,400 of them. The weight of a value is that of a `FadingClock`, one for all calls.

    ``count`` is how many values there were since the start.
    """

    __slots__ = ("_first", "_squares", "_weights", "count")

    def __init__(self) -> None:
        self.count = 0
        self._first = 0
        self._weights: list[float] = []
        """Of the bins from ``_first`` on, as far as there were values. A dictionary would cost five times as much."""
        self._squares = 0.0

    def add(self, place: int, weight: float) -> None:
        """Take in a value by its ``bin_of``."""
        weights = self._weights
        at = place - self._first
        if not 0 <= at < len(weights):
            at = self._reach(place)
        weights[at] += weight
        self.count += 1
        self._squares += weight * weight

    def merge(self, other: FadingMedian, factor: float) -> None:
        """Take in all of another, with its weights times ``factor``."""
        self.count += other.count
        self._squares += other._squares * factor * factor
        if other._weights:
            self._reach(other._first + len(other._weights) - 1)
            low = self._reach(other._first)
            for at, weight in enumerate(other._weights):
                self._weights[low + at] += weight * factor

    def scale(self, factor: float) -> None:
        """Multiply every weight, when the clock was rebased."""
        self._squares *= factor * factor
        self._weights = [weight * factor for weight in self._weights]

    @property
    def effective(self) -> float:
        """As many values of one age would say as much; 0 without any."""
        weight = sum(self._weights)
        return weight * weight / self._squares if self._squares > 0.0 else 0.0

    @property
    def value(self) -> float | None:
        """The median, ``None`` without any value."""
        return self._quantile(0.5)

    @property
    def interval(self) -> Interval | None:
        """95 %, by order statistics (Conover, Practical Nonparametric Statistics, 1999, section 3.2): whatever the
        values' distribution, each of them an independent one. ``None`` below six effective values.
        """
        effective = self.effective
        if effective < FEWEST:
            return None
        half_width = 0.5 * NORMAL_97_5 / sqrt(effective)
        low, high = self._quantile(max(0.0, 0.5 - half_width)), self._quantile(min(1.0, 0.5 + half_width))
        return None if low is None or high is None else (low, high)

    def _reach(self, place: int) -> int:
        """Where the bin ``place`` stands in the list, which is made longer for it if needed."""
        weights = self._weights
        if not weights:
            self._first = place
        at = place - self._first
        if at < 0:
            weights[:0] = [0.0] * -at
            self._first = place
            return 0
        if at >= len(weights):
            weights.extend([0.0] * (at + 1 - len(weights)))
        return at

    def _quantile(self, share: float) -> float | None:
        """At its place inside its bin."""
        left = share * sum(self._weights)
        found = -1.0
        for at, weight in enumerate(self._weights):
            if weight > 0.0:
                found = self._first + at + min(left / weight, 1.0)
                left -= weight
                if left <= 0.0:
                    break
        return None if found < 0.0 else _LEAST * exp(found * _BIN)
