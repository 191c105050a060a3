"""Clients that hang up on a real engine: its work ends soon after, and until then our books hold it."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator

import openai
import pytest
from openai.types.chat import ChatCompletionChunk, ChatCompletionUserMessageParam

from engine_nodes import EngineNode, polled_config
from live_service import Live, eventually, eventually_async, live
from slipstream.core.outcome import Ending

pytestmark = pytest.mark.engine

STORY = "Tell me a very long story about a ship, and never come to an end."
LONG_ANSWER = 800


def user(text: str) -> list[ChatCompletionUserMessageParam]:
    return [{"role": "user", "content": text}]


@pytest.fixture
async def fleet(shared_fleet: tuple[EngineNode, ...]) -> AsyncIterator[Live]:
    async with live(polled_config(shared_fleet)) as service:
        yield service
        await service.drained()
        await engine_idle(service)


@pytest.fixture
def model(shared_fleet: tuple[EngineNode, ...]) -> str:
    return shared_fleet[0].model


async def processing(fleet: Live, node: str) -> int:
    """Requests that the engine itself says it works on."""
    async with fleet.session.get(f"{fleet.node(node).spec.url}/metrics") as response:
        found = re.search(r"^llamacpp:requests_processing (\d+)$", await response.text(), re.MULTILINE)
        assert found is not None
        return int(found[1])


async def engine_idle(fleet: Live) -> None:
    async def idle() -> bool:
        return sum([await processing(fleet, node.name) for node in fleet.service.dispatcher.fleet.nodes()]) == 0

    await eventually_async(idle)


async def engine_busy(fleet: Live, node: str) -> None:
    async def busy() -> bool:
        return await processing(fleet, node) == 1

    await eventually_async(busy)


def the_ending(fleet: Live) -> tuple[str, Ending]:
    (placement,) = fleet.placements()
    assert placement.outcome is not None
    return placement.node.name, placement.outcome.ending


async def test_in_the_middle_of_a_stream(fleet: Live, model: str) -> None:
    stream = await fleet.client.chat.completions.create(
        model=model, messages=user(STORY), max_tokens=LONG_ANSWER, stream=True, extra_body={"ignore_eos": True}
    )
    count = 0
    async for _ in stream:
        count += 1
        if count == 5:
            break
    assert fleet.in_flight == 1
    await stream.close()
    await fleet.drained()
    assert the_ending(fleet) == ("std-0", Ending.CLIENT_GONE)
    await engine_idle(fleet)


async def test_while_the_answer_is_awaited_whole(fleet: Live, model: str) -> None:
    """llama.cpp finishes such a request, unlike a stream; the gateway sees it there as it sees others' work."""
    asking = asyncio.create_task(
        fleet.client.chat.completions.create(
            model=model, messages=user(STORY), max_tokens=100, extra_body={"ignore_eos": True}
        )
    )
    await engine_busy(fleet, "std-0")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await fleet.drained()
    assert the_ending(fleet) == ("std-0", Ending.CLIENT_GONE)
    await eventually(lambda: fleet.node("std-0").foreign == 1)
    assert (await fleet.shown("std-0"))["own"] == 0
    await engine_idle(fleet)
    await eventually(lambda: fleet.node("std-0").occupancy == 0)


async def test_before_the_first_token_of_a_stream(fleet: Live, model: str) -> None:
    """llama.cpp reads the prompt to its end, and stops at the first token that nobody takes."""
    words = " ".join(uuid.uuid4().hex[:6] for _ in range(30))  # in no cache
    body = json.dumps(
        {"model": model, "messages": user(f"Hello! {words}"), "max_tokens": LONG_ANSWER, "stream": True}
    ).encode()
    host, _, port = fleet.service.gateway_url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    )
    await eventually(lambda: fleet.in_flight == 1)
    writer.transport.abort()
    await fleet.drained()
    assert the_ending(fleet)[1] is Ending.CLIENT_GONE
    assert not (await reader_rest(reader)).count(b"content")
    await engine_idle(fleet)


async def reader_rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def test_until_the_engine_has_stopped_the_books_hold_what_it_works_on(fleet: Live, model: str) -> None:
    streams = [
        await fleet.client.chat.completions.create(
            model=model, messages=user(f"{number}. {STORY}"), max_tokens=LONG_ANSWER, stream=True
        )
        for number in range(4)
    ]
    for stream in streams:
        await anext(aiter(stream))
    for stream in streams:
        await stream.close()
    nodes = list(fleet.service.dispatcher.fleet.nodes())
    while fleet.in_flight:
        for node in nodes:
            booked = node.own
            assert await processing(fleet, node.name) <= booked
    assert {placement.outcome.ending for placement in fleet.placements() if placement.outcome} == {Ending.CLIENT_GONE}


async def test_many_streams_at_once_leave_nothing_behind(fleet: Live, model: str) -> None:
    async def begin(number: int) -> openai.AsyncStream[ChatCompletionChunk]:
        return await fleet.client.chat.completions.create(
            model=model, messages=user(f"{number}. {STORY}"), max_tokens=LONG_ANSWER, stream=True
        )

    asking = [asyncio.create_task(begin(number)) for number in range(12)]
    await eventually(lambda: fleet.in_flight == 12)
    for task in asking:
        task.cancel()
    for stream in await asyncio.gather(*asking, return_exceptions=True):
        if not isinstance(stream, BaseException):  # its headers were there already
            await stream.close()
    await fleet.drained()
    await engine_idle(fleet)
    answer = await fleet.client.chat.completions.create(model=model, messages=user("Hello!"), max_tokens=4)
    assert answer.choices
    await eventually(lambda: all(node.occupancy == 0 for node in fleet.service.dispatcher.fleet.nodes()))
