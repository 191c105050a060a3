"""The names an engine gives its metrics, and the report they add up to."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from slipstream.core.errors import EngineGarbage
from slipstream.core.node import NodeReport, SpeculativeCounters
from slipstream.engines.exposition import check_page, samples, samples_by_label

__all__ = ["MetricNames", "count", "mean", "read_metrics", "total_by_label"]

LARGEST_COUNT = 2.0**53


@dataclass(frozen=True, slots=True)
class MetricNames:
    """What the engine's page of metrics calls each figure; ``None`` = it has no such metric.

    ``accepted_per_position`` has a label ``position``, counted from 0. ``kv_use`` is a share, 0..1.
    """

    running: bytes
    waiting: bytes
    generated_tokens: bytes
    verify_steps: bytes | None = None
    drafted: bytes | None = None
    accepted: bytes | None = None
    accepted_per_position: bytes | None = None
    kv_use: bytes | None = None


def read_metrics(names: MetricNames, page: bytes) -> NodeReport:
    """Load and counters from a page of metrics, summed over data-parallel ranks and models of the node.

    A metric that is missing, ``nan``, negative or more than a float counts exactly (2**53) is ``None``. KV use is the
    mean of the ranks. Raises `EngineGarbage` when ``page`` is not a page of metrics, or has none of ``names``.
    """
    check_page(page)
    counters = SpeculativeCounters(
        drafted=count(page, names.drafted),
        accepted=count(page, names.accepted),
        verify_steps=count(page, names.verify_steps),
        accepted_per_position=_positions(page, names.accepted_per_position),
        generated_tokens=count(page, names.generated_tokens),
    )
    report = NodeReport(
        running=count(page, names.running),
        waiting=count(page, names.waiting),
        kv_use=mean(page, names.kv_use),
        counters=None if counters == SpeculativeCounters() else counters,
    )
    if report == NodeReport():
        raise EngineGarbage(f"the page has no {names.running.decode()}, nor any other metric of that engine")
    return report


def count(page: bytes, name: bytes | None) -> int | None:
    """The metric ``name`` summed over its series; ``None`` when it is missing or no count, or has no name."""
    values = samples(page, name) if name is not None else []
    return _whole(sum(values)) if values else None


def mean(page: bytes, name: bytes | None) -> float | None:
    """The mean of the metric ``name`` over its series; ``None`` when it is missing, negative or infinite."""
    values = samples(page, name) if name is not None else []
    value = sum(values) / len(values) if values else None
    return value if value is not None and 0.0 <= value < inf else None


def total_by_label(page: bytes, name: bytes, label: bytes) -> tuple[int, ...]:
    """The metric ``name`` by the numbers 0, 1, … that ``label`` has, summed over its other labels.

    Empty when the metric is missing, and when a number is missing or unusable: a gap has no meaning.
    """
    by_number = samples_by_label(page, name, label)
    counts = [_whole(by_number.get(b"%d" % number, inf)) for number in range(len(by_number))]
    known = tuple(value for value in counts if value is not None)
    return known if len(known) == len(counts) else ()


def _positions(page: bytes, name: bytes | None) -> tuple[int, ...]:
    return () if name is None else total_by_label(page, name, b"position")


def _whole(value: float) -> int | None:
    return round(value) if 0.0 <= value <= LARGEST_COUNT else None
