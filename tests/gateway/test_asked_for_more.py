"""Nodes that are asked for more than the client asks, over sockets: nothing of it is seen, wherever it went."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from functools import partial

import pytest

from gateway_rig import Client, rig
from scripted_node import STREAM_HEAD, Behaviour, answer, chunked, raw, reset, scripted_node, stream
from slipstream.core.node import Instrument
from slipstream.engines.added_field import AddedField
from slipstream.gateway.relay import READ_BODY_BYTES

TOKEN = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
LAST = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":5}}\n\n'
DONE = b"data: [DONE]\n\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
FIELDS = (
    AddedField("stream_options", b'{"include_usage":true}', "usage", streamed_only=True),
    AddedField("tell_more", b"true", "more", streamed_only=False),
)

asking = partial(rig, added_fields=lambda _engine, _level: FIELDS, instrument=Instrument.ENGINE)


@pytest.mark.parametrize("fails", [answer(503), answer(429), reset()])
async def test_a_node_that_is_asked_nothing_after_one_that_was_sees_and_gives_every_byte(fails: Behaviour) -> None:
    events = [TOKEN, LAST, USAGE, DONE]
    async with scripted_node(fails) as one, scripted_node(stream(events)) as other:
        async with asking(one.url, other.url) as gateway, Client.to(gateway) as client:
            gateway.books.nodes[1] = replace(gateway.books.nodes[1], instrument=Instrument.OFF)
            client.post(stream=True)
            response = await client.response()
        assert b"tell_more" in one.calls[0].body
        assert json.loads(other.calls[0].body) == {"model": "m", "stream": True}
        assert response.body == b"".join(events)


@pytest.mark.parametrize("size", [1, 50_000, READ_BODY_BYTES - 100])
@pytest.mark.parametrize("close", [False, True])
async def test_what_was_asked_for_is_taken_out_of_a_body_of_unknown_length(size: int, close: bool) -> None:
    shown = b'{"choices":[{"text":"%b"}]}' % (b"a" * size)
    told = shown[:-1] + b',"more":{"x":1}}'
    pieces = [told[at : at + 30_000] for at in range(0, len(told), 30_000)]
    sent = raw(UNTIL_CLOSE, *pieces, close=True) if close else raw(CHUNKED, *map(chunked, pieces), b"0\r\n\r\n")
    async with scripted_node(sent) as node, asking(node.url) as gateway, Client.to(gateway) as client:
        client.post()
        response = await client.response()
        assert response.complete
        assert response.body == shown


async def test_a_stream_that_a_node_compresses_unasked_is_passed_on_as_it_comes_and_not_read() -> None:
    told = b"".join([TOKEN, LAST, USAGE, DONE])
    packed = gzip.compress(told, mtime=0)
    head = STREAM_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    first = raw(head, chunked(packed[:20]), close=True)
    whole = raw(head, chunked(packed[:20]), chunked(packed[20:]), b"0\r\n\r\n")
    async with scripted_node(whole, first) as node, asking(node.url) as gateway, Client.to(gateway) as client:
        client.post(stream=True)
        response = await client.response()
        assert response.complete
        assert gzip.decompress(response.body) == told
        assert not gateway.books.payloads
        client.post(stream=True)
        cut_short = await client.response()
        assert (cut_short.body, cut_short.complete) == (packed[:20], False)


async def test_a_body_too_long_to_be_read_is_passed_on_whole() -> None:
    told = b'{"choices":[{"text":"%b"}],"more":{}}' % (b"a" * READ_BODY_BYTES)
    pieces = [told[at : at + 30_000] for at in range(0, len(told), 30_000)]
    sent = raw(CHUNKED, *map(chunked, pieces), b"0\r\n\r\n")
    async with scripted_node(sent) as node, asking(node.url) as gateway, Client.to(gateway) as client:
        client.post()
        response = await client.response()
        assert response.complete
        assert response.body == told


async def test_a_body_of_unknown_length_that_was_held_and_lost_is_a_502() -> None:
    sent = raw(CHUNKED, chunked(b'{"choices":'), close=True)
    async with scripted_node(sent) as node, asking(node.url) as gateway, Client.to(gateway) as client:
        client.post()
        response = await client.response()
        assert response.status == 502
