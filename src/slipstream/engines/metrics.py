"""The names an engine gives its metrics, and the report they add up to."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from slipstream.core.errors import EngineGarbage
from slipstream.core.node import NodeReport, SpeculativeCounters
from slipstream.engines.exposition import check_page, samples, samples_by_label

__all__ = ["MetricNames", "read_metrics"]

LARGEST_COUNT = 2.0**53


@dataclass(frozen=True, slots=True)
class MetricNames:
    """What the engine's page of metrics calls each figure; ``None`` = it has no such metric.

    ``accepted_per_position`` has a label ``position``, counted from 0. ``kv_use`` is a share, 0..1.
    """

    running: bytes
    waiting: bytes
    drafted: bytes
    accepted: bytes
    verify_steps: bytes
    accepted_per_position: bytes
    generated_tokens: bytes
    kv_use: bytes | None = None


def read_metrics(names: MetricNames, page: bytes) -> NodeReport:
    """Load and counters from a page of metrics, summed over data-parallel ranks and models of the node.

    A metric that is missing, ``nan``, negative or more than a float counts exactly (2**53) is ``None``. KV use is the
    mean of the ranks. Raises `EngineGarbage` when ``page`` is not a page of metrics, or has none of ``names``.
    """
    check_page(page)
    counters = SpeculativeCounters(
        drafted=_count(page, names.drafted),
        accepted=_count(page, names.accepted),
        verify_steps=_count(page, names.verify_steps),
        accepted_per_position=_positions(page, names.accepted_per_position),
        generated_tokens=_count(page, names.generated_tokens),
    )
    report = NodeReport(
        running=_count(page, names.running),
        waiting=_count(page, names.waiting),
        kv_use=None if names.kv_use is None else _mean(page, names.kv_use),
        counters=None if counters == SpeculativeCounters() else counters,
    )
    if report == NodeReport():
        raise EngineGarbage(f"the page has no {names.running.decode()}, nor any other metric of that engine")
    return report


def _count(page: bytes, name: bytes) -> int | None:
    values = samples(page, name)
    return _whole(sum(values)) if values else None


def _mean(page: bytes, name: bytes) -> float | None:
    values = samples(page, name)
    mean = sum(values) / len(values) if values else None
    return mean if mean is not None and 0.0 <= mean < inf else None


def _positions(page: bytes, name: bytes) -> tuple[int, ...]:
    """Counts by position. Empty when missing, and when a position is missing or unusable: a gap has no meaning."""
    by_position = samples_by_label(page, name, b"position")
    counts = [_whole(by_position.get(b"%d" % position, inf)) for position in range(len(by_position))]
    known = tuple(count for count in counts if count is not None)
    return known if len(known) == len(counts) else ()


def _whole(value: float) -> int | None:
    return round(value) if 0.0 <= value <= LARGEST_COUNT else None
