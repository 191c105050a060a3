"""Routing policies: pure functions of a fleet, a request's shape, a moment and one random draw."""

from slipstream.core.policy.decision import Candidate, Decision
from slipstream.core.policy.explain import candidates
from slipstream.core.policy.probing import ProbingSettings
from slipstream.core.policy.threshold import ThresholdPolicy, ThresholdSettings
from slipstream.core.reason import Reason

__all__ = ["Candidate", "Decision", "ProbingSettings", "Reason", "ThresholdPolicy", "ThresholdSettings", "candidates"]
