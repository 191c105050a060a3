"""What an operator should look at, as data with the evidence for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice

from slipstream.core.acceptance import OccupancyFigures
from slipstream.core.calibration import Calibration
from slipstream.core.calibration_watch import change_since, is_outdated
from slipstream.core.circuit import CircuitState
from slipstream.core.dispatch import Dispatcher
from slipstream.core.fleet import Fleet
from slipstream.core.node import SpeculatorKind
from slipstream.core.node_state import NodeState
from slipstream.core.occupancy_group import OccupancyGroup, bucket_at, occupancy_groups
from slipstream.core.policy import PolicyKind, PredictivePolicy, Reason
from slipstream.core.request import Pool

__all__ = ["Advice", "AdviceCode", "advise", "not_foretold", "stale_calibrations"]

SATURATED_SHARE = 0.5
MINIMUM_REQUESTS = 50
THROUGHPUT_SHARE = 0.5
KV_NEARLY_FULL = 0.9
RECENT_REQUESTS = 1_000
"""Of the last requests, how many tell what the traffic is."""


class AdviceCode(StrEnum):
    """What the advice is about."""

    RAISE_CEILING = "raise_ceiling"
    EXCLUDE_CATEGORY = "exclude_category"
    CHANGE_DRAFT = "change_draft"
    ACCEPTANCE_FELL = "acceptance_fell"
    THROUGHPUT_BOUND = "throughput_bound"
    KV_CACHE_FULL = "kv_cache_full"
    NO_SPECULATOR = "no_speculator"
    TELEMETRY_LOST = "telemetry_lost"
    NODE_UNREACHABLE = "node_unreachable"
    NODE_UNREADABLE = "node_unreadable"
    NODE_EJECTED = "node_ejected"
    LIMIT_UNKNOWN = "limit_unknown"
    CALIBRATION_STALE = "calibration_stale"
    NOT_FORETOLD = "not_foretold"


@dataclass(frozen=True, slots=True)
class Advice:
    """``subject`` is a node, a category or ``fleet``. ``sentence`` says what is so and what to do. ``evidence`` holds
    the figures.
    """

    code: AdviceCode
    subject: str
    sentence: str
    evidence: dict[str, float | int | str | None] = field(default_factory=dict)


def advise(dispatcher: Dispatcher, now: float) -> list[Advice]:
    """All that the fleet's figures give reason to say, the gravest first; empty when there is nothing to say."""
    nodes = [node for node in dispatcher.fleet.nodes() if node.pool is Pool.SPECULATIVE]
    return [
        *_telemetry(dispatcher),
        *_out_of_sight(dispatcher.fleet),
        *_ejected(dispatcher.fleet.nodes()),
        *_limits(dispatcher.fleet.nodes()),
        *_without_speculator(nodes),
        *_falls(dispatcher, nodes, now),
        *stale_calibrations(dispatcher.fleet.nodes()),
        *not_foretold(dispatcher),
        *_draft_or_categories(dispatcher),
        *_ceilings(dispatcher, nodes, now),
        *_kv_cache(nodes),
        *_throughput(dispatcher),
    ]


def _telemetry(dispatcher: Dispatcher) -> Iterator[Advice]:
    if dispatcher.fleet.blind:
        yield Advice(
            AdviceCode.TELEMETRY_LOST,
            "fleet",
            "Every node's telemetry is stale at once, though none refuses to be asked: the fault is most likely this "
            "gateway's own (an event loop that is held up, or its network). Nothing is routed speculatively until "
            "reports arrive.",
            {"nodes": len(dispatcher.fleet), "stale_after_s": dispatcher.fleet.stale_after_s},
        )


def _out_of_sight(fleet: Fleet) -> Iterator[Advice]:
    """Nodes that can not be asked. When none can, that is one fault, not as many as there are nodes."""
    if fleet.blind:
        return
    for node in fleet.nodes():
        if node.error is None or (node.healthy and node.fresh):
            continue
        if not node.healthy:
            yield Advice(
                AdviceCode.NODE_UNREACHABLE,
                node.name,
                f"{node.name} can not be reached and gets no requests. Start its engine, or correct its url.",
                {"pool": node.pool, "error": node.error},
            )
        else:
            yield Advice(
                AdviceCode.NODE_UNREADABLE,
                node.name,
                f"{node.name} answers, but what it says of its load can not be read: it is not used for speculation, "
                "and otherwise only after nodes that can be read. Check its engine and the `engine` configured for it.",
                {"pool": node.pool, "error": node.error},
            )


