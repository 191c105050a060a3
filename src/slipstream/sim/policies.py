"""What a policy makes of a scenario: how its nodes are equipped, and by which settings the gateway decides.

Most baselines are what the gateway itself can be told to do, so it is the gateway's own object that does them: least
load is its mode `observe`, static lists are its pins, and nodes in turn its policy `round-robin`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from slipstream.core.evidence import CategoryEvidence
from slipstream.core.fleet import Fleet
from slipstream.core.policy import PredictivePolicy, RoundRobin, ThresholdPolicy, ThresholdSettings
from slipstream.core.request import Pool
from slipstream.enginemodel.settings import ImpossibleEngine
from slipstream.sim.forecasts import forecasts_of
from slipstream.sim.scenario import Equipment, NodeGroup, Policy, PolicyKind, Scenario

__all__ = ["ceiling_of", "equipped", "pins_of", "routing_of"]

NO_CEILING: Final = 1 << 30
"""Nodes of a static list are full when they are full."""

_LEAST_LOAD: Final = ThresholdSettings(observe=True, affinity_slack=None)
_LISTS: Final = ThresholdSettings(affinity_slack=None)


def equipped(group: NodeGroup, policy: Policy) -> tuple[Pool, Equipment]:
    """The pool of a group's nodes under a policy, and what they run.

    Raises ``ImpossibleEngine`` where nodes should speculate that have no speculator.
    """
    pool = group.pool
    if policy.kind is PolicyKind.ALL_STANDARD:
        pool = Pool.STANDARD
    elif policy.kind in (PolicyKind.ALL_SPECULATIVE, PolicyKind.ALL_SCHEDULED):
        pool = Pool.SPECULATIVE
    if pool is Pool.STANDARD:
        return pool, group.standard
    equipment = group.speculative
    if equipment is None or equipment.settings.speculation is None:
        raise ImpossibleEngine(f"nodes '{group.name}' have no speculator, but should speculate under '{policy.name}'")
    if policy.kind is PolicyKind.ALL_SCHEDULED:
        speculation = replace(equipment.settings.speculation, schedule=policy.schedule)
        equipment = replace(equipment, settings=replace(equipment.settings, speculation=speculation))
    return pool, equipment


def ceiling_of(group: NodeGroup, policy: Policy) -> int:
    """The ceiling of a group's speculative nodes, in sequences."""
    if policy.kind is PolicyKind.SPLIT_LISTS:
        return NO_CEILING
    return group.ceiling if policy.ceiling is None else policy.ceiling


def pins_of(scenario: Scenario, policy: Policy) -> Mapping[str, Pool]:
    """The pool of each category that a policy fixes one for."""
    if policy.kind is not PolicyKind.SPLIT_LISTS:
        return {}
    listed = policy.speculative_categories
    return {
        category.name: Pool.SPECULATIVE if category.name in listed else Pool.STANDARD
        for category in scenario.categories
    }


def routing_of(scenario: Scenario, policy: Policy, evidence: CategoryEvidence, fleet: Fleet) -> ThresholdPolicy:
    """The object that decides. Raises ``ValueError`` for the bound, which decides nothing."""
    match policy.kind:
        case PolicyKind.PREDICTIVE:
            forecasts = forecasts_of(scenario.groups, lambda group: equipped(group, policy)[1], policy.profile_error)
            return PredictivePolicy(policy.threshold, evidence, forecasts, scenario.targets)
        case PolicyKind.THRESHOLD:
            return ThresholdPolicy(policy.threshold, evidence)
        case PolicyKind.SPLIT_LISTS:
            return ThresholdPolicy(_LISTS, evidence)
        case PolicyKind.SPLIT_ROUND_ROBIN:
            return RoundRobin(_LISTS, evidence, fleet)
        case PolicyKind.BOUND:
            raise ValueError("the bound is computed, not simulated")
        case _:
            return ThresholdPolicy(_LEAST_LOAD, evidence)
