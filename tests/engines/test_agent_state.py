"""What an agent's state amounts to, and that anything else is refused."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_states import QUIET
from slipstream.core.errors import EngineGarbage
from slipstream.core.node import NodeReport, SpeculativeCounters, SpeculatorKind
from slipstream.core.request import Pool
from slipstream.engines.agent import AgentEngine, AgentSpeculator, AgentSwitch, read_state, report_of

STATE = msgspec.structs.replace(
    QUIET,
    speculator=AgentSpeculator("draft", SpeculatorKind.DRAFT, 4),
    speculative_capacity=5,
    running=2,
    waiting=1,
    kv_use=0.25,
    drafted=100,
    accepted=60,
    verify_steps=25,
    generated_tokens=90,
    alpha=0.7,
    tau=3.4,
    engine=AgentEngine("vllm", "0.33.0", "m", ("m", "lora")),
    fingerprint="0011223344556677",
    switches=(AgentSwitch(Pool.STANDARD, Pool.SPECULATIVE, 1.0, True, None, {"draining": 0.5}),),
    age_s=0.05,
)
BODY = msgspec.json.encode(STATE)


def test_a_state_survives_being_sent() -> None:
    assert read_state(BODY) == STATE
    assert b'"from":"standard"' in BODY


def test_a_state_amounts_to_the_report_of_a_poll_and_what_only_the_agent_knows() -> None:
    assert report_of(STATE) == NodeReport(
        running=2,
        waiting=1,
        kv_use=0.25,
        capacity=8,
        speculating=True,
        k=4,
        speculator_kind=SpeculatorKind.DRAFT,
        counters=SpeculativeCounters(100, 60, 25, (), 90),
        models=("m", "lora"),
        engine="vllm",
        version="0.33.0",
        drafter="draft",
        role=Pool.SPECULATIVE,
        draining=False,
    )


def test_what_an_agent_does_not_know_is_not_known() -> None:
    unknown = msgspec.structs.replace(
        STATE,
        role=None,
        speculator=None,
        running=None,
        waiting=None,
        capacity=None,
        kv_use=None,
        drafted=None,
        accepted=None,
        verify_steps=None,
        generated_tokens=None,
        engine=AgentEngine(None, None, None, None),
    )
    assert report_of(unknown) == NodeReport(draining=False)
    standard = report_of(msgspec.structs.replace(unknown, role=Pool.STANDARD))
    assert standard == NodeReport(speculating=False, role=Pool.STANDARD, draining=False)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("role", "both"),
        ("transition", "flying"),
        ("target", "both"),
        ("running", -1),
        ("running", 2**53 + 1),
        ("kv_use", 1.5),
        ("alpha", -0.1),
        ("tau", 0.5),
        ("age_s", -1.0),
        ("age_s", 1e10),
        ("time", 1e308),
        ("time", -1.0),
        ("draining", None),
        ("name", "n" * 1025),
        ("engine", {"kind": "vllm"}),
        ("speculator", {"method": 1, "kind": None, "k": None}),
        ("switches", [{"ok": True}]),
        ("switches", [{"from": None, "to": "standard", "began": 1.0, "ok": True, "why": None, "phases": {"a": 1e300}}]),
    ],
)
def test_a_state_with_an_impossible_value_is_garbage(field: str, value: object) -> None:
    with pytest.raises(EngineGarbage, match="not the state of an agent"):
        read_state(msgspec.json.encode(msgspec.json.decode(BODY) | {field: value}))


@settings(max_examples=30)
@given(st.binary(max_size=64) | st.integers(0, len(BODY) - 1).map(lambda end: BODY[:end]))
def test_anything_else_is_garbage(body: bytes) -> None:
    with pytest.raises(EngineGarbage):
        read_state(body)
