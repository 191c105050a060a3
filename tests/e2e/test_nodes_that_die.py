"""A real engine killed under the gateway: before its first byte, in the middle of its answer, and what comes back."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionUserMessageParam

from engine_nodes import engine_of
from live_service import Live, eventually, live
from slipstream.cli.local_fleet import local_nodes
from slipstream.core.acceptance import AcceptanceEstimate
from slipstream.core.outcome import Ending
from slipstream.service import loopback_config

pytestmark = pytest.mark.engine

CODE = "Write a Python function that reverses a string and returns it."
LONG_ANSWER = 400


def user(text: str) -> list[ChatCompletionUserMessageParam]:
    return [{"role": "user", "content": text}]


@pytest.fixture
async def fleet() -> AsyncIterator[Live]:
    """As `slipstream up` starts it."""
    async with local_nodes() as nodes:
        control = {"stale_after_s": 30.0}  # on a busy machine agents may be late
        config = loopback_config(nodes, pools={"speculative": {"short_output_tokens": 8}}, control=control)
        async with live(config) as service:
            yield service
            await service.drained()


def kill(fleet: Live) -> int:
    """Kill the speculative node's engine, and give what process that was."""
    engine = engine_of(fleet.node("spec-0").spec.url)
    assert engine is not None
    os.kill(engine, signal.SIGKILL)
    return engine


def is_back(fleet: Live, killed: int) -> bool:
    """Whether the engine is there again, whether or not it serves yet."""
    return engine_of(fleet.node("spec-0").spec.url) not in (None, killed)


async def ask(fleet: Live, tokens: int = 16) -> tuple[ChatCompletion, str]:
    """An answer and the node it came from."""
    raw = await fleet.client.chat.completions.with_raw_response.create(
        model=fleet.node("spec-0").models[0], messages=user(CODE), max_tokens=tokens, temperature=0
    )
    return raw.parse(), raw.headers["x-slipstream-node"]


async def back(fleet: Live, killed: int) -> None:
    """Wait until the node runs again and the control loop has seen it."""
    await eventually(lambda: is_back(fleet, killed), deadline_s=30)
    await eventually(lambda: fleet.node("spec-0").usable and fleet.node("spec-0").fresh, deadline_s=30)


async def test_before_the_first_byte_the_request_is_retried_and_the_client_never_knows(fleet: Live) -> None:
    asking = asyncio.create_task(ask(fleet, tokens=64))
    busy = fleet.node("spec-0")
    await eventually(lambda: busy.report is not None and busy.report.running == 1)
    killed = kill(fleet)
    answer, node = await asking
    assert node == "std-0"
    assert answer.choices[0].message.content
    first, second = fleet.placements()
    assert first.request_id == second.request_id
    assert first.outcome is not None
    assert second.outcome is not None
    assert [first.outcome.ending, second.outcome.ending] == [Ending.UPSTREAM_LOST, Ending.COMPLETED]
    attempts = (await fleet.admin(f"/decisions/{first.request_id}"))["attempts"]
    assert [attempt["node"] for attempt in attempts] == ["spec-0", "std-0"]
    await fleet.drained()
    # While it is away, nothing goes there; back again, it gets what belongs there.
    if not is_back(fleet, killed):
        assert (await ask(fleet))[1] == "std-0"
    await back(fleet, killed)
    assert (await ask(fleet))[1] == "spec-0"


async def test_in_the_middle_of_answers_clients_get_an_error_and_no_end_of_stream(fleet: Live) -> None:
    model = fleet.node("spec-0").models[0]
    request: dict[str, Any] = {
        "model": model,
        "messages": user(CODE),
        "max_tokens": LONG_ANSWER,
        "stream": True,
        "ignore_eos": True,
    }
    begun = asyncio.Barrier(3)

    async def read_raw() -> bytes:
        async with fleet.session.post(f"{fleet.base_url}/chat/completions", json=request) as response:
            assert response.status == 200
            data = b""
            while data.count(b"data: ") < 3:
                data += await response.content.readany()
            await begun.wait()
            return data + await response.read()

    async def read_with_client() -> None:
        stream = await fleet.client.chat.completions.create(
            model=model,
            messages=user(CODE),
            max_tokens=LONG_ANSWER,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        count = 0
        async for _ in stream:
            count += 1
            if count == 3:
                await begun.wait()

    raw = asyncio.create_task(read_raw())
    parsed = asyncio.create_task(read_with_client())
    await begun.wait()
    assert fleet.node("spec-0").own == 2
    killed = kill(fleet)
    received = await raw
    with pytest.raises(openai.APIError, match="'spec-0' was lost before its answer was complete"):
        await parsed
    assert b"[DONE]" not in received
    assert received.count(b'"error"') == 1
    events = received.split(b"\n\n")
    assert events[-1] == b""
    assert events[-2].startswith(b'data: {"error":{"message":')
    assert all(event.startswith(b"data: {") for event in events[:-1]), "an event was cut in two"
    await fleet.drained()
    endings = [placement.outcome.ending for placement in fleet.placements() if placement.outcome is not None]
    assert endings == [Ending.UPSTREAM_LOST] * 2
    await back(fleet, killed)
    assert (await ask(fleet))[1] == "spec-0"


def estimate_of(fleet: Live) -> AcceptanceEstimate:
    return fleet.service.dispatcher.evidence.book.category_estimate("code")


async def test_after_a_restart_with_counters_at_zero_estimates_go_on_from_where_they_were(fleet: Live) -> None:
    state = fleet.node("spec-0")
    listed = "\n".join(f"item_{number} = 'the value of item {number}'" for number in range(5))
    prompt = f"```python\n{listed}\n```\nRepeat this code."

    async def draft() -> None:
        answer = await fleet.client.chat.completions.create(
            model=state.models[0],
            messages=user(prompt),
            max_tokens=48,
            temperature=0,
            extra_body={"cache_prompt": False},  # what is computed from a cache rounds otherwise, and may answer so
        )
        assert answer.choices[0].message.content

    def counted() -> int:
        counters = state.report.counters if state.report is not None else None
        return 0 if counters is None else counters.drafted or 0

    await draft()
    await draft()
    await eventually(lambda: counted() == estimate_of(fleet).evidence.total_drafted > 0)
    before, node_before = estimate_of(fleet), await fleet.shown("spec-0")
    assert before.requests == 2
    await back(fleet, kill(fleet))
    await eventually(lambda: state.occupancy == 0)  # what warmed it is over
    shown = await fleet.shown("spec-0")
    assert (shown["drafted"], shown["accepted"]) == (0, 0)
    # What warmed it shows that it was restarted: until a request tells more, it is known by what was counted before.
    assert shown["tau"] == pytest.approx(node_before["tau"], abs=0.3)
    assert shown["alpha"] == pytest.approx(node_before["alpha"], abs=0.1)
    assert shown["capacity_left"] == shown["ceiling"] == 8
    assert estimate_of(fleet) == before
    await draft()
    await eventually(lambda: counted() > 0)
    after = estimate_of(fleet)
    assert after.requests == 3
    assert after.evidence.total_drafted == before.evidence.total_drafted + counted()
    # The same prompt again: what it teaches is what is known.
    assert after.tau == pytest.approx(before.tau, abs=0.3)
    assert after.tokens_per_step == pytest.approx(before.tokens_per_step, abs=0.3)
    shown = await fleet.shown("spec-0")
    assert 1 <= shown["tau"] <= 5
    assert 0 <= shown["alpha"] <= 1
    assert shown["capacity_left"] == 8
