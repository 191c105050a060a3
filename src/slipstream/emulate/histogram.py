"""A histogram as engines export it."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

__all__ = ["BOUNDS_S", "Histogram"]

BOUNDS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 40.0, 160.0, 640.0)


@dataclass(slots=True)
class Histogram:
    """Counts of durations in seconds, by the upper bounds `BOUNDS_S`; the last count is of all that is longer."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    total_s: float = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        self.counts[bisect_left(BOUNDS_S, seconds)] += times
        self.total_s += seconds * times
