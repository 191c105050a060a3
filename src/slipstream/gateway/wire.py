"""The client's side of HTTP/1.1: requests off the wire, in order, and bytes back onto it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

import httptools

from slipstream.core.errors import BodyTooLarge, HeadersTooLarge, MalformedRequest, RequestTimedOut, SlipstreamError
from slipstream.core.keys import Lease
from slipstream.gateway.headers import Headers, RequestHead
from slipstream.gateway.limits import Limits
from slipstream.gateway.repetition import RepeatedHead, head_to_repeat
from slipstream.gateway.request import Request
from slipstream.gateway.socket_state import peer_left, unread_bytes

__all__ = ["ClientConnection", "Handler", "Work"]

MAX_PIPELINED: Final = 8
"""Complete requests a connection may have waiting behind the one that is answered, before it is read no further."""

WAITING_BYTES: Final = 1024 * 1024
"""Bodies a connection may have waiting behind the request that is answered, before it is read no further. So what a
client holds is the largest body, this, and one read of 256 KiB."""

SLOWEST_BODY: Final = 1024
"""Bytes a second that a body must come with, on average, beyond its first ``idle_s`` seconds."""

SMALL_PIECE_BYTES: Final = 1024
"""Shorter pieces of a body are joined as they come: one object for each would weigh twenty times what it holds."""

CHUNK_FRAMING_BYTES: Final = 64
"""Around a chunk, on average, a client may send so much; what is over it counts like headers: trailers, extensions."""

STRANGERS_BODY_BYTES: Final = 64 * 1024
"""Longer bodies, and those of unknown length, are not read before it is known who sends them."""

_REST_OF_HEAD_BYTES: Final = len("  HTTP/1.1\r\n\r\n")
"""Of a head, beside method, target and header lines."""
_LINGER_S: Final = 2.0
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Work(Protocol):
    """A request being answered over time. It hears of its client, and of the time passing."""

    def client_gone(self) -> None: ...

    def client_blocked(self) -> None:
        """Much of what was written has not been read."""

    def client_unblocked(self) -> None: ...

    def expire(self, now: float) -> None: ...

    def stopped(self) -> None:
        """There is no time left: say so to the client, in whatever way is left."""


class Handler(ABC):
    """Who answers. Each call leads, now or later, to exactly one ``finish`` of the connection."""

    @abstractmethod
    def connected(self, connection: ClientConnection) -> None: ...

    @abstractmethod
    def disconnected(self, connection: ClientConnection) -> None: ...

    @abstractmethod
    def handle(self, connection: ClientConnection, request: Request) -> None: ...

    @abstractmethod
    def refuse(self, connection: ClientConnection, error: SlipstreamError, request: Request | None) -> None:
        """Answer what is not read to its end; then ``finish`` with ``keep_alive`` false. ``request`` is what its head
        says, ``None`` when not even that could be read.
        """

    @abstractmethod
    def stranger(self, head: RequestHead) -> SlipstreamError | None:
        """Why a body should not be read because of who sends it, ``None`` if it should."""

    @abstractmethod
    def now(self) -> float: ...


class ClientConnection:
    """One client's connection. Requests are handled one at a time, in the order in which they came.

    A protocol in asyncio's sense, without that base: classes with a foreign base can not be compiled.
    """

    __slots__ = (
        "_begun",
        "_body_bytes",
        "_busy",
        "_chunks",
        "_closing_since",
        "_driving",
        "_expecting",
        "_framing_bytes",
        "_handler",
        "_head_bytes",
        "_head_shared",
        "_headers",
        "_in_body",
        "_limits",
        "_parser",
        "_pieces",
        "_progress_at",
        "_reading_paused",
        "_ready",
        "_refusal",
        "_repeated",
        "_request",
        "_resumption",
        "_retired",
        "_since",
        "_stamp",
        "_target",
        "_template",
        "_transport",
        "_unfed",
        "_unsent",
        "_write_blocked",
        "active_at",
        "lease",
        "work",
        "write",
    )

    def __init__(self, handler: Handler, limits: Limits) -> None:
        self._handler = handler
        self._limits = limits
        self._transport: Any = None
        self._parser: Any = httptools.HttpRequestParser(self)
        self._ready: deque[Request | SlipstreamError] = deque()
        self._refusal: SlipstreamError | None = None
        self._request: Request | None = None
        self._resumption: bytes | None = None
        self._repeated: RepeatedHead | None = None
        self._template: Request | None = None  # what ``_repeated`` was read as
        self._headers: Headers = []
        self._pieces: list[bytes | bytearray] = []
        self._target = b""
        self._unfed: memoryview | None = None  # behind an offer to upgrade, when enough requests wait
        self._head_bytes = self._body_bytes = self._framing_bytes = self._chunks = self._unsent = 0
        self._begun = self._busy = self._driving = self._expecting = self._in_body = False
        self._head_shared = False  # whether the head that is coming in began behind another request, in one read
        self._reading_paused = self._write_blocked = self._retired = self._stamp = False
        self._closing_since: float | None = None
        self.work: Work | None = None
        """What the current request's answer is made by, when that takes time."""
        self.lease: Lease | None = None
        """The current request's share of the limits of its API key, if it has one. It ends with the request."""
        self.active_at = self._progress_at = 0.0
        self._since = 0.0  # when the head that is coming in began, or the body

    # What follows is for whoever answers.

    def finish(self, *, keep_alive: bool) -> None:
        """The answer to the current request is written."""
        self.work = None
        self._busy = False
        self._stamp = True
        if self.lease is not None:
            self._end_lease()
        if self._retired or not keep_alive:
            self.close()
        elif self._ready or self._expecting or self._reading_paused:
            self._drive()

    def _end_lease(self) -> None:
        lease, self.lease = self.lease, None
        if lease is not None:
            lease.end()

    def close(self) -> None:
        """Close when everything written is sent. Nothing further is read as a request."""
        if self._closing_since is None:
            self._closing_since = self._handler.now()
            self._ready.clear()
            if self._refusal is None or not self._transport.can_write_eof():
                self._transport.close()
            else:  # the client is still sending: closing now could destroy the answer before it is read
                self._transport.write_eof()
                self._read_on()

    def configure(self, limits: Limits) -> None:
        """Read by these limits from now on."""
        self._limits = limits

    def retire(self) -> None:
        """Close as soon as no request is being answered, nor one coming in."""
        self._retired = True
        if not self._busy and not self._begun:
            self.close()

    def stop(self) -> bool:
        """Close now; whether a request was being answered, which its client is told."""
        work = self.work
        if work is None:
            self.close()
            return False
        work.stopped()
        return True

    def abort(self) -> None:
        """Drop the connection at once."""
        self._transport.abort()

    def turn_away(self, error: SlipstreamError) -> None:
        """Answer with an error and close, whatever the client sends."""
        self._refuse(error)
        self._drive()

    def expire(self, now: float) -> None:
        """Give up on a client that keeps us waiting; pass the time on to the work in progress."""
        limits = self._limits
        if self._stamp:  # an answer has ended since: taking the time here is cheaper than at each
            self._stamp = False
            self.active_at = self._since = now
        unread = unread_bytes(self._transport)
        if unread != self._unsent or not unread:
            self._unsent = unread
            self._progress_at = now
        if now - self._progress_at >= limits.write_s:
            self.abort()
        elif self._closing_since is not None:
            lingering = _LINGER_S if self._refusal is not None else limits.write_s
            if not unread and now - self._closing_since >= lingering:
                self.abort()
        elif self._reading_paused and peer_left(self._transport):
            self.abort()
        elif self.work is not None:
            self.work.expire(now)
        elif not self._busy and not self._ready:  # else it waits for us, or reads what it was sent
            self._expire_request(now)

    def _expire_request(self, now: float) -> None:
        """Give up on a request that does not come, or comes too slowly."""
        limits = self._limits
        if self._in_body:
            quiet_s = now - self.active_at
            if quiet_s >= limits.idle_s or now - self._since >= limits.idle_s + self._body_bytes / SLOWEST_BODY:
                self.turn_away(RequestTimedOut("The request's body did not come in time."))
        elif self._begun:
            if now - self._since >= limits.client_head_s:
                seconds = f"{limits.client_head_s:g} seconds"
                self.turn_away(RequestTimedOut(f"The request's headers were not complete within {seconds}."))
        elif now - self.active_at >= limits.client_keep_alive_s:
            self.close()

    # What follows is called by the event loop.

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.write: Callable[[bytes], None] = transport.write
        """Sends bytes of an answer."""
        self.active_at = self._handler.now()
        self._handler.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why does not matter, the signature does
        self._closing_since = 0.0
        self._ready.clear()
        self._parser = None  # it holds our methods, and we it
        work, self.work = self.work, None
        self._end_lease()
        self._handler.disconnected(self)
        if work is not None:
            work.client_gone()

    def eof_received(self) -> None:
        """The client sends no more: it has gone. Returning ``None`` closes the connection."""

    def pause_writing(self) -> None:
        self._write_blocked = True
        if self.work is not None:
            self.work.client_blocked()

    def resume_writing(self) -> None:
        self._write_blocked = False
        if self.work is not None:
            self.work.client_unblocked()
        else:
            self._drive()

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None or self._closing_since is not None:
            return  # what comes behind a refused request is not read
        self.active_at = self._handler.now()
        fresh = not self._begun
        if fresh and self._repeat(data):
            self._drive()
            return
        if not self._in_body:
            self._head_bytes += len(data)
        waiting = len(self._ready)
        body_of = self._request if self._in_body else None
        body_bytes = self._body_bytes
        self._feed(data)
        if body_of is not None and body_of is self._request:
            self._framing_bytes += len(data) - (self._body_bytes - body_bytes)
            if self._framing_bytes > self._limits.max_header_bytes + CHUNK_FRAMING_BYTES * self._chunks:
                self._refuse(_framing_too_large(self._limits))
        if fresh and not self._begun and self._unfed is None and len(self._ready) == waiting + 1:
            self._remember(data, self._ready[-1])
        if not self._in_body and self._head_bytes > self._limits.max_header_bytes:
            self._refuse(_headers_too_large(self._limits))
        if self._ready or self._expecting or self._busy:
            self._drive()

    def _repeat(self, data: bytes) -> bool:
        """Take a whole request whose head repeats the client's last one; whether ``data`` was that."""
        repeated, template = self._repeated, self._template
        if repeated is None or template is None:
            return False
        start = repeated.body_start(data)
        if not start or len(data) - start > self._limits.max_body_bytes:
            return False
        request = template.again(self.active_at)
        request.body = data[start:]
        self._ready.append(request)
        return True

    def _remember(self, data: bytes, request: Request | SlipstreamError) -> None:
        """Remember the head of a whole request that came in one read, for the next to be compared with."""
        if isinstance(request, Request) and request.keep_alive and request.head.length and not request.head.expects:
            self._repeated = head_to_repeat(data)
            self._template = request.again(0.0)

    def _feed(self, data: bytes | memoryview) -> None:
        """Parse. The parser stops at each offer to upgrade: a client may send thousands, so this is a loop."""
        while data:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                self._decline_upgrade()
                data = rest = memoryview(data)[upgrade.args[0] :]  # not a copy of it each time
                if rest and len(self._ready) > MAX_PIPELINED:
                    self._unfed = rest
                    return
            except httptools.HttpParserError as error:
                self._refuse(MalformedRequest(f"The bytes received are not an HTTP/1.1 request: {error}."))
                return
            else:
                return

    def _decline_upgrade(self) -> None:
        """Go on in HTTP/1.1 after a request that offered another protocol.

        The parser stops behind the head of such a request, so a new one is told what it needs to know of the body.
        """
        self._parser = httptools.HttpRequestParser(self)
        if self._resumption is not None:
            self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % self._resumption)
            self._resumption = None

    def _refuse(self, error: SlipstreamError) -> None:
        if self._refusal is None:
            self._refusal = error
            self._pieces.clear()
            self._ready.append(error)

    def _drive(self) -> None:
        """Handle what is ready, one after the other. Answers may come at once: that makes a loop, not a recursion."""
        if self._driving:
            return
        self._driving = True
        ready = self._ready
        while ready and not self._busy and not self._write_blocked and self._closing_since is None:
            item = ready.popleft()
            self._busy = True
            if isinstance(item, Request):
                self._handler.handle(self, item)
            else:
                self._handler.refuse(self, item, self._request)
            if not ready:
                self._feed_on()
        self._driving = False
        if self._expecting and not self._busy and not ready and self._refusal is None and self._closing_since is None:
            self._expecting = False
            self._since = self._handler.now()
            self.write(_CONTINUE)
        if (ready or (self._in_body and self._busy)) and self._enough_waits():
            if not self._reading_paused and not self._transport.is_closing():
                self._reading_paused = True
                self._transport.pause_reading()
        elif self._reading_paused:
            self._read_on()

    def _enough_waits(self) -> bool:
        """Whether so much waits behind the request that is answered that no more is read."""
        if len(self._ready) > MAX_PIPELINED or self._unfed is not None:
            return True
        waiting = self._body_bytes if self._busy and self._in_body else 0
        for item in self._ready:
            if isinstance(item, Request):
                waiting += len(item.body)
        return waiting > WAITING_BYTES

    def _feed_on(self) -> None:
        """Parse what was left, now that no request waits."""
        unfed, self._unfed = self._unfed, None
        if unfed is not None and self._refusal is None and self._closing_since is None:
            self._feed(unfed)

    def _read_on(self) -> None:
        if self._reading_paused and not self._transport.is_closing():
            self._reading_paused = False
            self._transport.resume_reading()

    # What follows is called by the parser, inside feed_data: it only takes notes.

    def on_message_begin(self) -> None:
        self._begun = True
        if self._resumption is None:
            self._head_shared = not self._head_bytes
            self._since = self.active_at
            self._headers = []
            self._target = b""

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_body:  # else it is a trailer
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._refusal is not None or self._resumption is not None:
            return
        limits, parser = self._limits, self._parser
        if self._head_shared or self._head_bytes > limits.max_header_bytes:  # then count it alone
            size = len(parser.get_method()) + len(self._target) + _REST_OF_HEAD_BYTES
            if size + sum(len(name) + len(value) + 4 for name, value in self._headers) > limits.max_header_bytes:
                self._refuse(_headers_too_large(limits))
                return
        head = RequestHead(self._headers)
        version = parser.get_http_version()
        http_1_1 = version == "1.1"
        fault = head.fault
        if fault is None and not (http_1_1 and head.hosts == 1 and b"#" not in self._target):
            fault = _fault(version, head, self._target)
        if fault is not None:
            self._refuse(MalformedRequest(f"The bytes received are not an HTTP/1.1 request: {fault}."))
            return
        target = _origin_form(self._target)
        self._request = Request(
            parser.get_method().decode("ascii"),
            target,
            target.partition(b"?")[0].decode("latin-1"),
            head,
            chunks=http_1_1,
            keep_alive=http_1_1 and parser.should_keep_alive(),
            received_at=self.active_at,
        )
        if head.length is not None and head.length > limits.max_body_bytes:
            self._refuse(_body_too_large(limits))
            return
        if head.chunked or (head.length is not None and head.length > STRANGERS_BODY_BYTES):
            refusal = self._handler.stranger(head)
            if refusal is not None:
                self._refuse(refusal)
                return
        self._in_body = True
        self._since = self.active_at
        self._body_bytes = self._framing_bytes = self._chunks = 0
        if head.expects and http_1_1:
            self._expecting = True
        if (head.chunked or head.length) and parser.should_upgrade():
            self._resumption = b"content-length: %d" % head.length if head.length else b"transfer-encoding: chunked"

    def on_chunk_header(self) -> None:
        self._chunks += 1

    def on_body(self, data: bytes) -> None:
        if self._refusal is None:
            self._body_bytes += len(data)
            pieces = self._pieces
            if self._body_bytes > self._limits.max_body_bytes:
                self._refuse(_body_too_large(self._limits))
            elif not pieces or len(data) >= SMALL_PIECE_BYTES:
                pieces.append(data)
            else:
                last = pieces[-1]
                if isinstance(last, bytearray):
                    last += data
                else:
                    pieces.append(bytearray(data))

    def on_message_complete(self) -> None:
        request = self._request
        if self._refusal is not None or self._resumption is not None or request is None:
            return
        pieces = self._pieces
        if pieces:
            request.body = b"".join(pieces)  # a single piece is not copied
            pieces.clear()
        self._request = None
        self._begun = self._in_body = self._expecting = False
        self._head_bytes = 0
        self._ready.append(request)


