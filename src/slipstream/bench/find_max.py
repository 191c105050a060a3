"""The highest rate at which enough requests meet their targets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from math import sqrt
from typing import TypeAlias

from slipstream.bench.measures import Measures

__all__ = ["Ended", "Point", "Search", "find_max"]

RATES = (1e-6, 1e6)


class Ended(StrEnum):
    """Why a search is over."""

    NARROW = "narrow"
    """The rates that attain and that do not are as near as they should be."""
    BUDGET = "budget"
    """As many rates were measured as should be."""
    GENERATOR = "generator"
    """The generator fell behind: the server would take more than can be sent from here."""
    NEVER = "never"
    """No rate attained, down to one request at a time."""
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Point:
    """What was measured at a rate, in requests a second. Nothing of it is ``None``: all its requests ended."""

    rate: float
    measures: Measures

    @property
    def attainment(self) -> float:
        """Of its requests; 0 of none."""
        return self.measures.requests.attainment.value or 0.0


@dataclass(frozen=True, slots=True)
class Search:
    """``rate`` is the highest that attained and is below all that did not; ``None`` = none did. ``interval``: its lower
    end is the highest rate that attained beyond doubt (the whole 95 % interval of its attainment), its upper end the
    lowest that did not beyond doubt; ``None`` = no such rate was met.
    """

    rate: float | None
    interval: tuple[float | None, float | None]
    points: tuple[Point, ...]
    ended: Ended


MeasureAt: TypeAlias = Callable[[float], Awaitable[Measures | None]]
"""Measures a rate; ``None`` = interrupted."""


async def find_max(
    measure_at: MeasureAt, *, start: float, attainment: float, narrow: float, most_points: int, lowest: float
) -> Search:
    """Double the rate until it does not attain, or halve it until it does, down to ``lowest``; then halve the interval
    between the two on the scale of logarithms until its ends differ by less than ``narrow`` (0.05 = 5 %), or
    ``most_points`` rates were measured. It ends, too, at a rate that could not be sent.
    """
    points: list[Point] = []
    held, missed = 0.0, RATES[1]
    rate = start
    ended = Ended.BUDGET
    while len(points) < most_points:
        measures = await measure_at(rate)
        if measures is None:
            ended = Ended.INTERRUPTED
            break
        point = Point(rate, measures)
        points.append(point)
        if measures.fell_behind and (point.attainment < attainment or _stretched(point, narrow)):
            ended = Ended.GENERATOR
            break
        if point.attainment >= attainment:
            held = rate
        else:
            missed = rate
        if missed <= held * (1.0 + narrow):
            ended = Ended.NARROW
            break
        if held == 0.0 and missed <= lowest:
            ended = Ended.NEVER
            break
        rate = _next(held, missed, lowest)
    return Search(held or None, _interval(points, attainment), tuple(points), ended)


def _stretched(point: Point, narrow: float) -> bool:
    """Whether its requests went out so late that they came at another rate: who met targets then says nothing of it."""
    return point.measures.late_p99_s * point.rate > narrow * point.measures.requests.offered


def _next(held: float, missed: float, lowest: float) -> float:
    if held == 0.0:
        return max(missed / 2.0, lowest)
    return held * 2.0 if missed == RATES[1] else sqrt(held * missed)


def _interval(points: list[Point], attainment: float) -> tuple[float | None, float | None]:
    ends = [(point.rate, point.measures.requests.attainment.interval) for point in points]
    surely_missed = [rate for rate, interval in ends if interval is not None and interval[1] < attainment]
    upper = min(surely_missed, default=None)
    surely_held = [
        rate
        for rate, interval in ends
        if interval is not None and interval[0] >= attainment and (upper is None or rate < upper)
    ]
    return max(surely_held, default=None), upper
