"""What a fleet tells about itself: one row a node and one row a category, for metrics, tables and JSON alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from slipstream.core.acceptance import AcceptanceBook, AcceptanceEstimate, Interval
from slipstream.core.calibration_watch import is_outdated
from slipstream.core.circuit import CircuitState
from slipstream.core.dispatch import Dispatcher
from slipstream.core.node import SpeculativeCounters
from slipstream.core.node_state import NodeState
from slipstream.core.policy import PolicyKind, Reason, ThresholdPolicy
from slipstream.core.recheck import Learned
from slipstream.core.request import Pool

__all__ = ["CategorySummary", "NodeSummary", "category_summaries", "node_summaries"]


@dataclass(frozen=True, slots=True)
class NodeSummary:
    """One node now. ``None`` = unknown, or (``ceiling``) without meaning for this node's pool.

    ``state`` is one word, see ``NodeState.state``; ``closed`` is why the node takes no request of its pool, ``None``
    when it takes them. ``occupancy`` counts sequences, ``own`` and ``foreign`` its parts; they are unknown while the
    node does not say what it runs, but for ``own``. ``circuit`` is what its requests' failures have come to, and
    ``ejections`` how often they took it out. ``capacity_left`` is how many sequences fit below the limit of its
    pool: ``ceiling`` for speculative nodes, ``limit`` for standard ones; 0 on a speculative node without active
    speculator. ``policy`` is by which the node is judged. ``learned_ceiling`` is where policy ``predictive``, which
    looks at no ceiling, found that it takes no more. ``tau``, ``alpha`` and ``k`` are measured over all its categories.
    ``drafted``, ``accepted`` (tokens) and ``verify_steps`` count since the engine's start. ``saturated_share`` is of
    the last ten minutes, 0..1, as is ``kv_use`` of the cache. ``report_age_s`` is the age of its last report. ``error``
    says what is wrong with it, ``None`` when nothing is. ``calibration_stale`` is whether its profile no longer holds
    (``None`` = it has none), and ``fallen_back`` whether its ceiling is the default for that. ``learned`` is its time
    per token by occupancy from its own traffic, a few seconds old, and ``tpot_ratio`` that over its profile's.
    """

    name: str
    pool: Pool
    state: str
    closed: Reason | None
    engine: str | None
    models: tuple[str, ...]
    speculator: str | None
    healthy: bool
    fresh: bool
    saturated: bool
    circuit: CircuitState
    ejections: int
    occupancy: int | None
    own: int
    foreign: int | None
    waiting: int | None
    ceiling: int | None
    limit: int
    capacity_left: int | None
    policy: PolicyKind
    learned_ceiling: int | None
    kv_use: float | None
    tau: float | None
    alpha: float | None
    k: float | None
    drafted: int | None
    accepted: int | None
    verify_steps: int | None
    saturation_events: int
    saturated_share: float | None
    report_age_s: float | None
    error: str | None
    calibration_stale: bool | None
    fallen_back: bool
    tpot_ratio: float | None
    learned: Sequence[Learned]


@dataclass(frozen=True, slots=True)
class CategorySummary:
    """What is known of one category over all models and speculators. ``None`` = not measured yet.

    ``interval`` is the 95 % interval of ``alpha``. ``drafted`` and ``accepted`` count tokens and ``evidence_requests``
    requests with statistics of their own since the start. ``requests`` counts placements since the start by pool and
    reason, without those that never happened.
    """

    name: str
    alpha: float | None
    k: float | None
    interval: Interval | None
    tau: float | None
    tokens_per_step: float | None
    drafted: int | None
    accepted: int | None
    evidence_requests: int
    requests: Mapping[tuple[Pool, Reason], int]


def node_summaries(dispatcher: Dispatcher, now: float) -> list[NodeSummary]:
    """Every node of the fleet, in the order they were added."""
    book, policy = dispatcher.evidence.book, dispatcher.policy
    return [_node_summary(node, book.node_estimate(node.name), policy, now) for node in dispatcher.fleet.nodes()]


def category_summaries(dispatcher: Dispatcher, names: Iterable[str]) -> list[CategorySummary]:
    """The categories in ``names``, in that order."""
    requests: dict[str, dict[tuple[Pool, Reason], int]] = {}
    for (category, pool, reason), count in dispatcher.requests.items():
        requests.setdefault(category, {})[pool, reason] = count
    book = dispatcher.evidence.book
    return [_category_summary(name, _category_estimate(book, name), requests.get(name, {})) for name in names]


def _node_summary(
    node: NodeState, estimate: AcceptanceEstimate | None, policy: ThresholdPolicy, now: float
) -> NodeSummary:
    report = node.report
    known = node.healthy and report is not None and report.sequences is not None
    counters = report.counters if report is not None and report.counters is not None else SpeculativeCounters()
    speculative = node.pool is Pool.SPECULATIVE
    left = node.speculative_capacity if speculative else max(0, node.limit - node.occupancy)
    return NodeSummary(
        name=node.name,
        pool=node.pool,
        state=node.state,
        closed=node.closed,
        engine=node.engine,
        models=node.models,
        speculator=node.speculator.fingerprint if node.speculator is not None else None,
        healthy=node.healthy,
        fresh=node.fresh,
        saturated=node.saturated,
        circuit=node.circuit.state,
        ejections=node.circuit.ejections,
        occupancy=node.occupancy if known else None,
        own=node.own,
        foreign=node.foreign if known else None,
        waiting=report.waiting if report is not None and known else None,
        ceiling=node.ceiling if speculative else None,
        limit=node.limit,
        capacity_left=left if known else None,
        policy=policy.kind_for(node),
        learned_ceiling=policy.learned_ceiling(node.name),
        kv_use=report.kv_use if report is not None and known else None,
        tau=estimate.tau if estimate is not None else None,
        alpha=estimate.alpha if estimate is not None else None,
        k=estimate.k if estimate is not None and estimate.k is not None else node.k,
        drafted=counters.drafted,
        accepted=counters.accepted,
        verify_steps=counters.verify_steps,
        saturation_events=node.saturation_events,
        saturated_share=node.saturated_time.share(now) if speculative else None,
        report_age_s=None if node.reported_at is None else max(0.0, now - node.reported_at),
        error=node.error or _failing(node, now),
        calibration_stale=None if node.spec.calibration is None else is_outdated(node),
        fallen_back=node.recheck.fallen_back,
        tpot_ratio=node.recheck.ratio,
        learned=node.recheck.learned,
    )


def _failing(node: NodeState, now: float) -> str | None:
    circuit = node.circuit
    if circuit.state is CircuitState.CLOSED:
        return None
    if circuit.state is CircuitState.OPEN and circuit.retry_at > now:
        return f"its requests fail, though its metrics answer; it is tried again in {circuit.retry_at - now:.0f} s"
    return "its requests failed, though its metrics answer; it gets one at a time until one succeeds"


def _category_estimate(book: AcceptanceBook, name: str) -> AcceptanceEstimate:
    """From its requests where they said anything, else the firmest split of node counters."""
    measured = book.category_estimate(name)
    if measured.requests:
        return measured
    attributed = [
        estimate for (_, _, category), estimate in book.estimates() if category == name and estimate.attributed
    ]
    return max(attributed, key=_firmness, default=measured)


def _firmness(estimate: AcceptanceEstimate) -> float:
    return estimate.attributed.effective_requests if estimate.attributed is not None else 0.0


def _category_summary(
    name: str, estimate: AcceptanceEstimate, requests: Mapping[tuple[Pool, Reason], int]
) -> CategorySummary:
    evidence = estimate.evidence
    return CategorySummary(
        name=name,
        alpha=estimate.alpha,
        k=estimate.k,
        interval=estimate.alpha_interval,
        tau=estimate.tau,
        tokens_per_step=estimate.tokens_per_step,
        drafted=evidence.total_drafted if evidence.requests else None,
        accepted=evidence.total_accepted if evidence.requests else None,
        evidence_requests=evidence.requests,
        requests=requests,
    )
