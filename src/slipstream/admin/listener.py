"""Where the admin API listens: clients that say nothing keep no operator out, nor descriptors from the data plane."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final

from aiohttp import web

from slipstream.admin.answer import problem
from slipstream.operator_connection import OperatorConnection
from slipstream.tls_listener import TlsListener

__all__ = ["MOST_CONNECTIONS", "Listener"]

MOST_CONNECTIONS: Final = 256
"""Those with whom TLS is not agreed on yet among them. A request takes milliseconds, so an old one is nobody's loss."""
HANDSHAKE_S: Final = 10.0
_BACKLOG: Final = 128


class Listener:
    """Listens for an aiohttp server, which has at most ``MOST_CONNECTIONS``: who comes takes the place of the oldest.

    That is the oldest of whichever are more, the open ones or those with whom TLS is not agreed on yet. So half of the
    places must be taken anew in the milliseconds that an operator needs to keep one out.
    """

    def __init__(self, server: web.Server, tls: ssl.SSLContext | None) -> None:
        """``tls``: as a server with its certificate; ``None``: without TLS."""
        self._server = server
        self._handshakes: dict[OperatorConnection, None] = {}
        self._tls: TlsListener[OperatorConnection] | None = None
        if tls is not None:
            self._tls = TlsListener(tls, lambda: HANDSHAKE_S, self._admit_handshake, self._handshake_ended)
        self._plain: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Start serving; returns the address bound (``port`` 0 picks a free one). Raises OSError if it can not bind."""
        listening: Any
        if self._tls is not None:
            await self._tls.listen(host, port, _BACKLOG)
            listening = self._tls
        else:
            listening = self._plain = await asyncio.get_running_loop().create_server(
                self._admit, host, port, backlog=_BACKLOG
            )
        bound_host, bound_port, *_ = listening.sockets[0].getsockname()
        return bound_host, bound_port

    async def close(self) -> None:
        """Accept no more, and drop those with whom TLS is not agreed on yet."""
        if self._plain is not None:
            self._plain.close()
        if self._tls is not None:
            self._tls.close()
            await self._tls.wait_closed()

    def _admit(self) -> OperatorConnection:
        connections = self._server.connections
        over = len(connections) + len(self._handshakes) + 1 - MOST_CONNECTIONS
        if over > 0:
            if self._tls is not None and len(self._handshakes) > len(connections):
                for oldest in list(self._handshakes)[:over]:
                    self._handshake_ended(oldest)
                    self._tls.drop(oldest)
            else:
                for connection in connections[:over]:
                    connection.force_close()
        return OperatorConnection(self._server, problem)

    def _admit_handshake(self) -> OperatorConnection:
        connection = self._admit()
        self._handshakes[connection] = None
        return connection

    def _handshake_ended(self, connection: OperatorConnection) -> None:
        self._handshakes.pop(connection, None)
