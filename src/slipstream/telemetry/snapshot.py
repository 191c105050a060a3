"""What is known at one moment, and the metrics page made of it.

A node that left has no series, and what is unknown has no sample. Every metric has an entry in
docs/reference/metrics.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from slipstream.core.outcome import Ending
from slipstream.core.policy import Reason
from slipstream.core.request import Pool, TrafficClass
from slipstream.core.summary import CategorySummary, NodeSummary
from slipstream.telemetry.histogram import Histogram
from slipstream.telemetry.instruments import Latencies
from slipstream.telemetry.measures import CATEGORY_MEASURES, NODE_MEASURES, Kind, Measure, Row
from slipstream.telemetry.metric import Metric, Samples

__all__ = ["CONTENT_TYPE", "DECISION_REASONS", "Snapshot", "render"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

DECISION_REASONS: dict[Pool, tuple[Reason, ...]] = {
    Pool.SPECULATIVE: (
        Reason.SPECULATIVE,
        Reason.PROBE,
        Reason.FALLBACK,
        Reason.PINNED,
        Reason.AFFINITY,
        Reason.IN_TURN,
        Reason.OBSERVE,
    ),
    Pool.STANDARD: (
        Reason.NO_SPECULATOR,
        Reason.SATURATED,
        Reason.BELOW_FLOOR,
        Reason.BELOW_GAIN,
        Reason.SHORT_OUTPUT,
        Reason.BULK,
        Reason.REJECTED_FEATURE,
        Reason.UNHEALTHY,
        Reason.STALE,
        Reason.DRAINING,
        Reason.FULL,
        Reason.TRIED,
        Reason.HOLDBACK,
        Reason.FALLBACK,
        Reason.PINNED,
        Reason.AFFINITY,
        Reason.IN_TURN,
        Reason.OBSERVE,
    ),
}
"""The reasons with which a request can go to each pool: their series are there, at 0, from the start."""

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot(Collector):
    """All that the page shows, read at one moment. Making families and text of it is left to another thread."""

    nodes: Sequence[NodeSummary]
    categories: Sequence[CategorySummary]
    endings: Mapping[tuple[str, Ending], int]
    rejections: Mapping[str, int]
    latencies: Mapping[tuple[Pool, str], Latencies]
    decisions: Histogram
    waits: Mapping[TrafficClass, Histogram]
    blind: bool
    loop_lag_s: float | None
    readings: Sequence[tuple[Metric, Samples]] = ()

    def collect(self) -> Iterator[Family]:
        """All families."""
        yield self._requests()
        yield self._endings()
        yield self._rejections()
        yield from self._latencies()
        decisions = HistogramMetricFamily("slipstream_decision_seconds", "Time to choose a node.", labels=())
        _add_histogram(decisions, (), self.decisions)
        yield decisions
        yield self._waits()
        nodes = [((node.name, str(node.pool)), node) for node in self.nodes]
        yield from _measured("slipstream_node_", NODE_MEASURES, nodes, ("node", "pool"))
        categories = [((category.name,), category) for category in self.categories]
        yield from _measured("slipstream_category_", CATEGORY_MEASURES, categories, ("category",))
        blind = "Whether every node is stale at once, none unreadable (1): our own fault."
        yield _gauge("slipstream_fleet_blind", blind, self.blind)
        yield _gauge("slipstream_event_loop_lag_seconds", "How late the event loop runs.", self.loop_lag_s)
        for metric, samples in self.readings:
            yield _read(metric, samples)

    def _requests(self) -> Family:
        family = CounterMetricFamily(
            "slipstream_requests", "Requests placed, every attempt counted.", labels=("pool", "reason", "category")
        )
        for category in self.categories:
            counts = {(pool, reason): 0 for pool, reasons in DECISION_REASONS.items() for reason in reasons}
            for (pool, reason), count in (counts | dict(category.requests)).items():
                family.add_metric((pool, reason, category.name), count)
        return family

    def _endings(self) -> Family:
        family = CounterMetricFamily(
            "slipstream_request_endings", "Attempts ended, by how.", labels=("ending", "category")
        )
        for category in self.categories:
            for ending in Ending:
                family.add_metric((ending, category.name), self.endings.get((category.name, ending), 0))
        return family

    def _rejections(self) -> Family:
        family = CounterMetricFamily(
            "slipstream_rejected_requests", "Requests the gateway itself answered with an error.", labels=("error",)
        )
        for error, count in self.rejections.items():
            family.add_metric((error,), count)
        return family

    def _waits(self) -> Family:
        family = HistogramMetricFamily(
            "slipstream_queue_wait_seconds", "Time in the queue of requests that were then placed.", labels=("class",)
        )
        for traffic_class, histogram in self.waits.items():
            _add_histogram(family, (traffic_class,), histogram)
        return family

    def _latencies(self) -> Iterator[Family]:
        none = Latencies()
        at_start = {(pool, category.name): none for pool in Pool for category in self.categories}
        rows = {**at_start, **self.latencies}.items()
        yield _histograms("ttft", "Time to the first token of streamed answers.", {k: row.ttft for k, row in rows})
        yield _histograms("tpot", "Time per output token after the first.", {k: row.tpot for k, row in rows})
        yield _histograms("e2e", "Time from arrival to the end of the answer.", {k: row.e2e for k, row in rows})
        yield _tokens("prompt", "Prompt tokens, where answers told.", {k: row.prompt_tokens for k, row in rows})
        yield _tokens("output", "Output tokens, where answers told.", {k: row.output_tokens for k, row in rows})


def render(snapshot: Snapshot) -> bytes:
    """The page in Prometheus' text format, from a registry of its own. Safe in another thread."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(snapshot)
    return generate_latest(registry)


def _histograms(name: str, meaning: str, rows: Mapping[tuple[Pool, str], Histogram]) -> Family:
    family = HistogramMetricFamily(f"slipstream_{name}_seconds", meaning, labels=("pool", "category"))
    for key, histogram in rows.items():
        _add_histogram(family, key, histogram)
    return family


def _tokens(name: str, meaning: str, rows: Mapping[tuple[Pool, str], int]) -> Family:
    family = CounterMetricFamily(f"slipstream_{name}_tokens", meaning, labels=("pool", "category"))
    for key, count in rows.items():
        family.add_metric(key, count)
    return family


def _measured(
    prefix: str, measures: Sequence[Measure[Row]], rows: Sequence[tuple[tuple[str, ...], Row]], labels: tuple[str, ...]
) -> Iterator[Family]:
    """One family a measure; ``rows`` come with the values of their ``labels``."""
    for measure in measures:
        family = _family(measure.kind)(f"{prefix}{measure.name}", measure.meaning, labels=labels)
        for key, row in rows:
            value = measure.value(row)
            if value is not None:
                family.add_metric(key, value)
        yield family


def _read(metric: Metric, samples: Samples) -> Family:
    family = _family(metric.kind)(f"slipstream_{metric.name}", metric.meaning, labels=metric.labels)
    for labels, value in samples.items():
        family.add_metric(labels, value)
    return family


def _family(kind: Kind) -> type[GaugeMetricFamily | CounterMetricFamily]:
    return GaugeMetricFamily if kind is Kind.GAUGE else CounterMetricFamily


def _gauge(name: str, meaning: str, value: float | None) -> Family:
    family = GaugeMetricFamily(name, meaning, labels=())
    if value is not None:
        family.add_metric((), value)
    return family


def _add_histogram(family: HistogramMetricFamily, labels: Sequence[str], histogram: Histogram) -> None:
    family.add_metric(labels, histogram.buckets(), histogram.total)
