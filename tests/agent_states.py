"""The state of an agent whose node has nothing to do."""

from __future__ import annotations

from slipstream.core.request import Pool
from slipstream.engines.agent import AgentEngine, AgentState

__all__ = ["QUIET"]

QUIET = AgentState(
    name="n",
    role=Pool.SPECULATIVE,
    transition=None,
    target=None,
    draining=False,
    healthy=True,
    error=None,
    switchable=True,
    holder=None,
    speculator=None,
    speculative_capacity=None,
    running=0,
    waiting=0,
    capacity=8,
    kv_use=None,
    drafted=None,
    accepted=None,
    verify_steps=None,
    generated_tokens=None,
    alpha=None,
    tau=None,
    engine=AgentEngine("vllm", "1", "m", ("m",)),
    fingerprint=None,
    switches=(),
    age_s=0.0,
    readings=1,
    version=1,
    time=0.0,
)
