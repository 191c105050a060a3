"""Requests that have ended, made by hand."""

from __future__ import annotations

from hypothesis import strategies as st

from slipstream.core.acceptance import SpeculationSample
from slipstream.core.dispatch import Placement
from slipstream.core.history import Attempt, History
from slipstream.core.latency import Latency
from slipstream.core.node import NodeSpec
from slipstream.core.node_state import NodeState
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.policy import Decision, Reason
from slipstream.core.request import PinSource, Pool, RequestShape, TrafficClass

__all__ = ["ANSWERED", "HISTORIES", "SHAPE", "attempt", "history"]

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


_WORDS = st.text(max_size=300)
_COUNTS = st.integers(0, 2**40)
_SECONDS = st.floats(0.0, 1e6)


@st.composite
def _attempts(draw: st.DrawFn) -> Attempt:
    unstreamed = st.builds(Latency, st.none(), st.none(), _SECONDS)
    latency = unstreamed | st.builds(Latency, _SECONDS, st.none() | _SECONDS, _SECONDS)
    sample = st.builds(SpeculationSample, _COUNTS, _COUNTS, st.none() | _COUNTS)
    maybe = st.none() | _COUNTS
    outcome = st.builds(
        Outcome, st.sampled_from(Ending), maybe, st.none() | latency, maybe, maybe, st.none() | sample, maybe
    )
    made = attempt(draw(st.none() | outcome), draw(_WORDS), 1, draw(_SECONDS), draw(st.floats(0.0, 1.0)))
    made.occupancy, made.ceiling, made.limit = draw(_COUNTS), draw(_COUNTS), draw(_COUNTS)
    made.placement.decision.pool = draw(st.sampled_from(Pool))
    made.placement.decision.reason = draw(st.sampled_from(Reason))
    made.placement.decision.fleet_version = draw(_COUNTS)
    return made


_SHAPES = st.builds(
    RequestShape,
    _WORDS,
    _WORDS,
    st.sampled_from(TrafficClass),
    _COUNTS,
    st.none() | _COUNTS,
    st.booleans(),
    st.none() | _COUNTS,
    st.frozensets(_WORDS, max_size=3),
    st.none() | st.sampled_from(Pool),
    st.none() | _WORDS,
    st.booleans(),
    st.none() | st.integers(0, 2**64 - 1),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3).map(tuple),
    st.none() | _WORDS,
    st.none() | st.sampled_from(PinSource),
)


def _took(history: History, seconds: float) -> History:
    history.ended_at = history.received_at + seconds
    return history


HISTORIES = st.builds(
    _took,
    st.builds(
        History,
        _WORDS,
        _WORDS,
        _WORDS,
        st.none() | _WORDS,
        _SECONDS,
        st.just(0.0),
        st.none() | _SHAPES,
        st.lists(_attempts(), max_size=3).map(tuple),
        st.none() | _COUNTS,
        st.none() | _WORDS,
        st.none() | _SECONDS,
    ),
    _SECONDS,
)
"""Anything that a request could have become, and more."""
