"""Connections to nodes: one pool a node, kept alive for less time than the engines keep theirs."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, cast
from urllib.parse import urlsplit

import httptools

from slipstream.core.node import Instrument, NodeSpec
from slipstream.core.reason import Reason
from slipstream.gateway.framing import size_line
from slipstream.gateway.headers import Answer, Headers, read_answer
from slipstream.gateway.passage import Passage
from slipstream.gateway.repetition import RepeatedHead, head_to_repeat
from slipstream.gateway.tls import Authorities

__all__ = ["NodeConnection", "NodePool", "Receiver", "Upstreams"]

MAX_HEAD_BYTES: Final = 64 * 1024
"""A node whose answer's head is longer than this is not understood."""

LAST_STATUS: Final = 599
"""Higher ones mean nothing (RFC 9110, section 15), and clients would not know what."""

CHUNK_FRAMING_BYTES: Final = 64
"""Around a chunk, on average, a node may send so much; what is over it counts like a head (trailers, extensions)."""

_JOINED_BYTES: Final = 64 * 1024  # up to here one copy is cheaper than a second buffer to write
_BODILESS: Final = frozenset({204, 304})


class Receiver(Protocol):
    """Who a node's answer is for. Called in this order: head, body any number of times, then ended or lost."""

    def answer_head(self, answer: Answer) -> None: ...

    def answer_body(self, data: bytes) -> None:
        """Body bytes of one read, never empty. The receiver may make a ``passage`` for whole chunks from then on."""

    def answer_ended(self) -> None: ...

    def answer_lost(self) -> None:
        """The connection is gone, or its bytes are not HTTP."""


