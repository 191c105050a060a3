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
    OutOfDescriptors,
    OutOfReach,
    PlacementError,
    SlipstreamError,
    UpstreamFailed,
    UpstreamTimeout,
)
from slipstream.core.latency import Latency, latency_of
from slipstream.core.node import Instrument
from slipstream.core.outcome import Ending, Outcome, ResponseStatistics
from slipstream.core.request import RequestShape
from slipstream.core.request_queue import Ticket
from slipstream.gateway.dialect import Dialect
from slipstream.gateway.headers import Answer
from slipstream.gateway.instrument import with_fields
from slipstream.gateway.limits import Limits
from slipstream.gateway.marks import marks_of
from slipstream.gateway.ports import Ports
from slipstream.gateway.refusal import FULL_STATUSES, Refusal, all_full, retry_after_s
from slipstream.gateway.relay import Relay
from slipstream.gateway.request import Request
from slipstream.gateway.upstream import NodeConnection, NodePool, Upstreams
from slipstream.gateway.waiting import Waiter, Waiting
from slipstream.gateway.wire import ClientConnection

__all__ = ["Exchange"]

_BODILESS: Final = frozenset({204, 304})
_perf_counter: Final = time.perf_counter  # found without a look-up where this is compiled
_TRIAL_S: Final = 5.0
"""A node on trial that has sent output for so long works, even if the answer is long; one that dies early does not."""
_NO_NODES: Final[frozenset[str]] = frozenset()
_OWN_LIMITS: Final = frozenset({errno.EMFILE, errno.ENFILE})


