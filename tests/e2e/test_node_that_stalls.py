"""An engine that stops without closing anything (SIGSTOP), and goes on later (SIGCONT)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from engine_nodes import EngineNode, polled_config
from live_service import Live, eventually, live
from slipstream.core.policy import Reason

pytestmark = pytest.mark.engine

CODE = "Write a Python function that reverses a string and returns it."


@pytest.fixture
def spec(shared_fleet: tuple[EngineNode, ...]) -> Iterator[EngineNode]:
    node = shared_fleet[0]
    yield node
    os.kill(node.pid, signal.SIGCONT)


async def ask(fleet: Live, model: str, tokens: int = 16) -> tuple[str, str]:
    """Node and reason of one answered request."""
    answer = await fleet.client.chat.completions.with_raw_response.create(
        model=model, messages=[{"role": "user", "content": CODE}], max_tokens=tokens
    )
    assert answer.parse().choices
    return answer.headers["x-slipstream-node"], answer.headers["x-slipstream-reason"]


async def test_a_stopped_node_goes_stale_then_unhealthy_and_comes_back_with_its_request_unharmed(
    shared_fleet: tuple[EngineNode, ...], spec: EngineNode
) -> None:
    config = polled_config(
        shared_fleet,
        pools={"speculative": {"short_output_tokens": 8}},
        control={"poll_interval_s": 0.1, "poll_timeout_s": 2.0, "stale_after_s": 0.5},
    )
    async with live(config) as fleet:
        state = fleet.node("spec-0")
        assert await ask(fleet, spec.model) == ("spec-0", "speculative")
        caught = asyncio.create_task(ask(fleet, spec.model, tokens=96))
        await eventually(lambda: state.own == 1 and state.report is not None and state.report.running == 1)
        os.kill(spec.pid, signal.SIGSTOP)

        # First its telemetry is old: not eligible, though nothing says that it is ill.
        await eventually(lambda: not state.fresh)
        assert state.healthy
        assert await ask(fleet, spec.model) == ("std-0", Reason.STALE)
        # Then it has kept two polls waiting: unhealthy.
        await eventually(lambda: not state.healthy)
        assert "did not answer within 2 s" in (state.error or "")
        assert await ask(fleet, spec.model) == ("std-0", Reason.UNHEALTHY)
        assert (await fleet.shown("spec-0"))["state"] == "unhealthy"
        assert [one["code"] for one in (await fleet.admin("/advice"))["advice"]] == ["node_unreachable"]
        # What it has is neither lost nor forgotten.
        assert not caught.done()
        assert (state.own, fleet.in_flight) == (1, 1)

        os.kill(spec.pid, signal.SIGCONT)
        await eventually(lambda: state.healthy and state.fresh)
        assert await ask(fleet, spec.model) == ("spec-0", "speculative")
        assert await caught == ("spec-0", "speculative")
        await fleet.drained()
        assert (await fleet.admin("/advice"))["advice"] == []
        await eventually(lambda: state.occupancy == 0)
    assert spec.process.poll() is None
