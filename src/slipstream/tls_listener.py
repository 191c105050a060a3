"""A listener for TLS that counts its clients from the moment they connect.

Event loops tell of a client only once TLS is agreed on with it. One that never agrees holds a descriptor all the same,
so connections are accepted here.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, TypeVar

__all__ = ["TlsListener"]

_ACCEPTED_AT_ONCE: Final = 64
"""So many connections are accepted before the loop turns to its other work."""
_NO_DESCRIPTOR_S: Final = 1.0
"""Where the system refuses to accept, so long those who connect are left waiting in the kernel."""

Connection = TypeVar("Connection")
"""A protocol in asyncio's sense, whatever its base."""


class TlsListener(Generic[Connection]):
    """Accepts clients, agrees on TLS with each, and hands its connection over.

    ``admit`` is asked for the connection of each client that connects, ``None`` = drop it. ``ended`` is told when TLS
    was agreed on, so that the connection has been made, or when it never will be. A client has ``timeout_s()`` seconds.
    """

    __slots__ = ("_admit", "_context", "_ended", "_handshakes", "_paused", "_timeout_s", "sockets")

    def __init__(
        self,
        context: ssl.SSLContext,
        timeout_s: Callable[[], float],
        admit: Callable[[], Connection | None],
        ended: Callable[[Connection], object],
    ) -> None:
        self.sockets: list[socket.socket] = []
        self._context = context
        self._timeout_s = timeout_s
        self._admit = admit
        self._ended = ended
        self._handshakes: dict[Connection, asyncio.Task[None]] = {}
        self._paused: dict[socket.socket, asyncio.TimerHandle] = {}

    async def listen(self, host: str, port: int, backlog: int) -> None:
        """Listen on every address of ``host``. Raises OSError if one can not be bound."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                self.sockets.append(socket.create_server(address, family=family, backlog=backlog))
        except OSError:
            self.close()
            raise
        for bound in self.sockets:
            bound.settimeout(0.0)
            loop.add_reader(bound, self._accept, bound)

    def drop(self, connection: Connection) -> None:
        """Let go of a client with whom TLS is not agreed on yet."""
        self._handshakes[connection].cancel()

    def close(self) -> None:
        """Accept no more, and drop those with whom TLS is not agreed on yet."""
        loop = asyncio.get_running_loop()
        for bound in self.sockets:
            loop.remove_reader(bound)
            bound.close()
        for timer in self._paused.values():
            timer.cancel()
        for handshake in self._handshakes.values():
            handshake.cancel()

    async def wait_closed(self) -> None:
        """Wait until all that were dropped are gone."""
        if self._handshakes:
            await asyncio.wait(self._handshakes.values())

    def _accept(self, bound: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                client, _address = bound.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor or memory is left, and the socket stays readable: do not spin
                loop.remove_reader(bound)
                self._paused[bound] = loop.call_later(_NO_DESCRIPTOR_S, self._go_on, bound)
                return
            connection = self._admit()
            if connection is None:
                client.close()
                continue
            client.settimeout(0.0)
            handshake = loop.create_task(self._agree(client, connection))
            self._handshakes[connection] = handshake
            handshake.add_done_callback(partial(self._done, client, connection))

    def _go_on(self, bound: socket.socket) -> None:
        del self._paused[bound]
        asyncio.get_running_loop().add_reader(bound, self._accept, bound)

    async def _agree(self, client: socket.socket, connection: Any) -> None:
        with suppress(OSError):  # it spoke no TLS, or not in time, or left: its socket has been closed
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, client, ssl=self._context, ssl_handshake_timeout=self._timeout_s()
            )

    def _done(self, client: socket.socket, connection: Connection, handshake: asyncio.Task[None]) -> None:
        del self._handshakes[connection]
        self._ended(connection)
        if handshake.cancelled():
            client.close()  # it may have been dropped before its handshake began
