"""Metrics that are read where they are kept: of the gateway's own parts, which know nothing of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from slipstream.telemetry.measures import Kind

__all__ = ["CONFIG_RELOADS", "LOST_LINES", "METRICS", "Metric", "Reading", "Samples"]

Samples = Mapping[tuple[str, ...], float]
"""Values by the values of the labels; one by ``()`` where there are no labels. What is unknown is left out."""


class Metric(NamedTuple):
    """``name`` ends with the unit, without ``slipstream_`` and ``_total``. Values of ``labels`` must be bounded."""

    kind: Kind
    name: str
    meaning: str
    labels: tuple[str, ...] = ()


class Reading(NamedTuple):
    """A metric and how it is read, on the loop's thread. All its series should be there from the start."""

    metric: Metric
    read: Callable[[], Samples]


LOST_LINES = Metric(
    Kind.COUNTER, "lost_lines", "Lines that the disk was too slow or too full for, by what they were of.", ("log",)
)

CONFIG_RELOADS = Metric(
    Kind.COUNTER, "config_reloads", "Times the configuration was read again, by how it went.", ("result",)
)

METRICS: tuple[Metric, ...] = (LOST_LINES, CONFIG_RELOADS)
"""All of them, in the order of the page."""
