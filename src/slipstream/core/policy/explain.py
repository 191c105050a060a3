"""A past decision, candidate by candidate, recomputed from the fleet's journal."""

from __future__ import annotations

from slipstream.core.fleet import Fleet
from slipstream.core.node_state import NodeFacts
from slipstream.core.policy.decision import Candidate, Decision
from slipstream.core.policy.threshold import Evidence, ThresholdPolicy
from slipstream.core.reason import Reason
from slipstream.core.request import Pool, RequestShape

__all__ = ["candidates"]


def candidates(
    fleet: Fleet, policy: ThresholdPolicy, evidence: Evidence, decision: Decision, shape: RequestShape
) -> list[Candidate] | None:
    """Every node of the fleet as ``decision`` saw it; ``None`` when the journal no longer reaches back so far.

    ``evidence`` is acceptance as it was then (``Evidence`` rewound), so that a verdict that changed since does not
    rewrite history.
    """
    facts = fleet.facts_at(decision.fleet_version)
    if facts is None:
        return None
    return [_candidate(name, node, policy, evidence, decision, shape) for name, node in facts.items()]


def _candidate(
    name: str, node: NodeFacts, policy: ThresholdPolicy, evidence: Evidence, decision: Decision, shape: RequestShape
) -> Candidate:
    limit = node.ceiling if node.pool is Pool.SPECULATIVE else node.limit
    chosen = name == decision.node
    reason = decision.reason if chosen else _refusal(node, policy, evidence, decision, shape)
    return Candidate(name, node.pool, chosen, reason, node.occupancy, node.occupancy / limit)


def _refusal(
    node: NodeFacts, policy: ThresholdPolicy, evidence: Evidence, decision: Decision, shape: RequestShape
) -> Reason | None:
    if node.models and shape.model and shape.model not in node.models:
        return Reason.WRONG_MODEL
    if not node.healthy or node.draining:
        return node.closed
    if not node.models:
        return Reason.STALE  # it answers, and has never said anything that can be read
    if shape.pinned_pool is not None and shape.pinned_pool is not node.pool:
        return Reason.PINNED
    if decision.reason is Reason.HOLDBACK and node.pool is Pool.SPECULATIVE:
        return Reason.HOLDBACK
    if node.pool is Pool.SPECULATIVE and node.speculator is not None and shape.pinned_pool is None:
        reason = policy.request_reason(shape, node.speculator, node.engine, evidence)
        if reason is Reason.SPECULATIVE and policy.below_gain(shape, node.speculator, node.occupancy, evidence):
            reason = Reason.BELOW_GAIN
        if reason is not Reason.SPECULATIVE:
            return reason
    return node.closed
