"""A median that forgets: of any number of values in bounded memory, and moved by no single odd one."""

from __future__ import annotations

from math import exp, log, sqrt
from typing import Final, TypeAlias

from slipstream.core.acceptance.student import NORMAL_97_5

__all__ = ["FadingMedian", "Interval", "bin_of"]

Interval: TypeAlias = tuple[float, float]
"""Lower and upper end of a 95 % interval."""

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

    __slots__ = ("_bins", "_squares", "count")

    def __init__(self) -> None:
        self.count = 0
        self._bins: dict[int, float] = {}
        self._squares = 0.0

    def add(self, place: int, weight: float) -> None:
        """Take in a value by its ``bin_of``."""
        bins = self._bins
        self.count += 1
        self._squares += weight * weight
        bins[place] = bins.get(place, 0.0) + weight

    def merge(self, other: FadingMedian, factor: float) -> None:
        """Take in all of another, with its weights times ``factor``."""
        self.count += other.count
        self._squares += other._squares * factor * factor
        for place, weight in other._bins.items():
            self._bins[place] = self._bins.get(place, 0.0) + weight * factor

    def scale(self, factor: float) -> None:
        """Multiply every weight, when the clock was rebased."""
        self._squares *= factor * factor
        for place, weight in self._bins.items():
            self._bins[place] = weight * factor

    @property
    def effective(self) -> float:
        """As many values of one age would say as much; 0 without any."""
        weight = sum(self._bins.values())
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

    def _quantile(self, share: float) -> float | None:
        """At its place inside its bin."""
        left = share * sum(self._bins.values())
        at = -1.0
        for place, weight in sorted(self._bins.items()):
            if weight > 0.0:
                at = place + min(left / weight, 1.0)
                left -= weight
                if left <= 0.0:
                    break
        return None if at < 0.0 else _LEAST * exp(at * _BIN)
