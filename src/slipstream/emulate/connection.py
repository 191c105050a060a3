"""One client's connection: HTTP/1.1 requests off the wire, one at a time, and bytes back, whole or in pieces."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

import httptools

from slipstream.emulate.faults import Split

__all__ = ["Connection", "Request", "Server"]

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Request:
    """A whole request. Names of ``headers`` are in lower case; ``path`` is without the query."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    keep_alive: bool


class Server(Protocol):
    """Who answers. Each ``handle`` leads, now or later, to one `Connection.finish`, unless the connection is lost."""

    def opened(self, connection: Connection) -> None: ...

    def lost(self, connection: Connection) -> None: ...

    def handle(self, connection: Connection, request: Request) -> None: ...


class Connection(asyncio.Protocol):
    """Requests that come while one is answered wait. What is written is not held back when a client reads slowly: an
    answer is small, and where it stays is not what is looked at here.
    """

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self.split: Split | None = None
        self.busy = False
        self._server = server
        self._loop = loop
        self._transport: Any = None
        self._parser: Any = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._ready: deque[Request] = deque()
        self._pieces: deque[bytes] = deque()
        self._pacing: asyncio.TimerHandle | None = None
        self._ending: bool | None = None

    # For whoever answers.

    def write(self, data: bytes) -> None:
        """Send, in pieces if so told."""
        if self.split is None:
            self._transport.write(data)
            return
        self._pieces.extend(_pieces(data, self.split))
        if self._pacing is None:
            self._write_piece()

    def finish(self, *, keep_alive: bool) -> None:
        """The answer is written."""
        if self._pieces or self._pacing is not None:
            self._ending = keep_alive
            return
        self.split = self._ending = None
        self.busy = False
        if not keep_alive:
            self._transport.close()
        elif self._ready:
            self._next()

    def close(self, *, reset: bool = False) -> None:
        """End the connection as it is: what is written arrives, unless it is reset."""
        if self._transport.is_closing():
            return
        if reset:
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._transport.abort()
        else:
            self._transport.close()

    def drop(self) -> None:
        """End it without waiting for what is written to be read."""
        self._transport.abort()

    # For the event loop and the parser.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._server.opened(self)

    def connection_lost(self, _error: Exception | None) -> None:
        if self._pacing is not None:
            self._pacing.cancel()
        self._server.lost(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # the request is complete, and answered without the upgrade it asks for
        except httptools.HttpParserError:
            self._transport.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            self._transport.close()

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = {}
        self._body = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._headers.get("expect", "").lower() == "100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        parser = self._parser
        path = self._url.decode("latin-1").partition("?")[0]
        method = parser.get_method().decode()
        request = Request(method, path, self._headers, b"".join(self._body), parser.should_keep_alive())
        self._ready.append(request)
        if not self.busy:
            self._next()

    def _next(self) -> None:
        self.busy = True
        self._server.handle(self, self._ready.popleft())

    def _write_piece(self) -> None:
        self._pacing = None
        self._transport.write(self._pieces.popleft())
        if self._pieces:
            gap_s = self.split.gap_ms / 1000 if self.split is not None else 0.0
            self._pacing = self._loop.call_later(gap_s, self._write_piece)
        elif self._ending is not None:
            self.finish(keep_alive=self._ending)


def _pieces(data: bytes, split: Split) -> list[bytes]:
    if split.bytes is not None:
        return [data[start : start + split.bytes] for start in range(0, len(data), split.bytes)]
    inside = next((index for index, byte in enumerate(data) if byte & 0xC0 == 0x80), len(data) // 2)
    return [piece for piece in (data[:inside], data[inside:]) if piece]
