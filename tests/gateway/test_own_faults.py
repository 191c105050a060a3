"""A fault of the gateway's own costs the one request that it concerns: told, ended, and nobody waits for ever."""

from __future__ import annotations

import asyncio

import pytest

from gateway_rig import Client, eventually, read, rig
from scripted_node import answer, scripted_node
from slipstream.core.keys import KeyPolicy
from slipstream.core.request import RequestShape
from slipstream.gateway.headers import RequestHead

LARGE = "x" * 300_000
"""So much is read beside the loop."""


def faulty(path: str, body: bytes, head: RequestHead, policy: KeyPolicy | None) -> RequestShape:
    """A reader with a fault that some requests bring out."""
    if b"evil" in body:
        raise RuntimeError("a fault of the reader")
    return read(path, body, head, policy)


@pytest.mark.parametrize("padding", ["", LARGE])
async def test_a_request_that_brings_out_a_fault_is_dropped_and_others_are_served(padding: str) -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(str(context["exception"])))
    async with scripted_node(answer(), answer()) as node, rig(node.url, reader=faulty) as gateway:
        async with Client.to(gateway) as client, Client.to(gateway) as other:
            client.post(word="evil", padding=padding)
            assert await asyncio.wait_for(client.reader.read(), 10) == b""
            other.post(padding=padding)
            assert (await other.response()).status == 200
        await eventually(lambda: gateway.gateway.open_connections == 0)
    asyncio.get_running_loop().set_exception_handler(None)
    assert told == ["a fault of the reader"]
