"""One request's life: placed on a node, sent, answered, settled; tried on another node while nobody can see it."""

from __future__ import annotations

import asyncio
import errno
import time
from typing import Final

from slipstream.core.dispatch import Placement
from slipstream.core.errors import (
    AllFull,
    NothingUsable,
    PlacementError,
    SlipstreamError,
    UpstreamFailed,
    UpstreamTimeout,
)
from slipstream.core.latency import Latency, latency_of
from slipstream.core.outcome import Ending, Outcome, ResponseStatistics
from slipstream.core.request import RequestShape
from slipstream.gateway.headers import Answer, status_line
from slipstream.gateway.limits import Limits
from slipstream.gateway.ports import Ports
from slipstream.gateway.problems import error_event
from slipstream.gateway.refusal import FULL_STATUSES, all_full
from slipstream.gateway.reply import reply_problem
from slipstream.gateway.sse import EventStream
from slipstream.gateway.upstream import NodeConnection, NodePool, Upstreams
from slipstream.gateway.wire import ClientConnection, Request

__all__ = ["Exchange"]

HELD_BODY_BYTES: Final = 64 * 1024
"""Up to here a body of known length is held until it is whole, so that one cut short can still become a 502; and any
body of a refusal, so that another node can still take the request."""

READ_BODY_BYTES: Final = 4 * 1024 * 1024
"""Longer bodies are not read for statistics."""

_BODILESS: Final = frozenset({204, 304})
_OWN_LIMITS: Final = frozenset({errno.EMFILE, errno.ENFILE})
_LAST_CHUNK: Final = b"0\r\n\r\n"