class NodeConnection:
    """One connection to a node. It serves one receiver at a time; between two it lies in its pool.

    A protocol in asyncio's sense, without that base: classes with a foreign base can not be compiled.
    """

    __slots__ = (
        "_aligned",
        "_answer",
        "_chunks",
        "_complete",
        "_excess",
        "_framing_bytes",
        "_head_bytes",
        "_head_done",
        "_head_only",
        "_headers",
        "_keep_alive",
        "_parser",
        "_pieces",
        "_pool",
        "_receiver",
        "_transport",
        "_unsound",
        "_until_close",
        "answered",
        "idle_since",
        "passage",
        "paused",
        "quiet",
        "reused",
    )

    def __init__(self, pool: NodePool) -> None:
        self._pool = pool
        self._parser: Any = httptools.HttpResponseParser(self)
        self._transport: Any = None
        self._receiver: Receiver | None = None
        self.passage: Passage | None = None
        """Who is offered each whole chunk of the answer before its receiver is; ``None`` = nobody."""
        self.paused = False
        self.quiet = True  # whether nothing came since a watcher last set this: cheaper than the time of every read
        self.reused = False  # whether it served an earlier request: then the node may close it at any time
        self.idle_since = 0.0

    def send(self, receiver: Receiver, head: bytes, body: bytes, *, head_only: bool) -> None:
        """Send a request; ``receiver`` gets its answer, which has no body, whatever it says, when ``head_only``."""
        self._receiver = receiver
        self._answer: Answer | None = None
        self._headers: Headers = []
        self._pieces: list[bytes] = []
        self._head_only = head_only
        self._head_bytes = self._framing_bytes = self._chunks = 0
        self._head_done = self._complete = self._aligned = self._until_close = self._excess = self._keep_alive = False
        self._unsound = False
        self.quiet = False
        self.answered = False  # whether any byte of the answer has come
        if len(body) <= _JOINED_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))

    def unsent_bytes(self) -> int:
        """How much of the request has not left the process."""
        size: int = self._transport.get_write_buffer_size()
        return size

    def is_open(self) -> bool:
        return not self._transport.is_closing()

    def pause(self) -> None:
        """Stop reading from the node: the reader of its answer is slow."""
        if not self.paused and self._receiver is not None and self.is_open():
            self.paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on after ``pause``."""
        if self.paused:
            self.paused = False
            if self.is_open():
                self._transport.resume_reading()

    def abort(self) -> None:
        """Drop the connection at once, so that the node sees its client leave."""
        self._receiver = self.passage = None
        self._transport.abort()

    def close(self) -> None:
        """Close the unused connection."""
        self._transport.close()

    # What follows is called by the event loop.

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        receiver = self._receiver
        self._receiver = self.passage = None
        self._pool.forget(self)
        self._parser = None  # it holds our methods, and we it
        if receiver is not None:
            if self._until_close and exc is None:
                receiver.answer_ended()
            else:
                receiver.answer_lost()

    def eof_received(self) -> None:
        """The node sends no more. Returning ``None`` closes the connection."""

    def pause_writing(self) -> None:
        """A request is at most the body limit long, and ``unsent_bytes`` says how far it has come."""

    def resume_writing(self) -> None:
        """See ``pause_writing``."""

    def data_received(self, data: bytes) -> None:
        receiver = self._receiver
        if receiver is None:  # nothing was asked: the connection is out of step
            self._transport.abort()
            return
        self.quiet = False
        if self._aligned:
            # Most reads of a stream are exactly one chunk. It is forwarded as it is, and the parser, which stands
            # between two chunks before it and after it, need not see it.
            line = size_line(len(data))
            if line and data.startswith(line) and data.endswith(b"\r\n"):
                passage = self.passage
                if passage is None or not passage.take(data, len(line)):
                    receiver.answer_body(data[len(line) : -2])
                return
        first = not self.answered
        self.answered = True
        if first and self._repeat(receiver, data):
            return
        broken = False
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):  # not HTTP, or from here on no longer
            self._excess = True
            broken = not self._complete
        if self._unsound:
            self._lose(receiver)
            return
        if first and self._complete and self._keep_alive and self._answer is not None:
            self._pool.remember(data, self._answer)
        self._deliver(receiver, data)
        if broken and self._receiver is not None:
            self._lose(receiver)

    def _deliver(self, receiver: Receiver, data: bytes) -> None:
        answer = self._answer
        if answer is not None:
            self._answer = None
            self._aligned = answer.chunked and not self._pieces and data.endswith(b"\r\n\r\n")
            receiver.answer_head(answer)
        elif not self._head_done:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._lose(receiver)
            return
        else:
            self._framing_bytes += len(data)
            if self._aligned and not data.endswith(b"\r\n"):  # behind a whole chunk stands the beginning of the next
                self._aligned = False
        if self._pieces and self._receiver is not None:
            pieces = self._pieces
            body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
            if answer is None:
                self._framing_bytes -= len(body)
            receiver.answer_body(body)
        if self._complete and self._receiver is not None:
            self._end(receiver, keep=self._keep_alive and not self._excess)
        elif self._framing_bytes > MAX_HEAD_BYTES + CHUNK_FRAMING_BYTES * self._chunks and self._receiver is not None:
            self._lose(receiver)

    def _repeat(self, receiver: Receiver, data: bytes) -> bool:
        """Deliver a whole answer whose head repeats the node's last one; whether ``data`` was that."""
        repeated, last = self._pool.repeated, self._pool.last
        if repeated is None or last is None or self._head_only:
            return False
        start = repeated.body_start(data)
        if not start:
            return False
        body = data[start:]
        receiver.answer_head(
            Answer(last.status, last.lines, len(body), chunked=False, events=False, encoded=last.encoded)
        )
        if self._receiver is not None:
            receiver.answer_body(body)
        if self._receiver is not None:
            self._end(receiver, keep=True)
        return True

    def _end(self, receiver: Receiver, *, keep: bool) -> None:
        """The answer is whole: keep the connection if it may serve again."""
        self._receiver = self.passage = None
        self.resume()
        if keep and not self.unsent_bytes():
            self._pool.give_back(self)
        else:
            self._transport.close()
        receiver.answer_ended()

    def _lose(self, receiver: Receiver) -> None:
        self.abort()
        receiver.answer_lost()

    # What follows is called by the parser, inside feed_data: it only takes notes.

    def on_message_begin(self) -> None:
        self._excess = self._complete

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_done:  # else it is a trailer
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._complete:
            return
        status = self._parser.get_status_code()
        if status < 200:  # an interim answer; the real one follows
            return
        self._head_done = True
        self._answer = answer = read_answer(status, self._headers)
        version = self._parser.get_http_version()
        if answer.doubtful or status > LAST_STATUS or (version != "1.1" and (version != "1.0" or answer.chunked)):
            self._unsound = True
        if self._head_only or (status in _BODILESS and (answer.length or answer.chunked)):
            self._complete = True  # without the body that its head speaks of
        else:
            self._until_close = not answer.chunked and answer.length is None and status not in _BODILESS

    def on_chunk_header(self) -> None:
        self._aligned = False
        self._chunks += 1

    def on_body(self, data: bytes) -> None:
        if not self._complete:
            self._pieces.append(data)

    def on_chunk_complete(self) -> None:
        self._aligned = True

    def on_message_complete(self) -> None:
        if not self._head_done:
            self._headers.clear()
        elif not self._complete:
            self._complete = True
            self._keep_alive = self._parser.should_keep_alive()


