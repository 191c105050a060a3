"""Nodes that close a connection in the moment in which it was made: nobody waits for an answer from them."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from gateway_rig import Client, rig
from slipstream.core.outcome import Ending
from slipstream.gateway.limits import Limits


@contextmanager
def closed_after(turns: int, *, reset: bool) -> Iterator[str]:
    """The address of a node that closes what connects, so many turns of the event loop later."""
    loop = asyncio.get_running_loop()
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(0.0)
    accepted: list[tuple[socket.socket, int]] = []
    turn = 0
    looking: asyncio.Handle | None = None

    def look() -> None:
        nonlocal turn, looking
        turn += 1
        with suppress(BlockingIOError):
            accepted.append((listening.accept()[0], turn))
        while accepted and turn - accepted[0][1] >= turns:
            connection, _ = accepted.pop(0)
            if reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        looking = loop.call_soon(look)

    look()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        if looking is not None:
            looking.cancel()
        listening.close()
        for connection, _ in accepted:
            connection.close()


@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("turns", range(4))
async def test_a_node_that_closes_a_connection_as_soon_as_it_is_made_is_not_waited_for(
    turns: int, *, reset: bool
) -> None:
    with closed_after(turns, reset=reset) as url:
        async with rig(url, limits=Limits(retries=0, first_byte_unstreamed_s=2.0)) as gateway:
            async with Client.to(gateway) as client:
                client.post()
                assert (await client.response()).status == 502
            assert gateway.books.outcomes[0].ending in (Ending.UNREACHABLE, Ending.UPSTREAM_LOST)
