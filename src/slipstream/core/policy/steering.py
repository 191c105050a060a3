"""Which policy decides, and what it decides by beside the settings that all of them share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slipstream.core.fleet import Fleet
from slipstream.core.goodput import Target
from slipstream.core.policy.kind import PolicyKind
from slipstream.core.policy.predictive import Forecasts, PredictivePolicy
from slipstream.core.policy.round_robin import RoundRobin
from slipstream.core.policy.threshold import Evidence, ThresholdPolicy, ThresholdSettings
from slipstream.core.request import TrafficClass

__all__ = ["Steering", "policy_of"]


@dataclass(frozen=True, slots=True)
class Steering:
    """``targets`` of the classes that have any, and ``forecasts`` of nodes, are for ``predictive`` alone. Two that are
    equal choose alike.
    """

    kind: PolicyKind = PolicyKind.THRESHOLD
    targets: Mapping[TrafficClass, Target] = field(default_factory=dict)
    forecasts: Forecasts | None = None


def policy_of(steering: Steering, settings: ThresholdSettings, evidence: Evidence, fleet: Fleet) -> ThresholdPolicy:
    """A policy that knows of no request yet. ``fleet`` is the one that it decides on."""
    if steering.forecasts is not None:
        return PredictivePolicy(settings, evidence, steering.forecasts, steering.targets)
    if steering.kind is PolicyKind.ROUND_ROBIN:
        return RoundRobin(settings, evidence, fleet)
    return ThresholdPolicy(settings, evidence)
