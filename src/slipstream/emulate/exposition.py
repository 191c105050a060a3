"""Pages of metrics in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

from slipstream.emulate.histogram import BOUNDS_S, Histogram

__all__ = ["Family", "Series", "counter", "gauge", "histogram", "page"]


class Series(NamedTuple):
    """One line: what follows the family's name, labels beside those of the whole page, and the value as text."""

    suffix: str
    labels: str
    value: str


class Family(NamedTuple):
    """A metric. ``name`` is the whole name, with the ``_total`` of a counter that has one."""

    name: str
    kind: str
    meaning: str
    series: tuple[Series, ...]


def gauge(name: str, meaning: str, value: str, labels: str = "") -> Family:
    return Family(name, "gauge", meaning, (Series("", labels, value),))


def counter(name: str, meaning: str, value: str) -> Family:
    return Family(name, "counter", meaning, (Series("", "", value),))


def histogram(name: str, meaning: str, observed: Histogram) -> Family:
    bounds = [*map(str, BOUNDS_S), "+Inf"]
    counts = [*accumulate(observed.counts)]
    series = [Series("_bucket", f'le="{le}"', f"{count}.0") for le, count in zip(bounds, counts, strict=True)]
    series += [Series("_count", "", f"{counts[-1]}.0"), Series("_sum", "", str(observed.total_s))]
    return Family(name, "histogram", meaning, tuple(series))


def page(families: Iterable[Family], labels: str = "") -> bytes:
    """The page, each of its lines with ``labels`` (``name="value"``, separated by commas) and the line's own."""
    lines: list[str] = []
    for family in families:
        lines += (f"# HELP {family.name} {family.meaning}", f"# TYPE {family.name} {family.kind}")
        for suffix, own, value in family.series:
            both = ",".join(part for part in (labels, own) if part)
            lines.append(f"{family.name}{suffix}{{{both}}} {value}" if both else f"{family.name}{suffix} {value}")
    return ("\n".join(lines) + "\n").encode()