class NodePool:
    """A node's address and its idle connections, newest last."""

    __slots__ = (
        "_authorities",
        "_clock",
        "_closed",
        "_host",
        "_idle",
        "_keep_alive_s",
        "_port",
        "_tls",
        "instrumented",
        "last",
        "marks",
        "preamble",
        "repeated",
        "spec",
    )

    def __init__(
        self, spec: NodeSpec, keep_alive_s: float, clock: Callable[[], float], authorities: Authorities
    ) -> None:
        url = urlsplit(spec.url)
        self.spec = spec
        self.instrumented = spec.instrument is not Instrument.OFF
        """Whether requests to this node may ask for more than their clients."""
        self._authorities = authorities
        self._host = url.hostname or ""
        self._tls = url.scheme == "https"
        self._port = url.port or (443 if self._tls else 80)
        self._keep_alive_s = keep_alive_s
        self._clock = clock
        self._idle: list[NodeConnection] = []
        self._closed = False
        self.repeated: RepeatedHead | None = None
        self.last: Answer | None = None  # what ``repeated`` was read as
        host = url.netloc.rpartition("@")[2]
        authorization = f"authorization: Bearer {spec.api_key}\r\n" if spec.api_key else ""
        self.preamble = f"host: {host}\r\n{authorization}".encode()
        """The header lines that every request to this node carries."""
        self.marks: dict[str, dict[Reason, bytes]] = {}
        """The header lines that this node's answers carry, by category and reason: few, and the same all day."""

    def take(self, now: float) -> NodeConnection | None:
        """An idle connection that is probably alive, ``None`` when there is none."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open() and now - connection.idle_since < self._keep_alive_s:
                connection.reused = True
                return connection
            connection.close()
        return None

    async def connect(self) -> NodeConnection:
        """A fresh connection. Raises OSError."""
        loop = asyncio.get_running_loop()
        factory = cast("Callable[[], asyncio.Protocol]", partial(NodeConnection, self))
        tls = self._authorities.context(self.spec.authorities) if self._tls else None
        transport, connection = await loop.create_connection(factory, self._host, self._port, ssl=tls)
        if transport.is_closing():  # the node closed it meanwhile: whoever is given it now might never hear of that
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        return cast("NodeConnection", connection)

    def give_back(self, connection: NodeConnection) -> None:
        """Keep a connection for the next request, if there can be one: nobody would look after it in a closed pool."""
        if self._closed:
            connection.close()
            return
        connection.idle_since = self._clock()
        self._idle.append(connection)

    def remember(self, data: bytes, answer: Answer) -> None:
        """Remember the head of a whole answer that came in one read, for the next to be compared with."""
        if answer.length and not answer.events and answer.status not in _BODILESS:
            self.repeated = head_to_repeat(data)
            self.last = answer

    def forget(self, connection: NodeConnection) -> None:
        """Drop a connection that was closed."""
        if connection in self._idle:
            self._idle.remove(connection)

    def expire(self, now: float) -> None:
        """Close what has been idle for too long."""
        fresh = len(self._idle)
        for index, connection in enumerate(self._idle):
            if now - connection.idle_since < self._keep_alive_s:
                fresh = index
                break
        for connection in self._idle[:fresh]:
            connection.close()
        del self._idle[:fresh]

    def close(self) -> None:
        """Close the idle connections; those in use close when they are done."""
        self._closed = True
        for connection in self._idle:
            connection.close()
        self._idle.clear()


class Upstreams:
    """The pools of all nodes."""

    __slots__ = ("_authorities", "_clock", "_keep_alive_s", "_pools")

    def __init__(self, keep_alive_s: float, clock: Callable[[], float]) -> None:
        self._authorities = Authorities()
        self._keep_alive_s = keep_alive_s
        self._clock = clock
        self._pools: dict[str, NodePool] = {}

    def pool(self, spec: NodeSpec) -> NodePool:
        """The pool of a node. A node that was configured anew under its old name gets a new one."""
        pool = self._pools.get(spec.name)
        if pool is None or (pool.spec is not spec and pool.spec != spec):
            if pool is not None:
                pool.close()
            pool = self._pools[spec.name] = NodePool(spec, self._keep_alive_s, self._clock, self._authorities)
        return pool

    def forget(self, node: str) -> None:
        """Drop the pool of a node that has left."""
        pool = self._pools.pop(node, None)
        if pool is not None:
            pool.close()

    def expire(self, now: float) -> None:
        """Close connections that have been idle for too long, on all nodes."""
        for pool in self._pools.values():
            pool.expire(now)

    def close(self) -> None:
        """Close all idle connections."""
        for pool in self._pools.values():
            pool.close()
