"""Figures with what is known of their certainty, for tables. Behind ± is half of the 95 % interval over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isclose
from typing import Any

from slipstream.cli.tables import number

__all__ = ["figure", "per_cent", "percentile", "plain"]


def figure(mean: float | None, interval: Sequence[float] | None) -> str:
    """A figure with half of its interval, to as many digits as tell something; a dash when it is unknown."""
    if mean is None or interval is None:
        return plain(mean)
    half = _half(interval)
    if max(abs(mean), half) >= 1e4:
        return f"{mean / 1e3:.1f}k ±{half / 1e3:.1f}k"
    return f"{mean:.{_digits(mean)}f} ±{half:.{_digits(mean)}f}"


def plain(value: float | None) -> str:
    """A figure alone."""
    return number(None if value is None else round(value, _digits(value)) + 0.0, _digits(value))  # no -0.00


def per_cent(mean: float | None, interval: Sequence[float] | None) -> str:
    """A share as `figure` has it."""
    if mean is None:
        return "–"
    return f"{mean:.1%}" if interval is None else f"{mean:.1%} ±{100.0 * _half(interval):.1f}"


def percentile(distribution: Mapping[str, Any], name: str) -> str:
    """One of a distribution's figures, as `figure` has it."""
    return figure(distribution[name], distribution["intervals"][name])


def _half(interval: Sequence[float]) -> float:
    low, high = interval
    return 0.0 if isclose(low, high) else (high - low) / 2.0


def _digits(value: float | None) -> int:
    if value is None or abs(value) >= 100.0:
        return 0
    return 1 if abs(value) >= 10.0 else 2
