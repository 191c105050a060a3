"""One kept-open HTTP/1.1 connection that gets pages one after the other, for scraping and nothing else."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, cast

import httptools

from slipstream.core.errors import EngineGarbage

__all__ = ["MAX_PAGE_BYTES", "Answer", "Connection"]

MAX_PAGE_BYTES = 4 * 1024 * 1024
SUCCESS_BEGINS = 200


class Answer(NamedTuple):
    """An answer's status and its whole body."""

    status: int
    body: bytes


class Connection(asyncio.Protocol):
    """The protocol of one connection. `get` sends a request and waits for its answer; one at a time.

    ``closed``: no further request can be sent. ``answered``: bytes of the current answer have come.
    """

    def __init__(self) -> None:
        self.closed = False
        self.answered = False
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[Answer] | None = None
        self._pieces: list[bytes] = []
        self._received = 0
        self._framed = False
        self._in_body = False

    async def get(self, request: bytes) -> Answer:
        """Send ``request``, a whole GET request, and return what comes back.

        Raises `ConnectionError` when the connection ends before the answer does, and `EngineGarbage` for an answer that
        is not HTTP or has more than 4 MiB, head and trailers included. Cancelled, it closes the connection.
        """
        if self.closed or self._transport is None:
            raise ConnectionResetError("the connection is closed")
        self._waiting = asyncio.get_running_loop().create_future()
        self.answered = False
        self._received = 0
        self._transport.write(request)
        try:
            return await self._waiting
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._waiting = None

    def close(self) -> None:
        """Close at once; what was under way is lost."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport to write to."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Take in a part of an answer. Bytes that nobody asked for end the connection."""
        if self._waiting is None:
            self.close()
            return
        self.answered = True
        # All bytes count, since a head, a trailer or a row of 1xx answers may be without end as well as a body.
        self._received += len(data)
        if self._received > MAX_PAGE_BYTES:
            self._fail(EngineGarbage(f"an answer of more than {MAX_PAGE_BYTES} bytes"))
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(EngineGarbage(f"not an HTTP answer: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """The end of the connection is also the end of a body without a length."""
        self.closed = True
        if self._in_body and not self._framed and exc is None:
            self._finish()
        elif self.answered:
            self._fail(ConnectionResetError("the answer broke off"))
        else:
            self._fail(exc or ConnectionResetError("closed without an answer"))

    # What the parser calls

    def on_message_begin(self) -> None:
        """Forget the answer before. A second answer to one request would be taken for the next one's: hang up."""
        if self._waiting is None or self._waiting.done():
            self.close()
        self._pieces = []
        self._framed = False

    def on_header(self, name: bytes, _value: bytes) -> None:
        """Note whether the body says where it ends."""
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._framed = True

    def on_headers_complete(self) -> None:
        """From here on it is body."""
        self._in_body = True

    def on_body(self, body: bytes) -> None:
        """Collect the body."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """The answer is whole, unless it only announces one (status 1xx)."""
        if self._parser.get_status_code() >= SUCCESS_BEGINS:
            self._finish()
        self._in_body = False

    def _finish(self) -> None:
        if not self._parser.should_keep_alive():
            self.close()
        if self._waiting is not None and not self._waiting.done():
            body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._waiting.set_result(Answer(self._parser.get_status_code(), body))

    def _fail(self, error: Exception) -> None:
        self.close()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