def _ejected(nodes: Iterable[NodeState]) -> Iterator[Advice]:
    for node in nodes:
        if node.healthy and node.circuit.state is not CircuitState.CLOSED:
            yield Advice(
                AdviceCode.NODE_EJECTED,
                node.name,
                f"Requests to {node.name} fail, though its metrics answer: it gets one now and then to see whether it "
                "works again. Look at its engine's log.",
                {"pool": node.pool, "circuit": node.circuit.state, "ejections": node.circuit.ejections},
            )


def _limits(nodes: Iterable[NodeState]) -> Iterator[Advice]:
    """Nodes that have shown that they take less than is believed of them, since nobody has said what they take."""
    for node in nodes:
        learned, report = node.learned, node.report
        if report is None or not node.healthy or node.spec.max_in_flight is not None or report.capacity is not None:
            continue
        found = learned.limit if learned.limit is not None else learned.queues_from
        if found is None:
            continue
        shown = "refused requests" if learned.limit is not None else "let requests wait inside"
        yield Advice(
            AdviceCode.LIMIT_UNKNOWN,
            node.name,
            f"{node.name} does not say how many sequences it takes, and {shown} at {found}. Set its `max_in_flight` to "
            "what its engine was started with, so that requests wait where they can still go to another node.",
            {"found": found, "limit": node.limit, "running": report.running, "waiting": report.waiting},
        )


def _without_speculator(nodes: Iterable[NodeState]) -> Iterator[Advice]:
    for node in nodes:
        if node.healthy and node.error is None and node.speculator is None:
            yield Advice(
                AdviceCode.NO_SPECULATOR,
                node.name,
                f"{node.name} is in the speculative pool and reports no speculator. Start its engine with one, or "
                "move the "
                "node to the standard pool.",
                {"engine": node.engine},
            )


def _falls(dispatcher: Dispatcher, nodes: Iterable[NodeState], now: float) -> Iterator[Advice]:
    for node in nodes:
        fall = dispatcher.evidence.book.acceptance_fall(node.name)
        if fall is None:
            continue
        yield Advice(
            AdviceCode.ACCEPTANCE_FELL,
            node.name,
            f"Acceptance on {node.name} fell after a change ({fall.change}): {fall.tau:.2f} tokens per verify step, "
            f"where the same categories would have had {fall.expected_tau:.2f} before. Check that its draft belongs "
            "to its model, or go back.",
            {
                "change": fall.change,
                "age_s": now - fall.at,
                "tau": fall.tau,
                "expected_tau": fall.expected_tau,
                "requests": fall.requests,
                "requests_before": fall.requests_before,
            },
        )


def stale_calibrations(nodes: Iterable[NodeState]) -> list[Advice]:
    """Profiles that no longer hold, one advice for all nodes of which the same is so."""
    found: dict[tuple[Calibration, str, tuple[str, ...], bool], list[NodeState]] = {}
    for node in nodes:
        calibration = node.spec.calibration
        if calibration is not None and node.healthy and is_outdated(node):
            recheck = node.recheck
            change, departed = change_since(calibration, node), tuple(sorted(recheck.departed))
            found.setdefault((calibration, change, departed, recheck.fallen_back), []).append(node)
    return [_stale(calibration, change, changed) for (calibration, change, _, _), changed in found.items()]


