"""Requests for which no node has room wait, through the whole service: in what order, how long, and how it ends."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

import openai
import pytest

from live_service import Live, eventually, live
from scripted_node import Call, answer
from slipstream.config import FleetConfig
from slipstream.core.request import TrafficClass
from vllm_like_node import MODEL, VllmLike, vllm_like

INTERACTIVE, BULK = TrafficClass


def config_of(node: VllmLike, **queue: Any) -> FleetConfig:
    return FleetConfig.model_validate(
        {
            "gateway": {"listen": "127.0.0.1:0", "queue": queue},
            "admin": {"listen": "127.0.0.1:0"},
            "control": {"poll_interval_s": 0.05},
            "nodes": [{"name": "std-0", "url": node.url, "pool": "standard", "max_in_flight": 1}],
        }
    )


def ask(fleet: Live, text: str, tier: str = "default") -> asyncio.Task[Any]:
    return asyncio.create_task(
        fleet.client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": text}],
            extra_body={"service_tier": tier},
        )
    )


def waiting(fleet: Live) -> dict[TrafficClass, int]:
    return dict(fleet.service.gateway.queue_lengths)


async def occupied(fleet: Live, node: VllmLike) -> asyncio.Task[Any]:
    """A request that keeps the node's only place until its gate opens."""
    node.gate.clear()
    first = ask(fleet, "first")
    await eventually(lambda: node.in_flight == 1)
    return first


async def metric(fleet: Live, name: str) -> float:
    async with fleet.session.get(f"{fleet.service.admin_url}/metrics") as response:
        lines = (await response.text()).splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


async def test_requests_wait_and_are_served_one_by_one_interactive_ones_first() -> None:
    async with vllm_like() as node, live(config_of(node)) as fleet:
        first = await occupied(fleet, node)
        job = ask(fleet, "job", "flex")
        await eventually(lambda: waiting(fleet) == {INTERACTIVE: 0, BULK: 1})
        person = ask(fleet, "person")
        await eventually(lambda: waiting(fleet) == {INTERACTIVE: 1, BULK: 1})
        assert await metric(fleet, 'slipstream_queue_requests{class="bulk"}') == 1
        node.gate.set()
        await asyncio.gather(first, job, person)
        assert list(node.prompts) == ["first", "person", "job"]
        assert node.peak == 1
        assert await metric(fleet, 'slipstream_queue_wait_seconds_count{class="interactive"}') == 1
        assert await metric(fleet, 'slipstream_queue_wait_seconds_count{class="bulk"}') == 1
        await fleet.drained()
        assert [len(fleet.service.dispatcher.find(one.request_id)) for one in fleet.placements()] == [1, 1, 1]


async def test_who_waits_in_vain_gets_429_and_when_to_come_back() -> None:
    async with vllm_like() as node, live(config_of(node, timeout_s=0.2)) as fleet:
        first = await occupied(fleet, node)
        with pytest.raises(openai.RateLimitError) as refused:
            await ask(fleet, "late")
        assert refused.value.response.headers["retry-after"] == "1"
        assert refused.value.code == "all_full"
        assert await metric(fleet, 'slipstream_queue_timeouts_total{class="interactive"}') == 1
        node.gate.set()
        await first
        assert list(node.prompts) == ["first"]


async def test_without_a_place_in_the_queue_the_answer_is_429_at_once() -> None:
    async with vllm_like() as node, live(config_of(node, size=0)) as fleet:
        first = await occupied(fleet, node)
        refused = await asyncio.gather(ask(fleet, "late"), return_exceptions=True)
        assert isinstance(refused[0], openai.RateLimitError)
        node.gate.set()
        await first


async def test_a_client_that_leaves_the_queue_is_never_sent_to_a_node() -> None:
    async with vllm_like() as node, live(config_of(node)) as fleet:
        first = await occupied(fleet, node)
        gone, stays = ask(fleet, "gone"), ask(fleet, "stays")
        await eventually(lambda: waiting(fleet)[INTERACTIVE] == 2)
        gone.cancel()
        await eventually(lambda: waiting(fleet)[INTERACTIVE] == 1)
        node.gate.set()
        await asyncio.gather(first, stays)
        assert list(node.prompts) == ["first", "stays"]
        await fleet.drained()


async def test_a_gateway_that_closes_tells_those_who_wait_and_lets_running_ones_end() -> None:
    async with vllm_like() as node, live(config_of(node)) as fleet:
        first = await occupied(fleet, node)
        late = ask(fleet, "late")
        await eventually(lambda: waiting(fleet)[INTERACTIVE] == 1)
        closing = asyncio.create_task(fleet.service.gateway.close(10.0))
        refused = (await asyncio.gather(late, return_exceptions=True))[0]
        assert isinstance(refused, openai.InternalServerError)
        assert refused.status_code == 503
        assert "closing" in refused.message
        node.gate.set()
        assert (await first).choices[0].message.content == "Yes."
        await closing


def busy_twice(node: VllmLike) -> Callable[[Call], Awaitable[None]]:
    """The node, refusing its first two requests as an engine does whose own queue is full."""
    left = 2

    async def behave(call: Call) -> None:
        nonlocal left
        if call.method == "POST" and left:
            left -= 1
            await answer(429, json.dumps({"error": {"message": "busy"}}).encode())(call)
        else:
            await node(call)

    return behave


async def test_a_request_that_the_node_refused_waits_and_is_tried_again_after_its_next_report() -> None:
    async with vllm_like() as node:
        node.node.behaviours[:] = [busy_twice(node)]
        async with live(config_of(node)) as fleet:
            answered = await ask(fleet, "stubborn")
            assert answered.choices[0].message.content == "Yes."
            assert list(node.prompts) == ["stubborn"]
            await fleet.drained()
            endings = [str(one.outcome.ending) for one in fleet.placements() if one.outcome is not None]
            assert endings == ["full", "full", "completed"]
            assert [one.attempt for one in fleet.placements()] == [1, 2, 3]


async def test_a_request_that_the_node_refused_keeps_its_place_before_one_that_came_later() -> None:
    async with vllm_like() as node:
        node.node.behaviours[:] = [busy_twice(node)]
        async with live(config_of(node)) as fleet:
            first = ask(fleet, "first")
            await eventually(lambda: waiting(fleet)[INTERACTIVE] == 1)
            second = ask(fleet, "second")
            await asyncio.gather(first, second)
            assert list(node.prompts) == ["first", "second"]
            assert await metric(fleet, 'slipstream_queue_wait_seconds_count{class="interactive"}') == 2


async def test_however_clients_come_and_go_nobody_is_forgotten_and_nothing_is_left() -> None:
    chance = random.Random(7)
    async with vllm_like() as node, live(config_of(node, size=40)) as fleet:
        tasks: list[asyncio.Task[Any]] = []
        for number in range(200):
            tasks.append(ask(fleet, f"r{number}", chance.choice(["flex", "default"])))
            if chance.random() < 0.3:
                chance.choice(tasks).cancel()
            if chance.random() < 0.5:
                await asyncio.sleep(0)
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        kinds = {type(end) for end in ends if isinstance(end, BaseException)}
        assert kinds <= {openai.RateLimitError, asyncio.CancelledError}
        answered = sum(not isinstance(end, BaseException) for end in ends)
        assert answered > 0
        assert waiting(fleet) == {INTERACTIVE: 0, BULK: 0}
        assert node.peak == 1
        await fleet.drained()