class Exchange:
    """A request on its way. It is the client connection's work and the node connection's receiver.

    Every placement made is settled exactly once: ``_settle`` is the only way to let go of one, and each way out of an
    attempt leads through it.
    """

    __slots__ = (
        "_active_at",
        "_answer",
        "_avoid",
        "_body_bytes",
        "_chunked",
        "_client",
        "_connecting",
        "_connection",
        "_events",
        "_failure",
        "_head",
        "_limits",
        "_marks",
        "_pieces",
        "_placement",
        "_ports",
        "_read",
        "_redialled",
        "_refusal",
        "_request",
        "_retries_left",
        "_shape",
        "_unsent",
        "_upstreams",
    )

    def __init__(
        self,
        ports: Ports,
        limits: Limits,
        upstreams: Upstreams,
        client: ClientConnection,
        request: Request,
        *,
        read: bool,
    ) -> None:
        """``read``: the request is a completion, so its answer has a known dialect and is read for statistics."""
        self._ports = ports
        self._limits = limits
        self._upstreams = upstreams
        self._client: ClientConnection | None = client
        self._request = request
        self._read = read
        self._shape: RequestShape | None = None
        self._placement: Placement | None = None
        self._connection: NodeConnection | None = None
        self._connecting: asyncio.Task[NodeConnection] | None = None
        self._answer: Answer | None = None
        self._refusal: Answer | None = None  # while it is coming in
        self._failure: PlacementError | None = None  # the client's answer when no further node takes the request
        self._events: EventStream | None = None
        self._head: bytes | None = None
        self._chunked = self._redialled = False
        self._avoid: frozenset[str] = frozenset()
        self._retries_left = limits.retries
        self._active_at = 0.0
        self._unsent = self._body_bytes = 0
        self._pieces: list[bytes] = []
        self._marks = b""

    # Placing and sending.

    def begin(self, shape: RequestShape) -> None:
        """Place the request and send it."""
        if self._client is not None:
            self._shape = shape
            self._place()

    def fail(self, error: SlipstreamError) -> None:
        """Answer with an error, nothing of the answer having been written."""
        client, self._client = self._client, None
        if client is not None:
            reply_problem(self._ports, client, self._request, error)

    def _place(self) -> None:
        """Book a node and send to it."""
        ports = self._ports
        assert self._shape is not None
        now = ports.clock()
        started = time.perf_counter()
        try:
            placement = ports.dispatcher.place(self._shape, self._request.request_id, now, self._avoid)
        except SlipstreamError as error:
            ports.observer.decided(time.perf_counter() - started)
            self.fail(error if self._failure is None else self._failure)
            return
        ports.observer.decided(time.perf_counter() - started)
        self._placement = placement
        self._pieces.clear()
        self._body_bytes = 0
        self._redialled = False
        pool = self._upstreams.pool(placement.node)
        self._marks = _marks(placement, pool)
        self._active_at = now
        connection = pool.take(now)
        if connection is not None:
            self._send(connection, pool)
        else:
            self._connect(pool)

    def _connect(self, pool: NodePool) -> None:
        self._active_at = self._ports.clock()
        self._connecting = task = asyncio.get_running_loop().create_task(pool.connect())
        task.add_done_callback(lambda task: self._connected(task, pool))

    def _connected(self, task: asyncio.Task[NodeConnection], pool: NodePool) -> None:
        if task is not self._connecting:  # given up meanwhile
            if not task.cancelled() and task.exception() is None:
                task.result().abort()
            return
        self._connecting = None
        try:
            connection = task.result()
        except OSError as error:
            if error.errno in _OWN_LIMITS:
                self._settle(Ending.UPSTREAM_LOST)
                self.fail(NothingUsable("This gateway has no file descriptors left to reach a node with."))
            else:
                sentence = f"No connection to node '{pool.spec.name}': {error.strerror or error}."
                self._try_elsewhere(Ending.UNREACHABLE, sentence)
        else:
            self._send(connection, pool)

    def _send(self, connection: NodeConnection, pool: NodePool) -> None:
        request = self._request
        self._connection = connection
        body = request.body
        method = request.method.encode()
        lines = [method, b" ", request.target, b" HTTP/1.1\r\n", pool.preamble, request.head.lines]
        if body or request.head.length is not None or request.head.chunked:
            lines.append(b"content-length: %d\r\n" % len(body))
        lines.append(b"x-request-id: %b\r\n\r\n" % request.request_id.encode())
        self._unsent = 0
        connection.send(self, b"".join(lines), body, head_only=request.method == "HEAD")

    def _try_elsewhere(self, ending: Ending, sentence: str) -> None:
        """The attempt failed before any byte of an answer came."""
        self._settle(ending)
        failure = self._failure  # a node that lives but is full says more than one that is dead
        self._retry(failure if isinstance(failure, AllFull) else UpstreamFailed(sentence))

    def _retry(self, failure: PlacementError) -> None:
        """Try another node, if that is still allowed."""
        self._failure = failure
        if self._retries_left > 0:
            self._retries_left -= 1
            self._place()
        else:
            self.fail(failure)

    def _refused(self, refusal: Answer) -> None:
        """The node can take no more, and has said all or as much as will come."""
        placement = self._placement
        assert placement is not None
        self._refusal = None
        self._settle(Ending.FULL, refusal.status)
        self._retry(all_full(placement.node.name, refusal, b"".join(self._pieces)))

    # The node's answer: calls from its connection.

    def answer_head(self, answer: Answer) -> None:
        if answer.status in FULL_STATUSES:
            self._refusal = answer  # nothing of it is written, so that another node can take the request
        elif 300 <= answer.status < 400 and answer.status not in _BODILESS:
            self._redirected(answer.status)
        else:
            self._begin_answer(answer)

    def _redirected(self, status: int) -> None:
        """The node sends the client elsewhere: to an address of the nodes' own network, which is not the client's."""
        placement = self._placement
        assert placement is not None
        self._drop_upstream()
        self._settle(Ending.REFUSED, status)
        self.fail(UpstreamFailed(f"Node '{placement.node.name}' answered with a redirect ({status})."))

    def answer_body(self, data: bytes, framed: bytes | None) -> None:
        events = self._events
        if events is not None:
            block = events.feed(data, self._ports.clock() if events.seeking else 0.0)
            if not block:
                return
            client = self._client
            assert client is not None
            if not self._chunked:
                client.write(block)
            elif framed is not None and block is data:
                client.write(framed)
            else:
                client.write(b"%x\r\n%b\r\n" % (len(block), block))
            return
        self._body_bytes += len(data)
        if self._body_bytes <= READ_BODY_BYTES and (self._read or self._head is not None or self._refusal is not None):
            self._pieces.append(data)
        if self._refusal is not None:
            if self._body_bytes > HELD_BODY_BYTES:  # too much to hold: then it is the answer
                self._pass_on(self._refusal)
        elif not self._holding():
            self._write_body(data)

    def answer_ended(self) -> None:
        self._connection = None
        if self._refusal is not None:
            self._refused(self._refusal)
        else:
            self._complete()

    def answer_lost(self) -> None:
        connection, self._connection = self._connection, None
        assert connection is not None
        placement = self._placement
        assert placement is not None
        name = placement.node.name
        if self._answer is None and not connection.answered:
            if (
                connection.reused and not self._redialled
            ):  # the node closed it while it lay idle: that is nobody's fault
                self._redialled = True
                self._connect(self._upstreams.pool(placement.node))
            else:
                # It may be this request that it can not bear, so it is not held to be down.
                self._try_elsewhere(Ending.UPSTREAM_LOST, f"Node '{name}' closed the connection before it answered.")
        elif self._refusal is not None:
            self._refused(self._refusal)
        else:
            self._cut_short(
                Ending.UPSTREAM_LOST, UpstreamFailed(f"Node '{name}' was lost before its answer was complete.")
            )

    # The client's answer.

    def _begin_answer(self, answer: Answer) -> None:
        self._answer = answer
        request = self._request
        status = answer.status
        lines = [status_line(status), answer.lines, self._marks, b"x-request-id: %b\r\n" % request.request_id.encode()]
        if answer.events:
            self._events = EventStream(seeking=self._read)
        if answer.length is not None and not answer.events:
            lines.append(b"content-length: %d\r\n" % answer.length)
        elif status not in _BODILESS and request.method != "HEAD":
            self._chunked = request.chunks
            if self._chunked:
                lines.append(b"transfer-encoding: chunked\r\n")
            else:
                request.keep_alive = False  # the end of the connection is the end of the body
        lines.append(b"\r\n" if request.keep_alive else b"connection: close\r\n\r\n")
        self._head = b"".join(lines)
        if answer.events:
            self._write(b"")

    def _holding(self) -> bool:
        """Whether the answer is kept back until it is whole."""
        answer = self._answer
        return (
            self._head is not None
            and answer is not None
            and answer.length is not None
            and answer.length <= HELD_BODY_BYTES
        )

    def _write(self, data: bytes) -> None:
        """Write bytes of the answer, behind its head if that is not written."""
        client = self._client
        assert client is not None
        head, self._head = self._head, None
        if head is not None:
            data = head + data
        if data:
            client.write(data)

    def _write_body(self, data: bytes) -> None:
        self._write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def _pass_on(self, refusal: Answer) -> None:
        """Let a refusal become the client's answer while it is coming in."""
        self._refusal = None
        self._begin_answer(refusal)
        self._write_body(b"".join(self._pieces))

    def _complete(self) -> None:
        """The node's answer came to its end."""
        answer = self._answer
        assert answer is not None
        ended_at = self._ports.clock()
        status = answer.status
        events = self._events
        payloads: tuple[bytes, ...] = ()
        first_token_at: float | None = None
        if events is not None:
            if self._read and status == 200 and not events.terminated:
                self._cut_short(Ending.UPSTREAM_LOST, UpstreamFailed("The node's stream ended before it was complete."))
                return
            if events.held:
                self._write_body(events.held)
            payloads = tuple(events.payloads()[-3:])
            first_token_at = events.first_content_at
        elif self._pieces and self._head is not None:
            self._write_body(b"".join(self._pieces))
        self._write_end()
        if status >= 400:
            self._settle(Ending.FULL if status in FULL_STATUSES else Ending.REFUSED, status, now=ended_at)
            self._finish()
            return
        if self._read and events is None and 0 < self._body_bytes <= READ_BODY_BYTES:
            payloads = (b"".join(self._pieces),)
        placement = self._placement
        assert placement is not None
        statistics: ResponseStatistics | None = None
        try:
            if payloads:
                statistics = self._ports.read_statistics(placement.state.engine, payloads)
        finally:  # the answer is delivered, whatever can be read from it
            output_tokens = statistics.output_tokens if statistics is not None else None
            latency = latency_of(self._request.received_at, first_token_at, ended_at, output_tokens)
            self._settle(Ending.COMPLETED, status, latency, statistics, now=ended_at)
            self._finish()

    def _write_end(self) -> None:
        """Write what makes the client's answer a complete one."""
        self._write(_LAST_CHUNK if self._chunked else b"")

    def _finish(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.finish(keep_alive=self._request.keep_alive)

    def _cut_short(self, ending: Ending, error: PlacementError) -> None:
        """The answer can not be completed: say so, in whatever way its state still allows."""
        answer = self._answer
        events = self._events
        if events is not None and events.terminated:  # all that matters had come
            self._complete()
            return
        self._settle(ending, answer.status if answer is not None else None)
        if answer is None or self._head is not None:
            self.fail(error)
        elif events is not None:
            event = error_event(error, self._request.path)
            self._write_body(b"\n\n" + event if events.split else event)
            self._write_end()
            self._finish()
        else:  # neither a last chunk nor the promised length: the client sees that something is missing
            client, self._client = self._client, None
            if client is not None:
                client.finish(keep_alive=False)

    # The client and the time.

    def client_gone(self) -> None:
        self._client = None
        self._drop_upstream()
        self._settle(Ending.CLIENT_GONE, self._answer.status if self._answer is not None else None)

    def client_blocked(self) -> None:
        if self._connection is not None:
            self._connection.pause()

    def client_unblocked(self) -> None:
        self._active_at = self._ports.clock()
        if self._connection is not None:
            self._connection.resume()

    def expire(self, now: float) -> None:
        """Give up on a node that keeps us waiting."""
        limits = self._limits
        if self._placement is None:
            return  # the request is being read
        if self._connecting is not None:
            if now - self._active_at >= limits.connect_s:
                self._drop_upstream()
                sentence = f"Node '{self._placement.node.name}' did not accept a connection in time."
                self._try_elsewhere(Ending.UNREACHABLE, sentence)
            return
        connection = self._connection
        if connection is None or connection.paused:
            return
        if not connection.quiet:
            connection.quiet = True
            self._active_at = now
            return
        waited = now - self._active_at
        if self._answer is not None or self._refusal is not None:
            limit = limits.idle_s
        else:
            unsent = connection.unsent_bytes()
            if unsent != self._unsent:
                self._unsent = unsent
                self._active_at = now
                return
            assert self._shape is not None
            limit = limits.first_byte_streamed_s if self._shape.streamed else limits.first_byte_unstreamed_s
            if unsent:
                limit = limits.write_s
        if waited >= limit:
            name = self._placement.node.name
            self._drop_upstream()
            self._refusal = None
            self._cut_short(Ending.TIMED_OUT, UpstreamTimeout(f"Node '{name}' sent nothing for {limit:g} seconds."))

    def _drop_upstream(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
        connecting, self._connecting = self._connecting, None
        if connecting is not None:
            connecting.cancel()

    def _settle(
        self,
        ending: Ending,
        status: int | None = None,
        latency: Latency | None = None,
        statistics: ResponseStatistics | None = None,
        now: float | None = None,
    ) -> None:
        placement, self._placement = self._placement, None
        if placement is None:
            return
        if ending is not Ending.COMPLETED:
            self._avoid |= {placement.node.name}
        if statistics is None:
            outcome = Outcome(ending, status, latency)
        else:
            outcome = Outcome(
                ending, status, latency, statistics.prompt_tokens, statistics.output_tokens, statistics.sample
            )
        if now is None:
            now = self._ports.clock()
        self._ports.dispatcher.settle(placement, outcome, now)
        self._ports.observer.finished(placement, outcome, now)


def _marks(placement: Placement, pool: NodePool) -> bytes:
    """The answer's header lines that say where it was made and why."""
    decision = placement.decision
    category = placement.shape.category
    key = category + decision.reason
    lines = pool.marks.get(key)
    if lines is None:
        text = (
            f"x-slipstream-node: {placement.node.name}\r\nx-slipstream-pool: {decision.pool}\r\n"
            f"x-slipstream-category: {category}\r\nx-slipstream-reason: {decision.reason}\r\n"
        )
        lines = pool.marks[key] = text.encode("latin-1", "replace")
    return lines