def _stale(calibration: Calibration, change: str, nodes: list[NodeState]) -> Advice:
    """The figures are the first node's."""
    first, count = nodes[0], len(nodes)
    others = f" and {count - 1} other{'s' * (count > 2)}" if count > 1 else ""
    of = f"The calibration of {first.name}{others} ({calibration.date}, {calibration.file})"
    departed = "; ".join(first.recheck.departed.values())
    evidence: dict[str, float | int | str | None] = {
        "nodes": count, "change": change, "date": calibration.date, "file": calibration.file
    }  # fmt: skip
    if departed:
        evidence["departed"] = ", ".join(first.recheck.departed)
    if change:
        sentence = f"{of} is older than the fleet: {change}{'; ' * bool(departed)}{departed}."
    else:
        sentence = f"{of} no longer holds: {departed}."
    if first.recheck.fallen_back and first.pool is Pool.SPECULATIVE:
        evidence["ceiling"] = first.ceiling
        sentence += f" Its ceiling is {first.ceiling} for as long."
    return Advice(
        AdviceCode.CALIBRATION_STALE,
        first.name if count == 1 else "fleet",
        f"{sentence} Measure again with `slipstream calibrate`.",
        evidence,
    )


def not_foretold(dispatcher: Dispatcher) -> list[Advice]:
    """Nodes that policy ``predictive`` leaves to ``threshold``, one advice for each cause."""
    policy = dispatcher.policy
    if not isinstance(policy, PredictivePolicy):
        return []
    found: dict[str, list[NodeState]] = {}
    for node in dispatcher.fleet.nodes():
        lacks_draft = node.pool is Pool.SPECULATIVE and node.speculator is None
        if node.healthy and not lacks_draft and policy.kind_for(node) is PolicyKind.THRESHOLD:
            found.setdefault(_why_not_foretold(node), []).append(node)
    return [_not_foretold(why, nodes) for why, nodes in found.items()]


def _why_not_foretold(node: NodeState) -> str:
    calibration = node.spec.calibration
    if calibration is None:
        return "no profile is configured for it"
    if is_outdated(node):
        return "its calibration is stale"
    return f"its profile ({calibration.file}) has no times for what it drafts"


def _not_foretold(why: str, nodes: list[NodeState]) -> Advice:
    count = len(nodes)
    others = f" and {count - 1} other{'s' * (count > 2)} like it" if count > 1 else ""
    return Advice(
        AdviceCode.NOT_FORETOLD,
        nodes[0].name if count == 1 else "fleet",
        f"{nodes[0].name}{others}: {why}, so requests are placed there by threshold, not by routing.policy predictive. "
        "Measure with `slipstream calibrate`, and name what it writes as `profile`.",
        {"nodes": count, "because": why},
    )


def _draft_or_categories(dispatcher: Dispatcher) -> Iterator[Advice]:
    """A category below break-even should go; when all are, the draft is the problem and not the infrastructure."""
    settings = dispatcher.policy.settings
    low: list[Advice] = []
    measured = 0
    for (model, fingerprint, category), estimate in dispatcher.evidence.book.estimates():
        if estimate.requests < MINIMUM_REQUESTS or estimate.tokens_per_step is None:
            continue
        measured += 1
        ngram = fingerprint.startswith(SpeculatorKind.NGRAM.value)
        value = estimate.tokens_per_step if ngram else estimate.alpha
        interval = estimate.tokens_per_step_interval if ngram else estimate.alpha_interval
        floor = settings.tokens_per_step_floor if ngram else settings.alpha_floor
        name = "tokens per step" if ngram else "alpha"
        if value is None or interval is None or interval[1] >= floor:
            continue  # not below it, or by no more than chance
        low.append(
            Advice(
                AdviceCode.EXCLUDE_CATEGORY,
                category,
                f"{category}: {name} {value:.3f} (95 % interval {interval[0]:.3f} to {interval[1]:.3f}) is below "
                f"{floor:g}, so drafting for it costs more than it gives. It is kept off the "
                "speculative nodes; pin it to the standard pool to end the probes too.",
                {
                    "model": model,
                    "speculator": fingerprint,
                    "value": value,
                    "lower": interval[0],
                    "upper": interval[1],
                    "floor": floor,
                    "requests": estimate.requests,
                },
            )
        )
    if measured >= 3 and len(low) == measured:
        yield Advice(
            AdviceCode.CHANGE_DRAFT,
            "fleet",
            f"Acceptance is below its floor in all {measured} measured categories: the draft is the problem, not the "
            "infrastructure. A draft model tuned on this traffic usually moves alpha far more than any setting here.",
            {"categories": measured},
        )
    yield from low


