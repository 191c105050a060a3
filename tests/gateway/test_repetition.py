"""A head that repeats is not parsed again, and nobody can tell."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_rig import Client, rig
from scripted_node import Call, raw, scripted_node
from slipstream.gateway.repetition import head_to_repeat

HEAD = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: %b\r\nX-B: y\r\n\r\n"


@given(st.binary(min_size=1, max_size=300), st.binary(max_size=300))
def test_the_same_head_with_another_length_is_known(first: bytes, second: bytes) -> None:
    repeated = head_to_repeat(HEAD % b"%d" % len(first) + first)
    assert repeated is not None
    message = HEAD % b"%d" % len(second) + second
    assert message[repeated.body_start(message) :] == second
    assert repeated.body_start(message) > 0


@pytest.mark.parametrize(
    "message",
    [
        HEAD % b"3" + b"ab",
        HEAD % b"3" + b"abcd",
        HEAD % b"3" + b"abc" + HEAD % b"3" + b"abc",
        HEAD % b"+3" + b"abc",
        HEAD % b"-3" + b"abc",
        HEAD % b"3 " + b"abc",
        HEAD % b"3_0" + b"a" * 30,
        HEAD % b"" + b"abc",
        HEAD % "\u0663".encode() + b"abc",
        HEAD % b"0000000003" + b"abc",
        (HEAD % b"3" + b"abc").replace(b"/a", b"/b"),
        (HEAD % b"3" + b"abc").replace(b"X-B: y", b"X-B: z"),
        (HEAD % b"3" + b"abc").replace(b"X-B: y", b"Content-Length: 3"),
        HEAD % b"3",
        b"",
    ],
)
def test_anything_else_is_left_to_the_parser(message: bytes) -> None:
    repeated = head_to_repeat(HEAD % b"3" + b"abc")
    assert repeated is not None
    assert repeated.body_start(message) == 0


@pytest.mark.parametrize(
    "message",
    [
        b"POST / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nX-Content-Length: 3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nX: " + b"x" * 5000 + b"\r\nContent-Length: 3\r\n\r\nabc",
        HEAD % b"3" + b"ab",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
    ],
)
def test_heads_without_a_length_of_their_own_or_too_long_are_not_remembered(message: bytes) -> None:
    assert head_to_repeat(message) is None


HEADS = [
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n",
    b"POST /v1/completions?a=b HTTP/1.1\r\nHost: x\r\ncontent-length:%d\r\nUser-Agent: a\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Content-Length: 7\r\nContent-Length: %d\r\nX-Request-Id: r\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length:  %d \r\nUser-Agent: Content-Length: 9\r\n\r\n",
]
ANSWERS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-A: 1\r\n\r\n",
    b"HTTP/1.1 201 Created\r\ncontent-length: %d\r\nDate: now\r\n\r\n",
    b"HTTP/1.1 400 Bad\r\nContent-Length: %d\r\nConnection: keep-alive, X-A\r\nX-A: 1\r\n\r\n",
    b"HTTP/1.1 429 Full\r\nContent-Length: %d\r\n\r\n",
]


@pytest.mark.parametrize("seed", range(6))
async def test_repeating_and_changing_heads_are_served_as_if_each_were_the_first(seed: int) -> None:
    chance = random.Random(seed)
    sent: list[bytes] = []

    async def behave(call: Call) -> None:
        body = chance.randbytes(chance.choice([1, 2, 30, 400]))
        sent.append(body)
        await raw(chance.choice(ANSWERS) % len(body) + body)(call)

    async with scripted_node(behave) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        for number in range(60):
            head = HEADS[0] if chance.random() < 0.5 else chance.choice(HEADS)
            body = b'{"model":"m","pad":"%b"}' % (b"x" * chance.choice([0, 1, 10, 100]))
            data = head % len(body) + body
            cut = len(data) if chance.random() < 0.7 else chance.randrange(len(data))
            client.send(data[:cut])
            await client.writer.drain()
            client.send(data[cut:])
            response = await client.response()
            call = node.calls[number]
            assert call.body == body
            assert call.target.encode() == head.split(b" ")[1]
            assert call.headers.get("user-agent", "").encode() in head
            assert (call.headers["x-request-id"] == "r") == (b"Request-Id" in head)
            if response.status == 429:  # a refusal: the answer is the gateway's
                assert response.error["code"] == "all_full"
            else:
                assert response.body == sent[number]
            assert (response.headers.get("x-a") == "1") == (response.status == 200)
            assert ("date" in response.headers) == (response.status == 201)
        assert len(gateway.books.settled) == 60
        assert node.connections == 1
