"""What the agent beside an engine (`slipstream node`) says of it, and the report that it amounts to."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from slipstream.core.errors import SlipstreamError
from slipstream.core.node import NodeReport, SpeculativeCounters, SpeculatorKind
from slipstream.core.request import Pool
from slipstream.engines.document import read_document
from slipstream.engines.usage import Count

__all__ = ["AgentEngine", "AgentRefused", "AgentSpeculator", "AgentState", "AgentSwitch", "Transition", "read_state",
           "report_of"]  # fmt: skip

Transition = Literal["draining", "stopping", "starting", "warming"]
Text = Annotated[str, msgspec.Meta(max_length=4096)]
Name = Annotated[str, msgspec.Meta(max_length=1024)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e9)]
UnixTime = Annotated[float, msgspec.Meta(ge=0.0, le=1e12)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


class AgentRefused(SlipstreamError):
    """The agent did not do what it was told. ``status`` is its answer's, ``code`` the word for why, ``None`` = none."""

    def __init__(self, sentence: str, status: int, code: str | None) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code


class AgentSpeculator(msgspec.Struct, frozen=True):
    """The active speculator. ``method`` is the engine's own word for it, ``kind`` what it amounts to, ``k`` the tokens
    that it drafts a verify step; each ``None`` where the engine does not say.
    """

    method: Name | None
    kind: SpeculatorKind | None
    k: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] | None


class AgentEngine(msgspec.Struct, frozen=True):
    """The engine. ``model`` is the first of the ``models`` that it serves. ``None`` = it has not said."""

    kind: Name | None
    version: Name | None
    model: Name | None
    models: Annotated[tuple[Name, ...], msgspec.Meta(max_length=1000)] | None


class AgentSwitch(msgspec.Struct, frozen=True, rename={"was": "from"}):
    """A change of role that has ended. ``began`` is Unix time in seconds; ``phases`` the seconds of each phase, the way
    back after a failure being the phase ``returning``. ``why`` says why it is not ``ok``.
    """

    was: Pool | None
    to: Pool
    began: UnixTime
    ok: bool
    why: Text | None
    phases: Annotated[dict[Name, Seconds], msgspec.Meta(max_length=100)]


class AgentState(msgspec.Struct, frozen=True):
    """Everything that an agent says. ``None`` = it does not know. ``target`` is the role that a switch under way is to
    give, ``None`` = none is.

    ``running``, ``waiting``, ``capacity`` and ``speculative_capacity`` (ceiling − occupancy) count sequences;
    ``kv_use`` is a share. ``drafted``, ``accepted``, ``verify_steps`` and ``generated_tokens`` are the engine's
    counters since its own start. ``alpha`` (0..1) and ``tau`` (1..K+1) are of the last ten minutes, roughly. ``age_s``
    is how long ago the engine was asked for all this; ``readings`` counts the times that it was. ``error`` says why it
    is not ``healthy``. ``holder`` commands it. ``version`` rises with each change; ``time`` is Unix time in seconds.
    """

    name: Name
    role: Pool | None
    transition: Transition | None
    target: Pool | None
    draining: bool
    healthy: bool
    error: Text | None
    switchable: bool
    holder: Name | None
    speculator: AgentSpeculator | None
    speculative_capacity: Count | None
    running: Count | None
    waiting: Count | None
    capacity: Count | None
    kv_use: Share | None
    drafted: Count | None
    accepted: Count | None
    verify_steps: Count | None
    generated_tokens: Count | None
    alpha: Share | None
    tau: Annotated[float, msgspec.Meta(ge=1.0)] | None
    engine: AgentEngine
    fingerprint: Name | None
    switches: Annotated[tuple[AgentSwitch, ...], msgspec.Meta(max_length=100)]
    age_s: Seconds | None
    readings: Count
    version: Count
    time: UnixTime


_decoder = msgspec.json.Decoder(AgentState)


def read_state(body: bytes) -> AgentState:
    """The state in ``body``. Raises `EngineGarbage` when it is something else."""
    return read_document(_decoder, body, "the state of an agent")


def report_of(state: AgentState) -> NodeReport:
    """What a poll of the engine would have said, and what only its agent knows: role and draining.

    The engine speculates when a speculator is active; that none is says something only once the role is known.
    """
    speculator = state.speculator
    counters = SpeculativeCounters(
        drafted=state.drafted,
        accepted=state.accepted,
        verify_steps=state.verify_steps,
        generated_tokens=state.generated_tokens,
    )
    return NodeReport(
        running=state.running,
        waiting=state.waiting,
        kv_use=state.kv_use,
        capacity=state.capacity or None,
        speculating=None if speculator is None and state.role is None else speculator is not None,
        k=None if speculator is None else speculator.k,
        speculator_kind=None if speculator is None else speculator.kind,
        counters=None if counters == SpeculativeCounters() else counters,
        models=state.engine.models,
        engine=state.engine.kind,
        version=state.engine.version,
        drafter=None if speculator is None else speculator.method,
        role=state.role,
        draining=state.draining,
    )
