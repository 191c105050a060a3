"""The median of recent values, kept in order so that reading it is free."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

__all__ = ["RecentMedian"]


class RecentMedian:
    """Median of the last ``window`` values; ``None`` until ``minimum`` have been seen."""

    __slots__ = ("_minimum", "_recent", "_sorted", "_window", "value")

    def __init__(self, window: int = 101, minimum: int = 10) -> None:
        self._window = window
        self._minimum = minimum
        self._recent: deque[int] = deque()
        self._sorted: list[int] = []
        self.value: int | None = None

    def add(self, value: int) -> None:
        """Take in one value, and forget the oldest when the window is full."""
        ordered = self._sorted
        if len(ordered) == self._window:
            del ordered[bisect_left(ordered, self._recent.popleft())]
        self._recent.append(value)
        insort(ordered, value)
        if len(ordered) >= self._minimum:
            self.value = ordered[len(ordered) // 2]
