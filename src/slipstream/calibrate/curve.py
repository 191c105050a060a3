"""Speedup over batch sizes as measured, where it crosses 1, and the ceiling that this supports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from slipstream.calibrate.figures import Figures, Gain, gain_of
from slipstream.calibrate.plan import Point
from slipstream.core.speedup import CurveShape, crossovers_of, shape_of

__all__ = ["CEILING_FLOOR", "MeasuredCurve", "ceiling_of", "measured_curve"]

CEILING_FLOOR: Final = 1.05
"""What the lower end of a speedup's interval must reach for a batch size to be worth speculating at."""


@dataclass(frozen=True, slots=True)
class MeasuredCurve:
    """One speculative node against the standard one, at one context. Batch sizes rise. ``shape`` is ``None`` without a
    point; ``ceiling`` ``None`` = not even the smallest batch is surely faster.
    """

    context_tokens: int
    batch_sizes: tuple[int, ...]
    standard: tuple[Figures, ...]
    speculative: tuple[Figures, ...]
    gains: tuple[Gain, ...]
    crossovers: tuple[float, ...]
    shape: CurveShape | None
    ceiling: int | None

    @property
    def untold(self) -> tuple[int, ...]:
        """Batch sizes that were measured with too few requests for an interval."""
        return tuple(size for size, gain in zip(self.batch_sizes, self.gains, strict=True) if gain.interval is None)


def measured_curve(
    context_tokens: int, standard: Mapping[Point, Figures], speculative: Mapping[Point, Figures]
) -> MeasuredCurve:
    """Over the points that both arms have at this context."""
    points = sorted(
        (point for point in standard if point in speculative and point.context_tokens == context_tokens),
        key=lambda point: point.batch_size,
    )
    sizes = tuple(point.batch_size for point in points)
    gains = tuple(gain_of(standard[point], speculative[point]) for point in points)
    speedups = [gain.speedup for gain in gains]
    return MeasuredCurve(
        context_tokens,
        sizes,
        tuple(standard[point] for point in points),
        tuple(speculative[point] for point in points),
        gains,
        crossovers_of(sizes, speedups),
        shape_of(sizes, speedups) if sizes else None,
        ceiling_of(sizes, gains),
    )


def ceiling_of(batch_sizes: Sequence[int], gains: Sequence[Gain]) -> int | None:
    """The largest batch size whose speedup is at least `CEILING_FLOOR` at the lower end of its interval, with no gap
    below it; ``None`` = there is none.
    """
    ceiling = None
    for batch_size, gain in zip(batch_sizes, gains, strict=True):
        if gain.interval is None or gain.interval[0] < CEILING_FLOOR:
            break
        ceiling = batch_size
    return ceiling
