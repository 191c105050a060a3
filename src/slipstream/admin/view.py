"""What the admin API shows, as plain data for JSON. Names are stable; unknown is ``None``; numbers carry their unit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from slipstream.admin.overrides import override_view
from slipstream.core.acceptance import OccupancyFigures
from slipstream.core.advice import Advice
from slipstream.core.calibration_watch import CalibrationSummary
from slipstream.core.dispatch import Placement, Refusal
from slipstream.core.occupancy_group import OccupancyGroup
from slipstream.core.overrides import Override
from slipstream.core.policy import AcceptanceFigure, Candidate, Decision
from slipstream.core.recheck import Learned
from slipstream.core.summary import CategorySummary, NodeSummary
from slipstream.telemetry.reloads import Reloads

__all__ = [
    "advice_view",
    "attempt_view",
    "calibrations_view",
    "config_view",
    "decision_view",
    "fleet_view",
    "occupancy_view",
]

Json = dict[str, Any]


def calibrations_view(calibrations: Iterable[CalibrationSummary]) -> list[Json]:
    """The profiles in use."""
    return [one._asdict() for one in calibrations]


def fleet_view(nodes: Iterable[NodeSummary], categories: Iterable[CategorySummary], *, blind: bool) -> Json:
    """The fleet now. ``blind``: every node's telemetry is stale at once."""
    return {
        "blind": blind,
        "nodes": [_node(node) for node in nodes],
        "categories": [_category(category) for category in categories],
    }


def config_view(reloads: Reloads, now: float) -> Json:
    """How often the configuration was read again, and what came of it last; ``None`` when it was not."""
    last = reloads.last
    shown = None if last is None else {"result": last.result, "age_s": now - last.at, "sentences": last.sentences}
    return {"reloads": dict(reloads.counts), "last": shown}


def _node(node: NodeSummary) -> Json:
    return {
        "name": node.name,
        "pool": node.pool,
        "state": node.state,
        "occupancy": node.occupancy,
        "ceiling": node.ceiling,
        "capacity_left": node.capacity_left,
        "policy": node.policy,
        "learned_ceiling": node.learned_ceiling,
        "alpha": node.alpha,
        "k": node.k,
        "tau": node.tau,
        "drafted": node.drafted,
        "accepted": node.accepted,
        "verify_steps": node.verify_steps,
        "saturation_events": node.saturation_events,
        "saturated_share": node.saturated_share,
        "healthy": node.healthy,
        "fresh": node.fresh,
        "eligible": node.closed is None,
        "closed": node.closed,
        "circuit": node.circuit,
        "ejections": node.ejections,
        "own": node.own,
        "foreign": node.foreign,
        "waiting": node.waiting,
        "limit": node.limit,
        "kv_use": node.kv_use,
        "engine": node.engine,
        "models": node.models,
        "speculator": node.speculator,
        "report_age_s": node.report_age_s,
        "error": node.error,
        "calibration_stale": node.calibration_stale,
        "ceiling_fallen_back": node.fallen_back,
        "profile_tpot_ratio": node.tpot_ratio,
        "learned": [_learned(one) for one in node.learned],
    }


def _learned(learned: Learned) -> Json:
    time, expected = learned
    return {
        "least": time.least,
        "most": time.most,
        "requests": time.requests,
        "tpot_ms": _ms(time.tpot_s),
        "interval_ms": None if time.interval is None else [_ms(end) for end in time.interval],
        "profile_tpot_ms": None if expected is None else _ms(expected.tpot_s),
        "profile_interval_ms": None if expected is None else [_ms(expected.low_s), _ms(expected.high_s)],
        "ratio": learned.ratio,
    }


def _category(category: CategorySummary) -> Json:
    by_pool: Counter[str] = Counter()
    by_reason: Counter[str] = Counter()
    for (pool, reason), count in category.requests.items():
        by_pool[pool] += count
        by_reason[reason] += count
    return {
        "name": category.name,
        "alpha": category.alpha,
        "k": category.k,
        "interval": category.interval,
        "tau": category.tau,
        "tokens_per_step": category.tokens_per_step,
        "drafted": category.drafted,
        "accepted": category.accepted,
        "evidence_requests": category.evidence_requests,
        "requests": {"by_pool": dict(by_pool), "by_reason": dict(by_reason)},
    }


