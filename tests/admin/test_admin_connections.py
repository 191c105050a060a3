"""Connections on which nothing is asked keep neither operators out nor the process from ending."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

from aiohttp import ClientSession

from fleets import dispatcher_of, fleet_of
from slipstream.admin import Admin, serve_admin
from slipstream.admin.app import MOST_CONNECTIONS
from slipstream.telemetry import FleetCollector, Instruments


def admin() -> Admin:
    dispatcher = dispatcher_of(fleet_of())
    collector = FleetCollector(dispatcher, Instruments(), ["chat"], lambda: 0.5, lambda: None)
    return Admin(dispatcher, collector, lambda: 0.5, version="1")


async def silent(url: str, said: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which no request is completed."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(said)
    return reader, writer


async def test_of_too_many_connections_the_oldest_are_closed() -> None:
    async with serve_admin(admin(), "127.0.0.1", 0) as url, AsyncExitStack() as stack, asyncio.timeout(20):
        readers = []
        for _ in range(MOST_CONNECTIONS + 5):
            reader, writer = await silent(url, b"GET /fleet HT")
            stack.callback(writer.close)
            readers.append(reader)
        async with ClientSession() as session, session.get(f"{url}/health") as response:
            assert response.status == 200
        assert [await reader.read() for reader in readers[:6]] == [b""] * 6
        assert not readers[-1].at_eof()


async def test_a_request_that_never_comes_whole_does_not_keep_the_process_from_ending() -> None:
    head = (
        b"POST /overrides HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"
    )
    async with asyncio.timeout(20):
        async with serve_admin(admin(), "127.0.0.1", 0) as url:
            _, writer = await silent(url, head)
            async with ClientSession() as session, session.get(f"{url}/health") as response:
                assert response.status == 200
        writer.close()
