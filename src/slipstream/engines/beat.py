"""When something that happens again and again is next due."""

from __future__ import annotations

import math

__all__ = ["next_beat"]


def next_beat(after: float, interval_s: float, phase: float) -> float:
    """The first time later than ``after`` that is ``phase`` (0..1) of an interval past a whole number of intervals.

    Nodes with different phases are never asked at one instant, whatever their intervals, and no beat drifts.
    """
    beat = (math.floor(after / interval_s - phase) + 1 + phase) * interval_s
    return beat if beat > after else beat + interval_s
