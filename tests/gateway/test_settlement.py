"""Whatever nodes and clients do, every placement is settled exactly once and nothing is left open."""

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
    stall(),
    stall(STREAM_HEAD + chunked(TOKEN)),
    close(),
    reset(),
)


async def one_client(rig: Rig, chance: random.Random) -> None:
    async with Client.to(rig) as client:
        for _ in range(chance.randrange(1, 4)):
            client.post(stream=chance.random() < 0.5)
        fate = chance.randrange(4)
        if fate == 0:  # leaves at once, perhaps roughly
            if chance.random() < 0.5:
                client.writer.transport.abort()
        elif fate == 1:  # leaves when something has come
            await client.response(head_only=True)
        else:  # stays to the end of one answer
            await client.response()


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
