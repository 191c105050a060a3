"""When a speculative node is full for its purpose, and for what share of the time it was."""

from __future__ import annotations

from collections import deque

__all__ = ["WINDOW_S", "TimeShare", "is_saturated"]

WINDOW_S = 600.0
_BUCKET_S = 10.0


def is_saturated(occupancy: int, ceiling: int, was_saturated: bool = False, hysteresis: int = 0) -> bool:  # noqa: FBT001, FBT002 - called per request
    """At or above the ceiling → saturated; below again → not.

    With ``hysteresis`` a saturated node stays so until occupancy is that many sequences below the ceiling.
    """
    return occupancy >= (ceiling - hysteresis if was_saturated else ceiling)


class TimeShare:
    """The share of the last ten minutes for which something was true, in buckets of ten seconds."""

    __slots__ = ("_buckets", "_since", "_started_at", "_true")

    def __init__(self, now: float) -> None:
        self._buckets: deque[list[float]] = deque()
        self._since = now
        self._started_at = now
        self._true = False

    def set(self, true: bool, now: float) -> None:  # noqa: FBT001 - the state itself, not a flag
        """From ``now`` on it is ``true``."""
        self._settle(now)
        self._true = true

    def share(self, now: float) -> float | None:
        """0..1 over the last ten minutes, or over the time since the start when that is shorter; ``None`` at the very
        start.
        """
        self._settle(now)
        span = min(now - self._started_at, WINDOW_S)
        if span <= 0:
            return None
        horizon = now - WINDOW_S
        return min(1.0, sum(seconds for start, seconds in self._buckets if start + _BUCKET_S > horizon) / span)

    def _settle(self, now: float) -> None:
        start, self._since = self._since, now
        if not self._true:
            return
        start = max(start, now - WINDOW_S)
        while start < now:
            bucket_start = start - start % _BUCKET_S
            end = min(now, bucket_start + _BUCKET_S)
            if not self._buckets or self._buckets[-1][0] != bucket_start:
                self._buckets.append([bucket_start, 0.0])
            self._buckets[-1][1] += end - start
            start = end
        while self._buckets and self._buckets[0][0] + _BUCKET_S <= now - WINDOW_S:
            self._buckets.popleft()
