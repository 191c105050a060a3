"""Intervals of means and of shares: 95 %, both ends."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from slipstream.core.acceptance.estimate import Interval
from slipstream.core.acceptance.student import NORMAL_97_5, t_quantile_97_5

__all__ = ["Interval", "interval_of", "interval_of_share", "mean_of"]


def mean_of(values: Sequence[float]) -> float | None:
    """``None`` of none."""
    return sum(values) / len(values) if values else None


def interval_of(values: Sequence[float]) -> Interval | None:
    """The 95 % interval of the mean by Student's t, with each value an independent observation; ``None`` below two."""
    count = len(values)
    if count < 2:
        return None
    mean = sum(values) / count
    deviation = sqrt(sum((value - mean) ** 2 for value in values) / (count - 1))
    half_width = t_quantile_97_5(count - 1.0) * deviation / sqrt(count)
    return mean - half_width, mean + half_width


def interval_of_share(share: float, count: float) -> Interval | None:
    """Wilson's 95 % interval (Journal of the American Statistical Association 22, 1927) of a share of ``count``
    independent observations, which need not be whole; ``None`` of none. It has a width at 0 and at 1, too.
    """
    if count <= 0.0:
        return None
    square = NORMAL_97_5 * NORMAL_97_5
    middle = (share + square / (2.0 * count)) / (1.0 + square / count)
    half_width = (
        NORMAL_97_5 / (1.0 + square / count) * sqrt(share * (1.0 - share) / count + square / (4.0 * count * count))
    )
    return max(0.0, middle - half_width), min(1.0, middle + half_width)
