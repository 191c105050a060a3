"""How late an emulated node was: what a machine adds to the times that were asked for."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import Any

__all__ = ["Lateness"]

BUCKET_S = 0.0001
BUCKETS = 10_000
"""Up to a second is told apart; what is later counts as one second."""


class Lateness:
    """From when a step of a request was due to when what it brought was written, for all steps so far."""

    __slots__ = ("_counts", "_longest_s", "_steps")

    def __init__(self) -> None:
        self._counts = [0] * (BUCKETS + 1)
        self._steps = 0
        self._longest_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count a step; one that is done a little early, as timers may be, is on time."""
        bucket = int(seconds / BUCKET_S) if seconds > 0.0 else 0
        self._counts[min(BUCKETS, bucket)] += 1
        self._steps += 1
        if seconds > self._longest_s:
            self._longest_s = seconds

    def quantile(self, share: float) -> float | None:
        """Seconds that a ``share`` (0..1) of the steps does not exceed, to 0.1 ms; ``None`` before the first step."""
        if self._steps == 0:
            return None
        bucket = bisect_left([*accumulate(self._counts)], share * self._steps)
        return min((bucket + 1) * BUCKET_S, self._longest_s)

    def as_json(self) -> dict[str, Any]:
        """Milliseconds; ``None`` before the first step."""
        median, high = self.quantile(0.5), self.quantile(0.99)
        return {
            "steps": self._steps,
            "p50_ms": None if median is None else 1e3 * median,
            "p99_ms": None if high is None else 1e3 * high,
            "max_ms": None if self._steps == 0 else 1e3 * self._longest_s,
        }
