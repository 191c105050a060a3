"""What a run was worth: goodput, attainment and latencies of the requests that arrived in a window.

Definitions are DESIGN's and docs/explanation/simulator.md's, over columns. `core.latency` has the same ones a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slipstream.core.request import Pool, TrafficClass
from slipstream.sim.fate import REASONS, Fate
from slipstream.sim.run import NodeRun, Run
from slipstream.sim.scenario import Target
from slipstream.workload.plan import CLASSES

__all__ = [
    "UNPLACED",
    "Distribution",
    "Latencies",
    "LatencyCurves",
    "Measures",
    "NodeMeasures",
    "Requests",
    "latencies",
    "latency_curves",
    "measure",
]

UNPLACED = "unplaced"
"""Beside the reasons: the share of requests that no node ever got."""

_Flags = NDArray[np.bool_]
_Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Of the values known, in seconds; all ``None`` when none is. Percentiles lie on the line between two values."""

    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests of one kind that arrived in the window. Counts are floats, since means over seeds are of this shape too.

    ``offered`` = ``finished`` + ``shed`` (refused at once) + ``expired`` (in the gateway's queue) + ``unfinished``.
    ``goodput``: requests a second of the window that met all targets of their class. ``attainment``: their share of
    those offered, ``None`` when none was. Latencies are of those finished.
    """

    offered: float
    finished: float
    shed: float
    expired: float
    unfinished: float
    goodput: float
    attainment: float | None
    ttft: Distribution
    tpot: Distribution
    e2e: Distribution


@dataclass(frozen=True, slots=True)
class NodeMeasures:
    """One node over the whole run. ``busy_share`` 0..1; ``running_*`` are sequences, over its steps."""

    busy_share: float | None
    running_mean: float
    running_p95: float
    running_peak: float
    saturated_share: float
    preemptions: float


@dataclass(frozen=True, slots=True)
class Measures:
    """A run over a window. Everything is of the requests that arrived in it, except where said.

    ``tokens_per_s``: output tokens that came out in the window, whenever their requests arrived; a request's tokens are
    spread evenly from its first to its end. ``tokens_per_s_per_gpu``: over the GPUs that were there, on average over
    the run. ``wasted_drafts``: share of drafted tokens rejected; ``wasted_verification``: rejected ones as a share of
    all query tokens of verify steps. ``queued``: wait in the gateway, of all requests, 0 for those that did not wait;
    ``engine_wait``: wait in the engine, of those that ran. Over the whole run: ``running_mean`` and ``running_p95``
    sequences admitted to a node (means over nodes, weighted by their steps), ``saturated_share`` of the time (mean over
    speculative nodes, ``None`` without any), ``busy_share``. ``reasons``: share of requests by the reason for their
    last placement; they and `UNPLACED` sum up to 1.
    """

    requests: Requests
    classes: Mapping[str, Requests]
    categories: Mapping[str, Requests]
    tokens_per_s: float
    tokens_per_s_per_gpu: float | None
    wasted_drafts: float | None
    wasted_verification: float | None
    queued: Distribution
    engine_wait: Distribution
    running_mean: float | None
    running_p95: float | None
    saturated_share: float | None
    busy_share: float | None
    reasons: Mapping[str, float]
    nodes: Mapping[str, NodeMeasures]


@dataclass(frozen=True, slots=True)
class Latencies:
    """Columns as long as the plan, in seconds, NaN = unknown; ``good``: met all targets of its class.

    TTFT also of a request that is not finished; TPOT and E2E of those finished only. TPOT is NaN with one token.
    """

    ttft_s: _Seconds
    tpot_s: _Seconds
    e2e_s: _Seconds
    good: _Flags


@dataclass(frozen=True, slots=True)
class LatencyCurves:
    """Quantiles from the least to the most, evenly spaced, in seconds; empty when nothing is known."""

    ttft_s: tuple[float, ...]
    tpot_s: tuple[float, ...]
    e2e_s: tuple[float, ...]


def latencies(run: Run, targets: Mapping[TrafficClass, Target]) -> Latencies:
    """Of every request of a run. A class without targets is good when it finishes."""
    plan = run.plan
    finished = run.fate == Fate.FINISHED
    ttft = run.first_token_s - plan.arrival_s
    e2e = np.where(finished, run.ended_s - plan.arrival_s, np.nan)
    more = plan.output_tokens - 1
    tpot = np.where(more > 0, (e2e - ttft) / np.maximum(more, 1), np.nan)
    good = finished.copy()
    for number, traffic_class in enumerate(CLASSES):
        target = targets.get(traffic_class)
        if target is None:
            continue
        own = plan.traffic_class == number
        for limit, seconds in ((target.ttft_s, ttft), (target.tpot_s, tpot), (target.e2e_s, e2e)):
            if limit is not None:
                good &= ~(own & (seconds > limit))  # NaN exceeds nothing: one token passes TPOT by definition
    return Latencies(ttft, tpot, e2e, good)


def latency_curves(run: Run, *, window: tuple[float, float], points: int = 201) -> LatencyCurves:
    """Of the requests finished that arrived in ``window``."""
    start, end = window
    found = latencies(run, {})
    mine = (run.plan.arrival_s >= start) & (run.plan.arrival_s < end) & (run.fate == Fate.FINISHED)
    return LatencyCurves(*(_curve(column[mine], points) for column in (found.ttft_s, found.tpot_s, found.e2e_s)))


def _curve(values: _Seconds, points: int) -> tuple[float, ...]:
    known = values[~np.isnan(values)]
    return tuple(np.quantile(known, np.linspace(0.0, 1.0, points)).tolist()) if known.size else ()


def measure(run: Run, targets: Mapping[TrafficClass, Target], *, window: tuple[float, float]) -> Measures:
    """Of the requests that arrived from ``window``'s first second up to its last. ValueError for an empty window."""
    start, end = window
    if not end > start:
        raise ValueError(f"a window ends after it begins, not from {start:g} to {end:g}")
    plan = run.plan
    found = latencies(run, targets)
    offered = (plan.arrival_s >= start) & (plan.arrival_s < end)
    seconds = end - start

    def of(kind: _Flags) -> Requests:
        return _requests(run, found, offered & kind, seconds)

    placed = offered & (run.node >= 0)
    drafted, accepted = int(run.drafted[offered].sum()), int(run.accepted[offered].sum())
    verified = drafted + int(run.verify_steps[offered].sum())
    tokens_per_s = _tokens_within(run, start, end) / seconds
    gpus = sum(node.gpus * node.seconds for node in run.nodes) / run.ended_at_s if run.ended_at_s > 0.0 else 0.0
    there_s = sum(node.seconds for node in run.nodes)
    speculative = [node.saturated_share for node in run.nodes if node.pool is Pool.SPECULATIVE]
    return Measures(
        requests=of(np.ones(len(plan), bool)),
        classes={str(name): of(plan.traffic_class == number) for number, name in enumerate(CLASSES)},
        categories={name: of(plan.category == number) for number, name in enumerate(plan.categories)},
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_gpu=tokens_per_s / gpus if gpus > 0.0 else None,
        wasted_drafts=(drafted - accepted) / drafted if drafted else None,
        wasted_verification=(drafted - accepted) / verified if verified else None,
        queued=_distribution(run.queued_s[offered]),
        engine_wait=_distribution(run.engine_wait_s[placed]),
        running_mean=_over_steps([(node.steps, node.mean_running) for node in run.nodes]),
        running_p95=_over_steps([(node.steps, node.running_p95) for node in run.nodes]),
        saturated_share=sum(speculative) / len(speculative) if speculative else None,
        busy_share=sum(node.busy_s for node in run.nodes) / there_s if there_s > 0.0 else None,
        reasons=_reasons(run, offered),
        nodes={node.name: _node(node) for node in run.nodes},
    )


def _requests(run: Run, found: Latencies, mine: _Flags, seconds: float) -> Requests:
    fates = np.bincount(run.fate[mine], minlength=len(Fate))
    offered, good = int(mine.sum()), int((found.good & mine).sum())
    ended = mine & (run.fate == Fate.FINISHED)
    return Requests(
        offered=float(offered),
        finished=float(fates[Fate.FINISHED]),
        shed=float(fates[Fate.REFUSED]),
        expired=float(fates[Fate.EXPIRED]),
        unfinished=float(fates[Fate.UNFINISHED]),
        goodput=good / seconds,
        attainment=good / offered if offered else None,
        ttft=_distribution(found.ttft_s[ended]),
        tpot=_distribution(found.tpot_s[ended]),
        e2e=_distribution(found.e2e_s[ended]),
    )


def _distribution(values: _Seconds) -> Distribution:
    known = values[~np.isnan(values)]
    if not known.size:
        return Distribution(None, None, None, None)
    p50, p95, p99 = np.percentile(known, (50.0, 95.0, 99.0)).tolist()
    return Distribution(float(known.mean()), p50, p95, p99)


def _tokens_within(run: Run, start: float, end: float) -> float:
    """Output tokens from ``start`` to ``end``. Those of a request that is not finished came until the run was over."""
    began = ~np.isnan(run.first_token_s)
    first = run.first_token_s[began]
    last = np.where(np.isnan(run.ended_s), run.ended_at_s, run.ended_s)[began]
    finished = run.fate[began] == Fate.FINISHED
    output = run.plan.output_tokens[began]
    emitted = np.where(finished, output, np.minimum(output, 1 + run.steps[began] + run.accepted[began]))
    took = np.maximum(last - first, 0.0)
    inside = np.clip(np.minimum(last, end) - np.maximum(first, start), 0.0, None)
    later = emitted - 1
    share = np.where(took > 0.0, inside / np.where(took > 0.0, took, 1.0), (last >= start) & (last < end))
    return float(((first >= start) & (first < end)).sum() + (later * share).sum())


def _over_steps(figures: list[tuple[int, float]]) -> float | None:
    steps = sum(weight for weight, _ in figures)
    return sum(weight * figure for weight, figure in figures) / steps if steps else None


def _reasons(run: Run, offered: _Flags) -> dict[str, float]:
    counts = np.bincount(run.reason[offered].astype(np.int64) + 1, minlength=len(REASONS) + 1).tolist()
    total = max(1, int(offered.sum()))
    return {name: count / total for name, count in zip((UNPLACED, *map(str, REASONS)), counts, strict=True)}


def _node(node: NodeRun) -> NodeMeasures:
    return NodeMeasures(
        busy_share=node.busy_s / node.seconds if node.seconds > 0.0 else None,
        running_mean=node.mean_running,
        running_p95=node.running_p95,
        running_peak=float(node.running_peak),
        saturated_share=node.saturated_share,
        preemptions=float(node.preemptions),
    )
