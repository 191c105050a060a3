"""The gateway before an emulated fleet measures what was set, and the fleet sees what the gateway does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import openai
import pytest

from emulated_client import clear_faults, draft, fault, state
from gateway_rig import eventually
from live_service import Live, live
from slipstream.config import FleetConfig
from slipstream.core.policy import Reason
from slipstream.emulate import EmulatedNode, NodeSettings, emulated
from slipstream.emulate.alphas import Alphas

CODE = "Write a Python function that sorts a list."
CHAT = "Hello! How are you today?"
ALPHAS = Alphas(0.6, {"code": 0.85, "chat": 0.40})


@asynccontextmanager
async def fleet(
    dialect: str, statistics: str = "none", instrument: str = "off"
) -> AsyncIterator[tuple[Live, EmulatedNode, EmulatedNode]]:
    """A node with a speculator and one without, and the service before them."""
    settings = draft(alphas=ALPHAS, output_tokens=100, request_statistics=statistics, step_s=0.0)
    async with AsyncExitStack() as stack:
        spec = await stack.enter_async_context(emulated(dialect, settings))
        std = await stack.enter_async_context(emulated(dialect, NodeSettings(ttft_s=0.0, step_s=0.0)))
        config = FleetConfig.model_validate(
            {
                "gateway": {"listen": "127.0.0.1:0"},
                "admin": {"listen": "127.0.0.1:0"},
                "routing": {"probe_share": 1.0},
                "nodes": [
                    {"name": "spec-0", "url": spec.url, "pool": "speculative", "instrument": instrument},
                    {"name": "std-0", "url": std.url, "pool": "standard"},
                ],
            }
        )
        yield await stack.enter_async_context(live(config)), spec, std


async def chat(fleet: Live, prompt: str, *, stream: bool = False) -> None:
    if not stream:
        await fleet.client.chat.completions.create(model="emulated", messages=[{"role": "user", "content": prompt}])
        return
    async for _ in await fleet.client.chat.completions.create(
        model="emulated",
        messages=[{"role": "user", "content": prompt}],
        stream=True,
        stream_options={"include_usage": True},
    ):
        pass


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("dialect", "statistics", "instrument"),
    [("vllm", "summary", "off"), ("llamacpp", "none", "off"), ("sglang", "none", "engine")],
)
async def test_the_gateway_measures_the_acceptance_that_was_set(dialect: str, statistics: str, instrument: str) -> None:
    async with fleet(dialect, statistics, instrument) as (live_fleet, spec, _):
        for number in range(60):
            await asyncio.gather(
                chat(live_fleet, CODE, stream=number % 2 == 0), chat(live_fleet, CHAT, stream=number % 2 == 1)
            )
        await live_fleet.drained()
        for category, alpha in (("code", 0.85), ("chat", 0.40)):
            told = await live_fleet.category(category)
            seen = [one for one in spec.record.requests if one.category == category]
            assert told["evidence_requests"] == len(seen) >= 50
            assert (told["drafted"], told["accepted"]) == (
                sum(one.drafted or 0 for one in seen),
                sum(one.accepted or 0 for one in seen),
            )
            assert told["alpha"] == pytest.approx(alpha, abs=0.05)


async def test_the_ceiling_holds_at_the_node() -> None:
    async with fleet("vllm") as (live_fleet, spec, std):
        await fault(spec, "stall", requests=None)
        asking = asyncio.gather(*(chat(live_fleet, CODE) for _ in range(30)))
        await eventually(lambda: spec.record.in_flight + std.record.outcomes["completed"] == 30)
        assert (await state(spec))["peak_in_flight"] == 8
        await eventually(lambda: spec.engine.running == 8)
        await clear_faults(spec)
        await asking
        assert spec.record.outcomes == {"completed": 8}


async def test_a_client_that_leaves_is_seen_at_the_node() -> None:
    async with fleet("vllm") as (live_fleet, spec, _):
        await fault(spec, "stall", after_events=3, requests=None)
        for _ in range(5):
            stream = await live_fleet.client.chat.completions.create(
                model="emulated", messages=[{"role": "user", "content": CODE}], stream=True
            )
            await anext(aiter(stream))
            await stream.close()
        await eventually(lambda: spec.record.outcomes["aborted"] == 5)
        assert (spec.engine.running, spec.record.in_flight) == (0, 0)
        await live_fleet.drained()


async def test_a_node_that_still_works_for_clients_that_left_has_their_sequences_on_its_books() -> None:
    async with fleet("sglang") as (live_fleet, spec, _):
        await fault(spec, "stall", after_events=2, requests=None)
        await fault(spec, "slow_drain", seconds=0.5)  # SGLang may take 2.5
        streams = [
            await live_fleet.client.chat.completions.create(
                model="emulated", messages=[{"role": "user", "content": CODE}], stream=True
            )
            for _ in range(8)
        ]
        for stream in streams:
            await anext(aiter(stream))
        await asyncio.gather(*(stream.close() for stream in streams))
        node = live_fleet.node("spec-0")
        await eventually(lambda: all(placement.outcome for placement in live_fleet.placements()))
        assert node.own >= spec.engine.running
        await live_fleet.drained()
        assert spec.engine.running == 0
        await clear_faults(spec)
        await chat(live_fleet, CODE)
        assert live_fleet.placements()[-1].decision.reason is Reason.SPECULATIVE


async def test_a_node_that_dies_before_the_first_byte_is_not_noticed() -> None:
    async with fleet("vllm") as (live_fleet, spec, std):
        await fault(spec, "die")
        await chat(live_fleet, CODE)
        assert spec.record.outcomes["died"] == 1
        assert spec.record.outcomes["completed"] + std.record.outcomes["completed"] == 1


async def test_a_node_that_dies_in_mid_stream_ends_the_stream_with_an_error() -> None:
    async with fleet("vllm") as (live_fleet, spec, _):
        await fault(spec, "die", after_events=5)
        with pytest.raises(openai.APIError, match=r".+"):
            await chat(live_fleet, CODE, stream=True)
        assert live_fleet.placements()[-1].decision.reason is Reason.SPECULATIVE
