"""Routing policies: pure functions of a fleet, a request's shape, a moment and one random draw."""

from slipstream.core.policy.decision import AcceptanceFigure, Candidate, Decision, Foretold
from slipstream.core.policy.explain import acceptance_figures, candidates
from slipstream.core.policy.kind import PolicyKind
from slipstream.core.policy.predictive import Forecasts, PredictivePolicy
from slipstream.core.policy.probing import ProbingSettings
from slipstream.core.policy.round_robin import RoundRobin
from slipstream.core.policy.steering import Steering, policy_of
from slipstream.core.policy.threshold import ThresholdPolicy, ThresholdSettings
from slipstream.core.reason import Reason

__all__ = [
    "AcceptanceFigure",
    "Candidate",
    "Decision",
    "Forecasts",
    "Foretold",
    "PolicyKind",
    "PredictivePolicy",
    "ProbingSettings",
    "Reason",
    "RoundRobin",
    "Steering",
    "ThresholdPolicy",
    "ThresholdSettings",
    "acceptance_figures",
    "candidates",
    "policy_of",
]