def decision_view(attempt: Placement | Refusal, now: float) -> Json:
    """One attempt: where it went, why, and what came of it. What came of it is ``None`` while it runs; of a refused
    one, as is where it went and why.
    """
    decision, shape = attempt.decision, attempt.shape
    placed = not isinstance(attempt, Refusal)
    outcome = attempt.outcome if isinstance(attempt, Placement) else None
    latency = outcome.latency if outcome is not None else None
    sample = outcome.sample if outcome is not None else None
    return {
        "request_id": attempt.request_id,
        "attempt": attempt.attempt,
        "age_s": now - decision.at,
        "model": shape.model,
        "category": shape.category,
        "class": shape.traffic_class,
        "key_id": shape.key_id,
        "sequences": shape.sequences,
        "output_limit": shape.output_limit,
        "streamed": shape.streamed,
        "node": decision.node if placed else None,
        "pool": decision.pool if placed else None,
        "reason": decision.reason if placed else None,
        "by_affinity": decision.by_affinity if placed else None,
        "intended": _place(decision.intended) if decision.intended is not None else None,
        "pinned_by": shape.pinned_by,
        "queued_ms": _ms(attempt.queued_s),
        "session": f"{shape.session:016x}" if shape.session is not None else None,
        "ending": outcome.ending if outcome is not None else None,
        "status": outcome.status if outcome is not None else None,
        "ttft_ms": _ms(latency.ttft_s) if latency is not None else None,
        "tpot_ms": _ms(latency.tpot_s) if latency is not None else None,
        "e2e_ms": _ms(latency.e2e_s) if latency is not None else None,
        "prompt_tokens": outcome.prompt_tokens if outcome is not None else None,
        "output_tokens": outcome.output_tokens if outcome is not None else None,
        "drafted": sample.drafted if sample is not None else None,
        "accepted": sample.accepted if sample is not None else None,
    }


def _place(decision: Decision) -> Json:
    return {"node": decision.node, "pool": decision.pool, "reason": decision.reason}


def attempt_view(
    attempt: Placement | Refusal,
    candidates: Sequence[Candidate] | None,
    acceptance: Sequence[AcceptanceFigure] | None,
    now: float,
    override: Override | None = None,
) -> Json:
    """One attempt, every node as it was seen then and acceptance as it was known; ``candidates`` and ``acceptance`` are
    ``None`` when that was too long ago to tell. ``override`` is what fixed its pool.
    """
    refused = {"error": attempt.error, "sentence": attempt.sentence} if isinstance(attempt, Refusal) else None
    return {
        **decision_view(attempt, now),
        "refusal": refused,
        "override": None if override is None else override_view(override, now),
        "fleet_version": attempt.decision.fleet_version,
        "draw": attempt.decision.draw,
        "acceptance": None if acceptance is None else [figure._asdict() for figure in acceptance],
        "candidates": None if candidates is None else [_candidate(candidate) for candidate in candidates],
    }


def _candidate(candidate: Candidate) -> Json:
    foretold = candidate.foretold
    return {
        **candidate._asdict(),
        "foretold": None
        if foretold is None
        else {
            "ttft_ms": _ms(foretold.ttft_s),
            "tpot_ms": _ms(foretold.tpot_s),
            "e2e_ms": _ms(foretold.e2e_s),
            "worth": foretold.worth,
            "cost": foretold.cost,
        },
    }


def occupancy_view(groups: Iterable[OccupancyGroup]) -> list[Json]:
    """Acceptance and time per token by occupancy, for each group of nodes that run the same."""
    return [
        {
            "pool": group.pool,
            "models": group.models,
            "speculator": group.speculator,
            "nodes": group.nodes,
            "buckets": [_bucket(bucket) for bucket in group.buckets],
        }
        for group in groups
    ]


def _bucket(bucket: OccupancyFigures) -> Json:
    return {
        "least": bucket.least,
        "most": bucket.most,
        "requests": bucket.requests,
        "tau": bucket.tau,
        "alpha": bucket.alpha,
        "k": bucket.k,
        "tokens_per_step": bucket.tokens_per_step,
        "timed": bucket.timed,
        "tpot_ms": _ms(bucket.tpot_s),
    }


def advice_view(advice: Iterable[Advice]) -> list[Json]:
    """What an operator should look at."""
    return [
        {"code": one.code, "subject": one.subject, "sentence": one.sentence, "evidence": one.evidence} for one in advice
    ]


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3
