"""What a client may send without the gateway working for it without bound."""

from __future__ import annotations

import re

import pytest

from gateway_rig import Client, rig
from scripted_node import answer, chunked, scripted_node
from slipstream.gateway.limits import Limits

CHUNKED = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
SMALL = Limits(max_header_bytes=2000)


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"0\r\n", b"X-Trailer: " + b"x" * 100 + b"\r\n"),
        (b"0\r\nX-Trailer: ", b"x" * 100),
        (b"1;", b"x" * 100),
        (b"1", b";name=" + b"x" * 100 + b"\r\ny\r\n1"),
    ],
    ids=["many trailers", "one long trailer", "one long extension", "many extensions"],
)
async def test_what_stands_around_a_body_is_limited_as_headers_are(start: bytes, piece: bytes) -> None:
    async with rig(limits=SMALL) as gateway, Client.to(gateway) as client:
        client.send(CHUNKED.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
        assert (await client.response(head_only=True)).status == 100
        client.send(chunked(b'{"model":"m"}') + start)
        for _ in range(200):
            client.send(piece)
            await client.writer.drain()
        response = await client.response()
        assert (response.status, response.error["code"]) == (431, "headers_too_large")
        assert await client.closed()


async def test_a_body_in_many_small_chunks_with_a_trailer_is_taken() -> None:
    body = b'{"model":"m"%b}' % (b" " * 5000)
    async with scripted_node(answer()) as node, rig(node.url, limits=SMALL) as gateway, Client.to(gateway) as client:
        client.send(CHUNKED)
        for index in range(len(body)):
            client.send(chunked(body[index : index + 1]))
            if index % 100 == 0:
                await client.writer.drain()
        client.send(b"0\r\nX-Trailer: 1\r\n\r\n")
        assert (await client.response()).status == 200
        assert node.calls[0].body == body


@pytest.mark.no_cover
async def test_tens_of_thousands_of_pipelined_upgrades_are_answered_without_recursion() -> None:
    async with rig() as gateway, Client.to(gateway) as client:
        client.send(
            b"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n" * 40_000
            + b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        data = await client.reader.read()
        assert data.count(b"HTTP/1.1 404 ") == 40_000
        assert data.endswith(b'{"status":"ok"}')


async def test_upgrades_pipelined_behind_a_slow_request_wait_and_are_answered_in_order() -> None:
    async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post()
        for _ in range(30):
            client.send(b"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n")
        client.send(b"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n" * 30)
        client.get("/health", headers="Connection: close\r\n")
        statuses = re.findall(rb"HTTP/1.1 (\d+) ", await client.reader.read())
        assert statuses == [b"200", *[b"404"] * 60, b"200"]
