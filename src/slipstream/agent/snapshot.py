"""The state of an agent, put together from the role that its engine has and what the engine says."""

from __future__ import annotations

from hashlib import sha256

from slipstream.agent.view import EngineView
from slipstream.core.request import Pool
from slipstream.engines.agent import AgentEngine, AgentSpeculator, AgentState, AgentSwitch, Transition

__all__ = ["SENTENCE", "snapshot"]

SENTENCE = 1000
"""Characters of a reason that are kept."""


def snapshot(
    view: EngineView,
    *,
    name: str,
    role: Pool | None,
    transition: Transition | None,
    target: Pool | None,
    draining: bool,
    switchable: bool,
    holder: str | None,
    ceiling: int | None,
    words: tuple[str, ...],
    switches: tuple[AgentSwitch, ...],
    version: int,
) -> AgentState:
    """The state; its age, readings and time are for whoever sends it to fill in. ``words`` tell the role's variant from
    others; ``ceiling`` counts sequences.
    """
    report = view.report
    speculator = _speculator(view, role)
    counters, (alpha, tau) = report.counters, view.acceptance()
    models = report.models
    return AgentState(
        name=name,
        role=role,
        transition=transition,
        target=target,
        draining=draining,
        healthy=view.answers,
        error=None if view.answers else (view.error or "the engine has not answered yet")[:SENTENCE],
        switchable=switchable,
        holder=holder,
        speculator=speculator,
        speculative_capacity=_room(ceiling, report.sequences) if speculator else (None if ceiling is None else 0),
        running=report.running,
        waiting=report.waiting,
        capacity=report.capacity,
        kv_use=None if report.kv_use is None else min(1.0, report.kv_use),
        drafted=None if counters is None else counters.drafted,
        accepted=None if counters is None else counters.accepted,
        verify_steps=None if counters is None else counters.verify_steps,
        generated_tokens=None if counters is None else counters.generated_tokens,
        alpha=alpha,
        tau=tau,
        engine=AgentEngine(report.engine, report.version, models[0] if models else None, models),
        fingerprint=_fingerprint(view, words),
        switches=switches,
        age_s=None,
        readings=0,
        version=version,
        time=0.0,
    )


def _room(ceiling: int | None, sequences: int | None) -> int | None:
    return None if ceiling is None or sequences is None else max(0, ceiling - sequences)


def _speculator(view: EngineView, role: Pool | None) -> AgentSpeculator | None:
    """The active one. Where the engine does not say whether there is one, its role does."""
    report, speculating = view.report, view.report.speculating
    if speculating is None:
        speculating = view.answers and role is Pool.SPECULATIVE
    if not speculating:
        return None
    return AgentSpeculator(report.drafter, report.speculator_kind, report.k)


def _fingerprint(view: EngineView, words: tuple[str, ...]) -> str | None:
    """What runs there, told from anything else: engine, version, models and the words of its variant; ``None`` while
    nothing answers, or nothing is known of the variant.
    """
    report = view.report
    if not view.answers or not words:
        return None
    return sha256(repr((report.engine, report.version, report.models, words)).encode()).hexdigest()[:16]
