"""Connections on which nothing is asked keep neither operators out nor the process from ending."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientSession

from fleets import dispatcher_of, fleet_of
from slipstream.admin import Admin, serve_admin
from slipstream.admin.listener import MOST_CONNECTIONS
from slipstream.gateway.tls import Certificate, server_context
from slipstream.telemetry import FleetCollector, Instruments
from tls_files import chain_and_key, client_tls


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


async def test_a_request_that_never_comes_whole_does_not_keep_the_process_from_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("slipstream.admin.app.CLOSE_S", 0.1)
    head = (
        b"POST /overrides HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"
    )
    async with asyncio.timeout(20):
        async with serve_admin(admin(), "127.0.0.1", 0) as url:
            _, writer = await silent(url, head)
            async with ClientSession() as session, session.get(f"{url}/health") as response:
                assert response.status == 200
        writer.close()


def tls() -> ssl.SSLContext:
    return Certificate(server_context(*chain_and_key("server"))).context


def half_a_hello() -> bytes:
    """The first bytes of a client's first message, as far as half of it."""
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        client_tls().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    hello = outgoing.read()
    return hello[: len(hello) // 2]


async def health(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """The first line of what the admin API answers on a connection."""
    writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
    await writer.drain()
    answer = await reader.readuntil(b"}")
    return answer.partition(b"\r\n")[0]


async def test_of_too_many_handshakes_that_never_end_the_oldest_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.admin.listener.HANDSHAKE_S", 3600.0)
    hello = half_a_hello()
    async with serve_admin(admin(), "127.0.0.1", 0, tls()) as url, AsyncExitStack() as stack, asyncio.timeout(20):
        address = urlsplit(url)
        operator = await asyncio.open_connection(address.hostname, address.port, ssl=client_tls())
        stack.callback(operator[1].close)
        assert await health(*operator) == b"HTTP/1.1 200 OK"
        readers = []
        for number in range(MOST_CONNECTIONS + 5):
            reader, writer = await silent(url, hello if number % 2 else b"")
            stack.callback(writer.close)
            readers.append(reader)
        assert [await reader.read() for reader in readers[:6]] == [b""] * 6
        assert not readers[-1].at_eof()
        late = await asyncio.open_connection(address.hostname, address.port, ssl=client_tls())
        stack.callback(late[1].close)
        for client in operator, late:
            assert await health(*client) == b"HTTP/1.1 200 OK"


async def test_a_handshake_that_does_not_end_in_time_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.admin.listener.HANDSHAKE_S", 0.1)
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    async with serve_admin(admin(), "127.0.0.1", 0, tls()) as url, asyncio.timeout(20):
        for said in b"", half_a_hello(), b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n":
            reader, writer = await silent(url, said)
            assert b"HTTP" not in await reader.read()  # an alert at most
            writer.close()
    asyncio.get_running_loop().set_exception_handler(None)
    assert not told


async def test_handshakes_do_not_keep_the_admin_api_from_ending() -> None:
    async with asyncio.timeout(20):
        async with serve_admin(admin(), "127.0.0.1", 0, tls()) as url:
            said = half_a_hello()
            clients = [await silent(url, said) for _ in range(3)]
            address = urlsplit(url)
            clients.append(await asyncio.open_connection(address.hostname, address.port, ssl=client_tls()))
        for reader, writer in clients:
            assert await reader.read() == b""
            writer.close()