def _ceilings(dispatcher: Dispatcher, nodes: Iterable[NodeState], now: float) -> Iterator[Advice]:
    groups: list[OccupancyGroup] | None = None
    for node in nodes:
        share = node.saturated_time.share(now)
        if share is None or share < SATURATED_SHARE:
            continue
        if groups is None:
            groups = occupancy_groups(dispatcher, now)
        figures = next(group.buckets for group in groups if node.name in group.nodes)
        evidence: dict[str, float | int | str | None] = {
            "ceiling": node.ceiling,
            "saturated_share": share,
            "saturation_events": node.saturation_events,
        }
        said = _shown(bucket_at(figures, node.ceiling), "at_ceiling", evidence)
        if node.ceiling == node.limit:
            advice = "That is all its engine takes: give it more slots, or add a node."
        else:
            higher = min(node.limit, 12 if node.ceiling < 12 else 16 if node.ceiling < 16 else node.ceiling * 2)
            there, here = bucket_at(figures, higher), bucket_at(figures, node.ceiling)
            above = "" if there == here else _shown(there, "above", evidence)
            advice = (
                f"Raise the ceiling to {higher} and look at acceptance and time per token there before calling "
                "speculation impractical."
            )
            evidence["higher_ceiling"] = higher
            if above:
                advice += f" Where nodes like it have been above, {above}."
        at_ceiling = f" At its ceiling {said}." if said else ""
        yield Advice(
            AdviceCode.RAISE_CEILING,
            node.name,
            f"{node.name} was at its ceiling of {node.ceiling} for {share:.0%} of the last ten minutes.{at_ceiling} "
            f"{advice}",
            evidence,
        )


def _shown(figures: OccupancyFigures | None, where: str, evidence: dict[str, float | int | str | None]) -> str:
    """What a bucket says, in words, and into ``evidence``; empty when it says too little."""
    if figures is None or max(figures.requests, figures.timed) < MINIMUM_REQUESTS:
        return ""
    tpot_ms = None if figures.tpot_s is None else figures.tpot_s * 1e3
    evidence[f"tau_{where}"], evidence[f"tpot_{where}_ms"] = figures.tau, tpot_ms
    evidence[f"requests_{where}"] = max(figures.requests, figures.timed)
    parts = []
    if figures.tau is not None:
        parts.append(f"{figures.tau:.2f} tokens per verify step")
    if tpot_ms is not None:
        parts.append(f"{tpot_ms:.1f} ms per token")
    most = "" if figures.most in {figures.least, None} else f" to {figures.most}"
    return f"({figures.least}{most} sequences) it was {' and '.join(parts)}" if parts else ""


def _kv_cache(nodes: Iterable[NodeState]) -> Iterator[Advice]:
    for node in nodes:
        use = node.report.kv_use if node.report is not None and node.healthy else None
        if use is not None and use >= KV_NEARLY_FULL:
            yield Advice(
                AdviceCode.KV_CACHE_FULL,
                node.name,
                f"{node.name} uses {use:.0%} of its KV cache: the memory of its draft would admit more requests.",
                {"kv_use": use},
            )


def _throughput(dispatcher: Dispatcher) -> Iterator[Advice]:
    recent = [placement.decision for placement in islice(dispatcher.placements(), RECENT_REQUESTS)]
    if len(recent) < MINIMUM_REQUESTS:
        return
    unsuited = sum((decision.intended or decision).reason in _UNSUITED for decision in recent)
    if unsuited / len(recent) >= THROUGHPUT_SHARE:
        yield Advice(
            AdviceCode.THROUGHPUT_BOUND,
            "fleet",
            f"{unsuited / len(recent):.0%} of the last {len(recent)} requests are bulk work or short answers: this "
            "fleet is bound by throughput, and standard nodes with large batches serve it better than more speculative "
            "ones.",
            {"requests": len(recent), "bulk_or_short": unsuited},
        )


_UNSUITED = frozenset({Reason.BULK, Reason.SHORT_OUTPUT})
