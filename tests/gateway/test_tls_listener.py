"""Clients of a listener that speaks TLS count, and are let go, before TLS is agreed on with them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from gateway_rig import Client, Rig, eventually, no_descriptor_left, rig
from slipstream.gateway.limits import Limits
from slipstream.gateway.tls import Certificate, server_context
from tls_files import chain_and_key, client_tls


def certificate() -> Certificate:
    return Certificate(server_context(*chain_and_key("server")))


@contextmanager
def idle_handshakes(gateway: Rig, count: int) -> Iterator[None]:
    """Clients that have said the first bytes of TLS, and say no more."""
    with ExitStack() as clients:
        for _ in range(count):
            client = clients.enter_context(socket.create_connection((gateway.host, gateway.port)))
            client.send(b"\x16\x03\x01")
        yield


async def test_handshakes_that_never_end_count_as_clients_until_they_are_dropped_in_time() -> None:
    limits = Limits(client_head_s=0.5, max_connections=20)
    async with rig(certificate=certificate(), limits=limits) as gateway:
        served = gateway.gateway
        with idle_handshakes(gateway, 20):
            await eventually(lambda: served.open_connections == 20)
            async with Client.to(gateway, client_tls()) as late:
                late.get("/health")
                assert (await late.response()).error["code"] == "too_many_connections"
            await eventually(lambda: served.open_connections == 0)
            async with Client.to(gateway, client_tls()) as good:
                good.get("/health")
                assert (await good.response()).status == 200
                assert served.open_connections == 1


async def test_a_flood_of_handshakes_is_dropped_and_counted_while_those_who_came_before_are_served() -> None:
    async with (
        rig(certificate=certificate(), limits=Limits(max_connections=2)) as gateway,
        Client.to(gateway, client_tls()) as inside,
        Client.to(gateway) as slow,
    ):
        await eventually(lambda: gateway.gateway.open_connections == 2)
        with idle_handshakes(gateway, 100):
            await eventually(lambda: len(gateway.books.rejections) == 36)
            assert gateway.gateway.open_connections == 66
            await slow.writer.start_tls(client_tls(), server_hostname="localhost")
            for client in inside, slow:
                client.get("/health")
                assert (await client.response()).status == 200
            assert len(gateway.books.rejections) == 36


async def test_handshakes_do_not_hold_up_the_end() -> None:
    async with rig(certificate=certificate(), limits=Limits(client_head_s=60)) as gateway:
        with idle_handshakes(gateway, 3):
            await eventually(lambda: gateway.gateway.open_connections == 3)
            with idle_handshakes(gateway, 1):
                await asyncio.sleep(0)  # accepted or not, when the end comes
                assert await asyncio.wait_for(gateway.gateway.close(), 10) == 0
                assert gateway.gateway.open_connections == 0


async def test_who_connects_while_no_descriptor_is_left_is_served_when_there_is_one() -> None:
    async with rig(certificate=certificate()) as gateway:
        with socket.create_connection((gateway.host, gateway.port)) as waiting:
            with no_descriptor_left():
                for _ in range(3):
                    await asyncio.sleep(0.01)
                assert gateway.gateway.open_connections == 0
            await eventually(lambda: gateway.gateway.open_connections == 1)
            assert waiting.send(b"not TLS") == 7
            await eventually(lambda: gateway.gateway.open_connections == 0)
        with socket.create_connection((gateway.host, gateway.port)), no_descriptor_left():
            await asyncio.sleep(0.01)
            assert await gateway.gateway.close() == 0


async def test_an_address_that_is_taken_is_an_error() -> None:
    async with rig(certificate=certificate()) as first:
        with pytest.raises(OSError, match="in use"):
            await first.gateway.listen(first.host, first.port, certificate())
