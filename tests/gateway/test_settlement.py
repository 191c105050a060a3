"""Whatever nodes and clients do, every placement is settled exactly once, nothing stays open, and who stays is told."""

from __future__ import annotations

import asyncio
import random

import pytest

from gateway_rig import Client, Rig, eventually, rig
from scripted_node import (
    STREAM_HEAD,
    Behaviour,
    answer,
    chunked,
    close,
    die_after,
    raw,
    reset,
    scripted_node,
    stall,
    stream,
)
from slipstream.core.outcome import Ending
from slipstream.gateway.limits import Limits

TOKEN = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
MESSAGE = (
    b'data: {"type":"message_start","message":{"usage":{"input_tokens":3}}}\n\n',
    b'data: {"type":"content_block_delta","delta":{"text":"a"}}\n\n',
    b'data: {"type":"message_stop"}\n\n',
)
RESPONSE = (
    b'data: {"type":"response.created","response":{"id":"resp_1"}}\n\n',
    b'data: {"type":"response.output_text.delta","delta":"a"}\n\n',
    b'data: {"type":"response.completed","response":{"id":"resp_1"}}\n\n',
)
PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/embeddings", "/v1/other")
ENDS = (b"[DONE]", b"message_stop", b"response.completed", b"error")

BEHAVIOURS: tuple[Behaviour, ...] = (
    answer(),
    answer(close=True),
    answer(500),
    answer(429),
    answer(503, close=True),
    stream([TOKEN] * 5 + [DONE]),
    stream([TOKEN] * 5),
    raw(STREAM_HEAD, *(chunked(TOKEN)[index : index + 1] for index in range(len(chunked(TOKEN))))),
    die_after(STREAM_HEAD + chunked(TOKEN)),
    die_after(STREAM_HEAD + chunked(TOKEN + b"data: {")),
    die_after(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"),
    die_after(b"HTTP/1.1 429 X\r\nContent-Length: 10\r\n\r\nabc"),
    die_after(b"garbage\r\n\r\n"),
    stream(MESSAGE),
    stream(MESSAGE[:2]),
    stream(RESPONSE),
    die_after(STREAM_HEAD, *map(chunked, RESPONSE[:2])),
    answer(body=b'{"id":"resp_2","usage":{"input_tokens":3,"output_tokens":2}}'),
    answer(204, b"", "X-Length-Is: said\r\n"),
    raw(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"),
    raw(b"HTTP/1.1 302 X\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"),
    stall(b"HTTP/1.1 200 OK\r\nX-Begun: "),
    stall(b"HTTP/1.1 429 X\r\nContent-Length: 10\r\n\r\nabc"),
    stall(),
    stall(STREAM_HEAD + chunked(TOKEN)),
    close(),
    reset(),
)


async def one_client(rig: Rig, chance: random.Random) -> None:
    async with Client.to(rig) as client:
        path = chance.choice(PATHS)
        for _ in range(chance.randrange(1, 4)):
            client.post(path, stream=chance.random() < 0.5)
        fate = chance.randrange(4)
        if fate == 0:  # leaves at once, perhaps roughly
            if chance.random() < 0.5:
                client.writer.transport.abort()
        elif fate == 1:  # leaves when something has come
            await client.response(head_only=True)
        else:  # stays to the end of one answer
            response = await client.response()
            assert response.complete
            events = response.headers.get("content-type", "").startswith("text/event-stream")
            if events and path in PATHS[:3]:
                assert any(end in response.body.rpartition(b"\n\ndata:")[2] for end in ENDS)


@pytest.mark.parametrize("seed", range(8))
async def test_every_placement_is_settled_exactly_once(seed: int) -> None:
    chance = random.Random(seed)
    behaviours = [chance.choice(BEHAVIOURS) for _ in range(200)]
    limits = Limits(first_byte_streamed_s=0.2, first_byte_unstreamed_s=0.2, idle_s=0.2, connect_s=0.5)
    async with (
        scripted_node(*behaviours[:100]) as one,
        scripted_node(*behaviours[100:]) as other,
        rig(one.url, other.url, limits=limits) as gateway,
    ):
        await asyncio.gather(*(one_client(gateway, random.Random(seed * 1000 + number)) for number in range(40)))
        await eventually(lambda: not gateway.books.open)
        await eventually(lambda: gateway.gateway.open_connections == 0)
        assert len(gateway.books.settled) == len(gateway.books.placed) > 0
        completed = [outcome for outcome in gateway.books.outcomes if outcome.ending is Ending.COMPLETED]
        assert all(outcome.latency is not None for outcome in completed)