def _origin_form(target: bytes) -> bytes:
    """Path and query of a request's target; a proxy's clients send a whole URL."""
    if target.startswith(b"/"):
        return target
    try:
        url: Any = httptools.parse_url(target)  # whose parts may be None, whatever its types say
    except httptools.HttpParserError:
        return b"*"
    path = url.path or b"/"
    return b"%b?%b" % (path, url.query) if url.query else path


def _fault(version: str, head: RequestHead, target: bytes) -> str | None:
    """What is wrong with the head of a request that is not simply of HTTP/1.1 and for one host; ``None`` if nothing."""
    if version not in ("1.0", "1.1"):
        return f"HTTP/{version} is not spoken here"
    if head.hosts > 1 or (version == "1.1" and not head.hosts):
        return f"it has {head.hosts} Host headers, not one"
    if version == "1.0" and head.chunked:
        return "HTTP/1.0 has no Transfer-Encoding"
    return "its target has a fragment" if b"#" in target else None


def _headers_too_large(limits: Limits) -> HeadersTooLarge:
    return HeadersTooLarge(f"The request's headers are over the limit of {limits.max_header_bytes} bytes.")


def _framing_too_large(limits: Limits) -> HeadersTooLarge:
    return HeadersTooLarge(
        f"The request's trailers and chunk extensions are over the limit of {limits.max_header_bytes} bytes."
    )


def _body_too_large(limits: Limits) -> BodyTooLarge:
    return BodyTooLarge(f"The request's body is over the limit of {limits.max_body_bytes} bytes.")
