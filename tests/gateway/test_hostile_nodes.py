"""What a node may do wrong without the fleet, the gateway or another client paying for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gateway_rig import Books, Client, no_descriptor_left, rig
from scripted_node import STREAM_HEAD, Behaviour, answer, chunked, close, raw, reset, scripted_node, stream
from slipstream.core.outcome import Ending

DONE = b"data: [DONE]\n\n"


@contextmanager
def fatal_errors() -> Iterator[list[Any]]:
    """What the running loop is told of exceptions that nobody caught."""
    loop, told = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: told.append(context.get("exception")))
    yield told
    loop.set_exception_handler(None)


@pytest.mark.parametrize("behaviour", [answer(body=b'{"a":1}'), answer(close=True), stream([b"data: {}\n\n", DONE])])
async def test_an_answer_whose_statistics_can_not_be_read_is_still_delivered_settled_and_finished(
    behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a reader's own fault")

    monkeypatch.setattr(Books, "read_statistics", broken)
    with fatal_errors() as told:
        async with scripted_node(behaviour) as node, rig(node.url) as gateway, Client.to(gateway) as client:
            client.post()
            response = await client.response()
            assert (response.status, response.complete) == (200, True)
            assert not gateway.books.open
            client.get("/health")
            assert (await client.response()).status == 200
        assert [outcome.ending for outcome in gateway.books.outcomes] == [Ending.COMPLETED]
        assert gateway.books.outcomes[0].output_tokens is None
        assert [type(error) for error in told] == [RuntimeError]


@pytest.mark.parametrize("behaviour", [close(), reset()])
async def test_a_request_on_which_every_node_hangs_up_makes_no_node_unreachable(behaviour: Behaviour) -> None:
    async with scripted_node(behaviour) as node, rig(node.url, node.url) as gateway, Client.to(gateway) as client:
        client.post()
        assert (await client.response()).status in (429, 502)
        assert [outcome.ending for outcome in gateway.books.outcomes] == [Ending.UPSTREAM_LOST] * 2


async def test_a_gateway_without_descriptors_says_so_and_blames_no_node() -> None:
    async with scripted_node(answer()) as node, rig(node.url, node.url) as gateway, Client.to(gateway) as client:
        client.get("/health")
        await client.response()
        with no_descriptor_left():
            client.post()
            response = await client.response()
        assert response.status == 503
        assert (response.error["code"], "file descriptors" in response.error["message"]) == ("out_of_descriptors", True)
        assert [outcome.ending for outcome in gateway.books.outcomes] == [Ending.NOT_SENT]
        client.post()
        assert (await client.response()).status == 200


@pytest.mark.parametrize(
    "piece", [b"X-Trailer: " + b"x" * 1000 + b"\r\n", b"x" * 1000], ids=["many trailers", "one long trailer"]
)
async def test_a_node_whose_trailers_do_not_end_is_lost(piece: bytes) -> None:
    endless = raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nA: ", *[piece] * 1000)
    async with scripted_node(endless) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post()
        await client.response()
        assert [outcome.ending for outcome in gateway.books.outcomes] == [Ending.UPSTREAM_LOST]


async def test_the_framing_of_many_small_chunks_is_not_held_against_a_node() -> None:
    event = chunked(b"data: {}\n\n")
    wire = (event * 30_000)[1:]
    many = raw(STREAM_HEAD + event[:1], wire + chunked(DONE) + b"0\r\n\r\n")
    async with scripted_node(many) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post()
        assert (await client.response()).complete
        assert [outcome.ending for outcome in gateway.books.outcomes] == [Ending.COMPLETED]


async def test_a_node_that_switches_protocols_is_a_502_and_no_traceback() -> None:
    switching = raw(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nbytes of x")
    with fatal_errors() as told:
        async with scripted_node(switching) as node, rig(node.url) as gateway, Client.to(gateway) as client:
            client.post()
            response = await client.response()
            assert (response.status, response.error["code"]) == (502, "upstream_failed")
            client.get("/health")
            assert (await client.response()).status == 200
            assert [outcome.ending for outcome in gateway.books.outcomes] == [Ending.UPSTREAM_LOST]
        assert told == []


async def test_a_nodes_cookies_do_not_reach_the_client() -> None:
    cookies = "Set-Cookie: route=10.0.0.7\r\nX-Custom: 1\r\n"
    async with scripted_node(answer(headers=cookies)) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post()
        headers = (await client.response()).headers
        assert "set-cookie" not in headers
        assert headers["x-custom"] == "1"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_nodes_redirect_is_a_502_that_does_not_show_its_address(status: int) -> None:
    redirect = answer(status, headers="Location: http://10.0.0.7:8000/login\r\n")
    async with scripted_node(redirect) as node, rig(node.url, node.url) as gateway, Client.to(gateway) as client:
        for _ in range(2):  # the second time its head may be recognised as a repeated one
            client.post()
            response = await client.response()
            assert (response.status, response.error["code"]) == (502, "upstream_failed")
            assert str(status) in response.error["message"]
            assert "10.0.0.7" not in str(response)
        assert [(o.ending, o.status) for o in gateway.books.outcomes] == [(Ending.REFUSED, status)] * 2
