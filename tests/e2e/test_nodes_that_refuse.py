"""Nodes that answer 429 or 503: how often they are asked, and that those who wait keep their places."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import openai

from emulated_client import fault
from live_service import Live, live
from slipstream.config import FleetConfig
from slipstream.emulate import EmulatedNode, NodeSettings, emulated


@asynccontextmanager
async def fleet(*settings: NodeSettings, **queue: Any) -> AsyncIterator[tuple[Live, list[EmulatedNode]]]:
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(emulated("vllm", one)) for one in settings]
        config = FleetConfig.model_validate(
            {
                "gateway": {"listen": "127.0.0.1:0", "queue": queue},
                "admin": {"listen": "127.0.0.1:0"},
                "nodes": [{"name": f"n{n}", "url": node.url, "pool": "standard"} for n, node in enumerate(nodes)],
            }
        )
        yield await stack.enter_async_context(live(config)), nodes


async def ask(fleet: Live) -> int:
    """The status of the answer."""
    try:
        await fleet.client.chat.completions.create(model="emulated", messages=[{"role": "user", "content": "Hello!"}])
    except openai.APIStatusError as error:
        return error.status_code
    return 200


async def metric(fleet: Live, name: str) -> float:
    async with fleet.session.get(f"{fleet.service.admin_url}/metrics") as response:
        lines = (await response.text()).splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


async def test_engines_without_room_teach_their_limits_and_everybody_is_served() -> None:
    small = {"slots": 8, "queue_limit": 0, "ttft_s": 0.02, "step_s": 0.002, "output_tokens": 30}
    settings = (NodeSettings(queue_status=503, **small), NodeSettings(queue_status=429, **small))  # type: ignore[arg-type] # figures
    async with fleet(*settings) as (live_fleet, nodes):

        async def client() -> list[int]:
            return [await ask(live_fleet) for _ in range(2)]

        statuses = await asyncio.gather(*(client() for _ in range(60)))
        assert Counter(status for both in statuses for status in both) == {200: 120}
        await live_fleet.drained()
        attempts = Counter(placement.request_id for placement in live_fleet.placements())
        assert len(attempts) == 120
        assert sum(node.engine.counters.refused for node in nodes) <= 180
        assert max(attempts.values()) <= 6
        assert await metric(live_fleet, 'slipstream_queue_wait_seconds_count{class="interactive"}') <= 120
        assert await metric(live_fleet, 'slipstream_queue_timeouts_total{class="interactive"}') == 0


async def test_a_fleet_that_asks_for_time_gets_it_and_each_who_waited_in_vain_is_counted_once() -> None:
    async with fleet(NodeSettings(), NodeSettings(), timeout_s=1.0) as (live_fleet, nodes):
        for node in nodes:
            await fault(node, "status", status=503, headers={"retry-after": "7"}, requests=None)
        assert Counter(await asyncio.gather(*(ask(live_fleet) for _ in range(50)))) == {429: 50}
        await live_fleet.drained()
        assert len(live_fleet.placements()) <= 100  # all were under way before the first refusal came
        assert await metric(live_fleet, 'slipstream_queue_timeouts_total{class="interactive"}') == 50
        assert await metric(live_fleet, 'slipstream_queue_wait_seconds_count{class="interactive"}') == 0
        before = len(live_fleet.placements())
        assert await ask(live_fleet) == 429
        assert len(live_fleet.placements()) == before
