"""A past decision, candidate by candidate and figure by figure, recomputed from the fleet's journal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from slipstream.core.fleet import Fleet
from slipstream.core.node import Speculator, SpeculatorKind
from slipstream.core.node_state import NodeFacts
from slipstream.core.policy.decision import AcceptanceFigure, Candidate, Decision, Foretold
from slipstream.core.policy.threshold import Evidence, ThresholdPolicy
from slipstream.core.reason import Reason
from slipstream.core.request import Pool, RequestShape

__all__ = ["acceptance_figures", "candidates"]


def candidates(
    fleet: Fleet,
    policy: ThresholdPolicy,
    evidence: Evidence,
    decision: Decision,
    shape: RequestShape,
    residents: Mapping[str, Sequence[RequestShape]],
    tried: Collection[str] = (),
) -> list[Candidate] | None:
    """Every node of the fleet as ``decision`` saw it; ``None`` when the journal no longer reaches back so far.

    ``evidence`` is acceptance as it was then (``Evidence`` rewound), so that a verdict that changed since does not
    rewrite history. ``residents`` are the requests of ours that each node had then. ``tried`` names the nodes of the
    request's earlier attempts.
    """
    facts = fleet.facts_at(decision.fleet_version)
    if facts is None:
        return None
    chosen = facts.get(decision.node)
    observed = policy.observes(shape)
    passed_over = _load(chosen) if chosen is not None and decision.by_affinity else -1.0
    found = []
    for name, node in facts.items():
        foretold = None
        if _serves(node, shape.model):
            foretold = policy.foretell(name, node.occupancy, shape, residents.get(name, ()))
        found.append(
            _candidate(
                name,
                node,
                policy,
                evidence,
                decision,
                shape,
                passed_over,
                foretold,
                observed=observed,
                tried=name in tried,
            )
        )
    return found


def acceptance_figures(
    fleet: Fleet, policy: ThresholdPolicy, evidence: Evidence, version: int, shape: RequestShape
) -> list[AcceptanceFigure] | None:
    """What was known of the acceptance of the request's category, once for each speculator that could have served it.

    ``version`` is the fleet's, and ``evidence`` acceptance as it was then; ``None`` when the journal no longer reaches
    back so far.
    """
    facts = fleet.facts_at(version)
    if facts is None:
        return None
    speculators = {
        node.speculator.fingerprint: node.speculator
        for node in facts.values()
        if node.speculator is not None and _serves(node, shape.model)
    }
    return [_figure(speculator, policy, evidence, shape) for speculator in speculators.values()]


def _figure(
    speculator: Speculator, policy: ThresholdPolicy, evidence: Evidence, shape: RequestShape
) -> AcceptanceFigure:
    estimate = evidence.estimate(shape.model, speculator, shape.category)
    settings = policy.settings
    if speculator.kind is SpeculatorKind.NGRAM:
        value, floor = estimate.tokens_per_step, settings.tokens_per_step_floor
        return AcceptanceFigure(speculator.fingerprint, "tokens_per_step", value, floor, estimate.source)
    return AcceptanceFigure(speculator.fingerprint, "alpha", estimate.alpha, settings.alpha_floor, estimate.source)


def _usable(node: NodeFacts) -> bool:
    return node.healthy and not node.draining and not node.refusing and node.occupancy < node.limit


def _serves(node: NodeFacts, model: str) -> bool:
    return not node.models or not model or model in node.models


def _load(node: NodeFacts) -> float:
    return node.occupancy / (node.ceiling if node.pool is Pool.SPECULATIVE else node.full_at)


def _candidate(
    name: str,
    node: NodeFacts,
    policy: ThresholdPolicy,
    evidence: Evidence,
    decision: Decision,
    shape: RequestShape,
    passed_over: float,
    foretold: Foretold | None,
    *,
    observed: bool,
    tried: bool,
) -> Candidate:
    """``passed_over``: up to this load, an open node of the chosen pool was passed over for affinity; below 0, none."""
    chosen = name == decision.node
    load = node.occupancy / node.full_at if observed else _load(node)
    if chosen:
        reason: Reason | None = decision.reason
    elif decision.intended is not None and decision.intended.node == name:
        reason = Reason.OBSERVE
    elif tried and _usable(node):
        reason = Reason.TRIED  # whatever else speaks against it, it would have been asked a second time
    else:
        reason = _refusal(name, node, policy, evidence, decision, shape)
        if reason is None and node.pool is decision.pool and load <= passed_over:
            reason = Reason.AFFINITY
    ceiling = node.ceiling if node.pool is Pool.SPECULATIVE else None
    return Candidate(name, node.pool, chosen, reason, node.occupancy, load, ceiling, node.fallen_back, foretold)


def _refusal(
    name: str,
    node: NodeFacts,
    policy: ThresholdPolicy,
    evidence: Evidence,
    decision: Decision,
    shape: RequestShape,
) -> Reason | None:
    if shape.previous_response is not None and _usable(node):
        return Reason.AFFINITY  # what it refers to is held by one node, whatever models and loads the others have
    if not _serves(node, shape.model):
        return Reason.WRONG_MODEL
    if not node.healthy or node.draining:
        return node.closed
    if not node.models:
        return Reason.STALE  # it answers, and has never said anything that can be read
    if not decision.node and policy.settings.fallback:
        # Any usable node would have been taken, whatever else speaks against it.
        return Reason.REJECTED_FEATURE if policy.rejects(shape, node.speculator, node.engine) else Reason.FULL
    if shape.pinned_pool is not None and shape.pinned_pool is not node.pool:
        return Reason.PINNED
    if decision.reason is Reason.HOLDBACK and node.pool is Pool.SPECULATIVE:
        return Reason.HOLDBACK
    return policy.node_reason(name, node, shape, decision, evidence)