class Exchange:
    """A request on its way. It is the client connection's work and the node connection's receiver.

    Every placement made is settled exactly once: ``_settle`` is the only way to let go of one, and each way out of an
    attempt leads through it. What the client gets to see is the ``Relay``'s. While no node has room it waits, without a
    placement.
    """

    __slots__ = (
        "_active_at",
        "_arrived_at",
        "_avoid",
        "_before",
        "_connecting",
        "_connection",
        "_dialect",
        "_failure",
        "_joined_at",
        "_limits",
        "_placement",
        "_ports",
        "_queued_s",
        "_redialled",
        "_refusal",
        "_relay",
        "_request",
        "_retries_left",
        "_shape",
        "_ticket",
        "_unsent",
        "_upstreams",
        "_wait_told",
        "_waiting",
    )

    def __init__(
        self,
        ports: Ports,
        limits: Limits,
        upstreams: Upstreams,
        waiting: Waiting,
        client: ClientConnection,
        request: Request,
        dialect: Dialect | None,
    ) -> None:
        """``dialect`` is what the answer is read by; ``None``: it is passed through unread."""
        self._ports = ports
        self._limits = limits
        self._upstreams = upstreams
        self._waiting = waiting
        self._request = request
        self._dialect = dialect
        self._relay = Relay(ports, client, request, dialect)
        self._shape: RequestShape | None = None
        self._placement: Placement | None = None
        self._connection: NodeConnection | None = None
        self._connecting: asyncio.Task[NodeConnection] | None = None
        self._refusal: Refusal | None = None  # while it is coming in
        self._failure: PlacementError | None = None  # the client's answer when no further node takes the request
        self._redialled = False
        self._avoid = _NO_NODES
        self._retries_left = limits.retries
        self._active_at = 0.0
        self._arrived_at = 0.0
        self._unsent = 0
        self._before = 0  # attempts before it last waited
        self._ticket: Ticket[Waiter] | None = None
        self._queued_s: float | None = None  # in all; it is not there yet while it waits
        self._joined_at = 0.0
        self._wait_told = False

    # Placing and sending.

    def begin(self, shape: RequestShape) -> None:
        """Place the request and send it."""
        if self._relay.client is not None:
            self._shape = shape
            if self._request.account is not None:
                self._request.account.read(shape)
            self._waiting.go_first(shape)
            self._place()

    def fail(self, error: SlipstreamError) -> None:
        """Answer with an error, nothing of the answer having been written."""
        if self._queued_s is not None and isinstance(error, (AllFull, OutOfReach)):
            self._tell_wait(served=False)
        self._relay.fail(error)

    def _place(self) -> None:
        """Book a node and send to it; when all are full, wait for one that is not."""
        failure = self._failure
        may_wait = self._waiting.open and (failure is None or isinstance(failure, AllFull))
        error = self._try(may_wait=may_wait)
        if may_wait and isinstance(error, AllFull):
            if self._wait():
                return
            error = self._try(may_wait=False)
        if error is not None:
            self.fail(error if failure is None else failure)

    def _wait(self) -> bool:
        """Take a place in the queue; whether there was one. Nodes that were full may have room by then."""
        shape = self._shape
        assert shape is not None
        now = self._ports.clock()
        again = self._queued_s is not None
        self._ticket = self._waiting.join(self, shape, now, self._arrived_at, again=again)
        if self._ticket is None:
            return False
        self._joined_at = now
        if not again:
            self._queued_s = 0.0
        self._before += len(self._avoid)
        self._avoid = _NO_NODES
        self._retries_left = self._limits.retries
        return True

    def resume(self) -> bool | None:
        """It is this request's turn to be placed; ``False``: there is still no room, ``None``: there never will be."""
        try:
            error = self._try(may_wait=True)
        except BaseException:  # a fault of ours: who waits behind must not wait for one that never goes on
            self._abandon()
            raise
        if isinstance(error, AllFull):
            return False
        if error is None:
            return True
        assert self._ticket is not None
        self._waiting.leave(self._ticket)  # first: the client's next request may be handled within the answer
        self._stop_waiting(self._ports.clock())
        self.fail(error)
        return None

    def give_up(self) -> None:
        """It has waited as long as it may: a last try, unless its client has left since."""
        if self._ticket is None:
            return
        try:
            error = self._try(may_wait=False)
        except BaseException:
            self._abandon()
            raise
        if error is not None:
            self._stop_waiting(self._ports.clock())
            self.fail(error if self._failure is None else self._failure)

    def _stop_waiting(self, now: float) -> None:
        """Its place in the queue is given up, for now or for good."""
        if self._ticket is not None and self._queued_s is not None:
            self._ticket = None
            self._queued_s += now - self._joined_at
            if self._request.account is not None:
                self._request.account.queued_s = self._queued_s

    def _tell_wait(self, *, served: bool) -> None:
        """All its waits are one, and over."""
        if not self._wait_told:
            self._wait_told = True
            assert self._shape is not None
            assert self._queued_s is not None
            self._ports.observer.waited(self._shape.traffic_class, self._queued_s, served=served)

    def _try(self, *, may_wait: bool) -> SlipstreamError | None:
        """Book a node and send to it; or what the dispatcher raised. ``may_wait``: `AllFull` is not the last word."""
        ports = self._ports
        assert self._shape is not None
        now = ports.clock()
        if not self._arrived_at:
            self._arrived_at = now
        queued_s = self._queued_s
        if queued_s is not None and self._ticket is not None:
            queued_s += now - self._joined_at
        started = _perf_counter()
        try:
            placement = ports.dispatcher.place(
                self._shape, self._request.request_id, now, self._avoid, may_wait, self._before, queued_s
            )
        except SlipstreamError as error:
            ports.observer.decided(_perf_counter() - started)
            return error
        self._placement = placement  # before anything else that might fail: it must be settled
        ports.observer.decided(_perf_counter() - started)
        if queued_s is not None:
            self._stop_waiting(now)
        if self._request.account is not None:
            self._request.account.placed(placement)
        self._redialled = False
        pool = self._upstreams.pool(placement.node)
        self._active_at = now
        connection = pool.take(now)
        if connection is not None:
            self._send(connection, pool)
        else:
            self._connect(pool)
        return None

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
                self._settle(Ending.NOT_SENT)
                self.fail(OutOfDescriptors("This gateway has no file descriptors left to reach a node with."))
            else:
                sentence = f"No connection to node '{pool.spec.name}': {error.strerror or error}."
                self._try_elsewhere(Ending.UNREACHABLE, sentence)
        else:
            self._active_at = self._ports.clock()
            self._send(connection, pool)

    def _send(self, connection: NodeConnection, pool: NodePool) -> None:
        request = self._request
        self._connection = connection
        body = request.body
        if pool.instrumented:
            body = self._instrumented(body, pool.spec.instrument)
        account = request.account
        framing = b""
        if body or request.head.length is not None or request.head.chunked:
            framing = b"content-length: %d\r\n" % len(body)
        head = b"%b %b HTTP/1.1\r\n%b%b%bx-request-id: %b\r\n\r\n" % (
            request.method.encode(),
            request.target,
            pool.preamble,
            request.head.lines if account is None else account.lines,
            framing,
            request.request_id.encode(),
        )
        self._unsent = 0
        connection.send(self, head, body, head_only=request.method == "HEAD")

    def _instrumented(self, body: bytes, instrument: Instrument) -> bytes:
        """``body``, asking the node at hand for what its answers should say."""
        placement, shape, dialect = self._placement, self._shape, self._dialect
        assert placement is not None
        assert shape is not None
        self._relay.added = ()
        if dialect is not None and dialect.instrumented:
            fields = self._ports.added_fields(placement.state.engine, instrument)
            body, self._relay.added = with_fields(body, fields, streamed=shape.streamed)
        return body

    def _try_elsewhere(self, ending: Ending, sentence: str) -> None:
        """The attempt failed before any byte of an answer came."""
        self._settle(ending)
        failure = self._failure  # a node that lives but is full says more than one that is dead
        self._retry(failure if isinstance(failure, AllFull) else UpstreamFailed(sentence))

    def _retry(self, failure: PlacementError) -> None:
        """Try another node, if that is still allowed."""
        self._failure = failure
        self._relay.added = ()  # the next may be asked for less, or for nothing
        if self._retries_left > 0:
            self._retries_left -= 1
            self._place()
        elif not (isinstance(failure, AllFull) and self._waiting.open and self._wait()):
            self.fail(failure)

    # The node's answer: calls from its connection.

    def answer_head(self, answer: Answer) -> None:
        if answer.status in FULL_STATUSES:
            self._refusal = Refusal(answer)  # nothing of it is written, so that another node can take the request
        elif 300 <= answer.status < 400 and answer.status not in _BODILESS:
            self._redirected(answer.status)
        else:
            self._begin_answer(answer)

    def answer_body(self, data: bytes) -> None:
        refusal = self._refusal
        if refusal is not None:
            refusal.feed(data)
            if not refusal.held:  # then it is the answer
                self._refusal = None
                self._begin_answer(refusal.answer)
                self._relay.feed(refusal.body)
            return
        told = self._relay.feed(data)
        if told is not None:
            self._remember(told)
        if self._connection is not None:
            self._connection.passage = self._relay.passage

    def answer_ended(self) -> None:
        self._connection = None
        if self._refusal is not None:
            self._refused(self._refusal)
        elif self._relay.incomplete:
            self._break_off(Ending.UPSTREAM_LOST, UpstreamFailed("The node's stream ended before it was complete."))
        else:
            self._complete()

    def answer_lost(self) -> None:
        connection, self._connection = self._connection, None
        assert connection is not None
        placement = self._placement
        assert placement is not None
        name = placement.node.name
        if self._refusal is not None:
            self._refused(self._refusal)
        elif connection.answered:
            self._break_off(
                Ending.UPSTREAM_LOST, UpstreamFailed(f"Node '{name}' was lost before its answer was complete.")
            )
        elif connection.reused and not self._redialled:  # it was closed while it lay idle: that is nobody's fault
            self._redialled = True
            self._connect(self._upstreams.pool(placement.node))
        else:
            # It may be this request that it can not bear, so it is not held to be down.
            self._try_elsewhere(Ending.UPSTREAM_LOST, f"Node '{name}' closed the connection before it answered.")

    def _begin_answer(self, answer: Answer) -> None:
        placement = self._placement
        assert placement is not None
        if self._queued_s is not None:
            self._tell_wait(served=True)
        if placement.state.learned.limit is not None and answer.status < 400:
            self._ports.dispatcher.took(placement, self._ports.clock())
        self._relay.begin(answer, marks_of(placement, self._upstreams.pool(placement.node)))

    def _refused(self, refusal: Refusal) -> None:
        """The node can take no more, and has said all or as much as will come."""
        placement = self._placement
        assert placement is not None
        self._refusal = None
        self._settle(Ending.FULL, refusal.answer.status, retry_after=retry_after_s(refusal.answer))
        self._retry(all_full(placement.node.name, refusal.answer, refusal.body))

    def _redirected(self, status: int) -> None:
        """The node sends the client elsewhere: to an address of the nodes' own network, which is not the client's."""
        placement = self._placement
        assert placement is not None
        self._drop_upstream()
        self._settle(Ending.REFUSED, status)
        self.fail(UpstreamFailed(f"Node '{placement.node.name}' answered with a redirect ({status})."))

    def _remember(self, answer_id: str) -> None:
        """Later requests can refer to this answer, and only its node holds it."""
        placement = self._placement
        assert placement is not None
        self._ports.dispatcher.remember_response(placement, answer_id, self._ports.clock())

    def _complete(self) -> None:
        """The node's answer came to its end."""
        ended_at = self._ports.clock()
        self._relay.end()
        try:
            self._settle_whole(ended_at)
        finally:  # the answer is delivered, whatever can be read from it
            self._relay.finish()

    def _settle_whole(self, ended_at: float) -> None:
        """The node has said all; what it says of itself is learnt, unless it is an error."""
        relay = self._relay
        answer, placement = relay.answer, self._placement
        assert answer is not None
        assert placement is not None
        failure = relay.failure()
        if failure is not None:
            full = answer.status in FULL_STATUSES
            self._settle(Ending.FULL if full else Ending.REFUSED, failure, now=ended_at)
            return
        statistics: ResponseStatistics | None = None
        try:
            statistics = relay.statistics(placement.state.engine)
            fingerprint = placement.state.recheck.fingerprint
            if fingerprint.wanted:
                fingerprint.saw(relay.fingerprint())
            told = relay.answer_id()
            if told is not None:
                self._remember(told)
        finally:
            output_tokens = statistics.output_tokens if statistics is not None else None
            latency = latency_of(self._request.received_at, relay.first_content_at, ended_at, output_tokens)
            self._settle(Ending.COMPLETED, answer.status, latency, statistics, now=ended_at)

    def _break_off(self, ending: Ending, error: PlacementError) -> None:
        """The answer can not be completed, unless all that matters had come."""
        relay = self._relay
        if relay.terminated:
            self._complete()
            return
        self._settle(ending, relay.answer.status if relay.answer is not None else None)
        relay.break_off(error)

    # The client and the time.

    def client_gone(self) -> None:
        relay = self._relay
        relay.client = None
        if self._ticket is not None:
            self._waiting.leave(self._ticket)
            self._stop_waiting(self._ports.clock())
        self._drop_upstream()
        try:
            if relay.terminated:  # clients of streams may leave as soon as they are told that it ends
                self._settle_whole(self._ports.clock())
            else:
                self._settle(Ending.CLIENT_GONE, relay.answer.status if relay.answer is not None else None)
        finally:
            if self._request.account is not None:
                self._request.account.close(relay.status_sent)

    def stopped(self) -> None:
        self._drop_upstream()
        self._request.keep_alive = False
        self._break_off(Ending.STOPPED, NothingUsable("The gateway is closing; the answer was not complete."))

    def client_blocked(self) -> None:
        if self._connection is not None:
            self._connection.pause()

    def client_unblocked(self) -> None:
        self._active_at = self._ports.clock()
        if self._connection is not None:
            self._connection.resume()

    def expire(self, now: float) -> None:
        """Give up on a node that keeps us waiting."""
        placement = self._placement
        if placement is None:
            if self._shape is not None and self._ticket is None:
                self._abandon()
            return  # else the request is being read, or waits
        limits = self._limits
        since = placement.state.leaving_since
        if since is not None and now - since >= limits.drain_s:
            self._drop_upstream()
            name = placement.node.name
            sentence = f"Node '{name}' was removed {limits.drain_s:g} seconds ago, before its answer ended."
            self._break_off(Ending.STOPPED, NothingUsable(sentence))
            return
        if self._connecting is not None:
            if now - self._active_at >= limits.connect_s:
                self._drop_upstream()
                sentence = f"Node '{placement.node.name}' did not accept a connection in time."
                self._try_elsewhere(Ending.UNREACHABLE, sentence)
            return
        connection = self._connection
        if connection is None:
            self._abandon()
            return
        if connection.paused:
            return
        if self._relay.answer is not None or self._refusal is not None:
            if placement.state.circuit.trial is placement:
                since = self._relay.first_content_at
                if since is not None and now - since >= _TRIAL_S:
                    self._ports.dispatcher.answering(placement, now)
            limit = limits.idle_s
            moving = not connection.quiet and self._refusal is None  # which helps nobody as long as it is not whole
            connection.quiet = True
        else:  # bytes of a head that does not end are no answer
            unsent = connection.unsent_bytes()
            moving = unsent != self._unsent
            self._unsent = unsent
            assert self._shape is not None
            limit = limits.first_byte_streamed_s if self._shape.streamed else limits.first_byte_unstreamed_s
            if unsent:
                limit = limits.write_s
        if moving:
            self._active_at = now
        elif now - self._active_at >= limit:
            self._drop_upstream()
            if self._refusal is not None:
                self._refused(self._refusal)
                return
            sentence = f"Node '{placement.node.name}' sent nothing for {limit:g} seconds."
            self._break_off(Ending.TIMED_OUT, UpstreamTimeout(sentence))

    def _abandon(self) -> None:
        """A fault of ours has left the request where nothing happens any more: its client must not wait for it."""
        client = self._relay.client
        if client is not None:
            client.abort()

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
        retry_after: int | None = None,
    ) -> None:
        placement, self._placement = self._placement, None
        if placement is None:
            return
        if ending is not Ending.COMPLETED:
            self._avoid |= {placement.node.name}
            if self._queued_s is not None and ending is not Ending.FULL:
                self._tell_wait(served=True)
        if statistics is None:
            outcome = Outcome(ending, status, latency)
            outcome.retry_after_s = retry_after
        else:
            outcome = Outcome(
                ending, status, latency, statistics.prompt_tokens, statistics.output_tokens, statistics.sample
            )
        if now is None:
            now = self._ports.clock()
        self._ports.dispatcher.settle(placement, outcome, now)
        self._ports.observer.finished(placement, outcome, now)
        self._waiting.freed()
