"""Requests that have ended, made by hand."""

from __future__ import annotations

from slipstream.core.acceptance import SpeculationSample
from slipstream.core.dispatch import Placement
from slipstream.core.history import Attempt, History
from slipstream.core.latency import Latency
from slipstream.core.node import NodeSpec
from slipstream.core.node_state import NodeState
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.policy import Decision, Reason
from slipstream.core.request import Pool, RequestShape

__all__ = ["ANSWERED", "SHAPE", "attempt", "history"]

ANSWERED = Outcome(
    Ending.COMPLETED, 200, Latency(0.1234564, 0.0213456, 1.7123454), 120, 76, SpeculationSample(100, 60, 25, 76)
)

SHAPE = RequestShape("m", "code")


def attempt(
    outcome: Outcome | None = ANSWERED, node: str = "spec-0", number: int = 1, at: float = 10.001, draw: float = 0.25
) -> Attempt:
    """One placement on a speculative node that works on two sequences of others, settled with ``outcome``."""
    state = NodeState(NodeSpec(node, "http://10.0.0.1:8000", Pool.SPECULATIVE), 0.0)
    state.foreign = 3
    decision = Decision(node, Pool.SPECULATIVE, Reason.SPECULATIVE, 17, draw, at)
    placement = Placement("r-1", SHAPE, decision, state, number)
    placement.outcome = outcome
    return Attempt(placement)


def history(
    *attempts: Attempt,
    request_id: str = "r-1",
    path: str = "/v1/chat/completions",
    key_id: str | None = None,
    shape: RequestShape | None = SHAPE,
    status: int | None = 200,
    error: str | None = None,
) -> History:
    """A request received at 10 s and ended at 12.5 s."""
    return History(request_id, "POST", path, key_id, 10.0, 12.5, shape, attempts, status, error)
