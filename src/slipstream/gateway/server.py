"""The data plane's front door: listens, routes requests to exchanges or answers them itself, closes gracefully."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast
from urllib.parse import unquote

from slipstream.core.errors import NothingUsable, SlipstreamError, TooManyConnections, TooManyInFlight
from slipstream.core.keys import Lease
from slipstream.core.request import RequestShape, TrafficClass
from slipstream.core.request_queue import RequestQueue
from slipstream.gateway.account import Account
from slipstream.gateway.dialect import DIALECTS
from slipstream.gateway.exchange import Exchange
from slipstream.gateway.headers import RequestHead
from slipstream.gateway.keys import KeyRing
from slipstream.gateway.limits import Limits
from slipstream.gateway.models import model_body, models_body
from slipstream.gateway.passthrough import passed_through_shape
from slipstream.gateway.ports import Ports
from slipstream.gateway.problems import problem_body, problem_headers, row_of
from slipstream.gateway.reply import reply, reply_problem
from slipstream.gateway.request import Request
from slipstream.gateway.routes import Endpoint, allowed_methods, endpoint_of
from slipstream.gateway.tls import Certificate
from slipstream.gateway.upstream import Upstreams
from slipstream.gateway.waiting import Waiter, Waiting
from slipstream.gateway.wire import ClientConnection, Handler
from slipstream.tls_listener import TlsListener

__all__ = ["Gateway"]

OFF_LOOP_BODY_BYTES: Final = 256 * 1024
"""Longer bodies are read in a thread, so that other clients' chunks don't wait for them."""

_SWEEP_S: Final = 0.1
_TURNED_AWAY_AT_ONCE: Final = 64
"""So many connections over the limit get an answer that says so; each is kept for up to two seconds to be read."""
_BACKLOG: Final = 4096
_LAST_WORDS_S: Final = 1.0
"""At the end of the grace, so long those who read slowly have for what is left to say."""


class Gateway(Handler):
    """OpenAI-compatible HTTP/1.1 server in front of a fleet. One event loop, one process."""

    def __init__(self, ports: Ports, limits: Limits | None = None) -> None:
        self._ports = ports
        self._limits = limits or Limits()
        self._upstreams = Upstreams(self._limits.node_keep_alive_s, ports.clock)
        queue: RequestQueue[Waiter] = RequestQueue(self._limits.queue_size, self._limits.queue_timeout_s)
        self._waiting = Waiting(queue, ports.clock)
        self._connections: set[ClientConnection] = set()
        self._handshakes: dict[ClientConnection, int] = {}  # and how many were too many when each began
        self._server: Any = None  # uvloop's servers are not quite what the types of asyncio say
        self._sweeper: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Event | None = None
        self._id_prefix = secrets.token_hex(6)
        self._id_number = 0
        self._sweep_s = _sweep_interval_s(self._limits)

    def configure(self, ports: Ports, limits: Limits) -> None:
        """Serve by these from now on. A request that is being answered keeps what it began with."""
        self._ports = ports
        self._limits = limits
        self._sweep_s = _sweep_interval_s(limits)
        self._waiting.configure(limits.queue_size, limits.queue_timeout_s)
        for connection in self._connections:
            connection.configure(limits)

    def forget(self, node: str) -> None:
        """A node has left, and none of its requests runs: close what is open to it."""
        self._upstreams.forget(node)

    async def listen(self, host: str, port: int, tls: Certificate | None = None) -> tuple[str, int]:
        """Start serving; returns the address bound (``port`` 0 picks a free one). ``tls``: as a server with its
        certificate. Raises OSError if it can not bind.
        """
        loop = asyncio.get_running_loop()
        if tls is None:
            factory = cast("Callable[[], asyncio.Protocol]", lambda: ClientConnection(self, self._limits))
            self._server = await loop.create_server(factory, host, port, backlog=_BACKLOG)
        else:
            listener = TlsListener(tls.context, self._handshake_s, self._admit_handshake, self._handshake_ended)
            await listener.listen(host, port, _BACKLOG)
            self._server = listener
        self._sweeper = loop.call_later(self._sweep_s, self._sweep)
        address = self._server.sockets[0].getsockname()
        return address[0], address[1]

    async def close(self, grace_s: float = 30.0) -> int:
        """Stop accepting, let running exchanges end for up to ``grace_s`` seconds, then break off the rest and tell
        their clients. Returns how many those were.
        """
        if self._server is None:
            return 0
        broken_off = 0
        self._server.close()
        self._emptied = asyncio.Event()
        for connection in tuple(self._connections):
            connection.retire()
        self._waiting.close()
        if self._connections:
            try:
                await asyncio.wait_for(self._emptied.wait(), grace_s)
            except TimeoutError:
                broken_off = sum([connection.stop() for connection in tuple(self._connections)])
                await self._let_go()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._upstreams.close()
        await self._server.wait_closed()
        self._server = None
        return broken_off

    async def _let_go(self) -> None:
        """Let those who were broken off read why, for a moment."""
        assert self._emptied is not None
        if self._connections:
            try:
                await asyncio.wait_for(self._emptied.wait(), _LAST_WORDS_S)
            except TimeoutError:
                for connection in tuple(self._connections):
                    connection.abort()
                await self._emptied.wait()

    @property
    def open_connections(self) -> int:
        """How many clients are connected, those with whom TLS is not agreed on yet among them."""
        return len(self._connections) + len(self._handshakes)

    @property
    def queue_lengths(self) -> dict[TrafficClass, int]:
        """How many requests wait for a node with room, by class."""
        return self._waiting.lengths

    # What follows is called by the listener, where it speaks TLS.

    def _handshake_s(self) -> float:
        return self._limits.client_head_s

    def _admit_handshake(self) -> ClientConnection | None:
        over = self.open_connections + 1 - self._limits.max_connections
        if over > _TURNED_AWAY_AT_ONCE:
            self._ports.observer.rejected(_too_many_connections(), "", self._ports.clock())
            return None
        connection = ClientConnection(self, self._limits)
        self._handshakes[connection] = over
        return connection

    def _handshake_ended(self, connection: ClientConnection) -> None:
        self._handshakes.pop(connection, None)

    # What follows is called by client connections.

    def now(self) -> float:
        return self._ports.clock()

    def connected(self, connection: ClientConnection) -> None:
        over = self._handshakes.pop(connection, None)  # who came in time is not turned away for those who came later
        self._connections.add(connection)
        if over is None:
            over = len(self._connections) - self._limits.max_connections
        if over > 0:
            error = _too_many_connections()
            if over <= _TURNED_AWAY_AT_ONCE:
                connection.turn_away(error)
            else:  # an answer that nobody may read would hold a descriptor that others need
                connection.abort()
                self._ports.observer.rejected(error, "", self._ports.clock())

    def disconnected(self, connection: ClientConnection) -> None:
        self._connections.discard(connection)
        if self._emptied is not None and not self._connections:
            self._emptied.set()

    def refuse(self, connection: ClientConnection, error: SlipstreamError, request: Request | None) -> None:
        if request is not None:
            request.keep_alive = False
            self._name(request)
        reply_problem(self._ports, connection, request, error)

    def stranger(self, head: RequestHead) -> SlipstreamError | None:
        keys = self._ports.keys
        return None if keys is None else keys.objection(head)

    def handle(self, connection: ClientConnection, request: Request) -> None:
        self._name(request)
        if self._emptied is not None:
            request.keep_alive = False
        if request.method == "OPTIONS":
            self._options(connection, request)
            return
        try:
            endpoint = endpoint_of(request.method, request.path)
            keys = self._ports.keys
            if endpoint is Endpoint.READ or endpoint is Endpoint.PASSED_THROUGH:
                if keys is not None:
                    connection.lease = self._admit(keys, request)
                self._exchange(connection, request)
            else:
                if keys is not None and (endpoint is Endpoint.MODELS or endpoint is Endpoint.MODEL):
                    keys.ask(request.head, request.received_at)
                self._answer(connection, request, endpoint)
        except SlipstreamError as error:
            reply_problem(self._ports, connection, request, error)

    def _name(self, request: Request) -> None:
        """Give a request an id, if its client did not, and an account, if anybody wants to know."""
        if not request.request_id:
            self._id_number += 1
            request.request_id = f"{self._id_prefix}{self._id_number}"
        ports = self._ports
        if ports.answered is not None or ports.tracer is not None:
            request.account = Account(
                ports, request.request_id, request.method, request.path, request.head, request.received_at
            )

    def _options(self, connection: ClientConnection, request: Request) -> None:
        try:
            allowed = allowed_methods(request.path)
        except SlipstreamError as error:
            reply_problem(self._ports, connection, request, error)
        else:
            reply(connection, request, 204, b"", f"allow: {', '.join(allowed)}\r\n".encode())

    def _answer(self, connection: ClientConnection, request: Request, endpoint: Endpoint) -> None:
        """Answer what concerns no node. Raises UnknownModel."""
        fleet = self._ports.fleet
        if endpoint is Endpoint.MODELS:
            reply(connection, request, 200, models_body(fleet.models()))
        elif endpoint is Endpoint.MODEL:
            reply(
                connection, request, 200, model_body(fleet.models(), unquote(request.path.removeprefix("/v1/models/")))
            )
        elif endpoint is Endpoint.HEALTH:
            reply(connection, request, 200, b'{"status":"ok"}')
        elif self._emptied is not None:
            error = NothingUsable("Not ready: this gateway is being stopped.")
            reply(connection, request, row_of(error).status, problem_body(error), problem_headers(error), error)
        elif nodes := fleet.usable_nodes():
            reply(connection, request, 200, b'{"status":"ready","usable_nodes":%d}' % nodes)
        else:  # an answer to a probe, not a request turned away: the observer does not hear of it
            error = NothingUsable("Not ready: no node of the fleet is usable now.")
            reply(connection, request, row_of(error).status, problem_body(error), problem_headers(error), error)

    def _admit(self, keys: KeyRing, request: Request) -> Lease:
        """Let a request in. One that its key could never have is told so, not to come again when others have ended;
        a body too long to be read here is not read for that.
        """
        try:
            return keys.admit(request.head, request.received_at)
        except TooManyInFlight:
            if request.path in DIALECTS and len(request.body) <= OFF_LOOP_BODY_BYTES:
                shape = self._ports.reader(request.path, request.body, request.head, None)
                keys.check(request.head, shape.sequences)
            raise

    def _exchange(self, connection: ClientConnection, request: Request) -> None:
        """Read the request's body and start the exchange. Raises RequestError."""
        ports = self._ports
        lease = connection.lease
        policy = None if lease is None else lease.key.policy
        path, body = request.path, request.body
        dialect = DIALECTS.get(path)
        exchange = Exchange(ports, self._limits, self._upstreams, self._waiting, connection, request, dialect)
        if len(body) <= OFF_LOOP_BODY_BYTES:
            if dialect is None:
                shape = passed_through_shape(path, body, ports.default_category, policy)
            else:
                shape = ports.reader(path, body, request.head, policy)
            if lease is not None:
                _book(lease, shape)
            connection.work = exchange
            exchange.begin(shape)
            return
        connection.work = exchange
        loop = asyncio.get_running_loop()
        if dialect is None:
            future = loop.run_in_executor(None, passed_through_shape, path, body, ports.default_category, policy)
        else:
            future = loop.run_in_executor(None, ports.reader, path, body, request.head, policy)
        future.add_done_callback(partial(_read, connection, exchange, lease))

    def _sweep(self) -> None:
        """Look for what has taken too long: one timer for all, so that chunks and requests cost none."""
        now = self._ports.clock()
        self._sweeper = asyncio.get_running_loop().call_later(self._sweep_s, self._sweep)  # first: whatever comes up
        for connection in tuple(self._connections):
            try:
                connection.expire(now)
            except BaseException:  # a fault of ours: it costs this connection, and the others their turn once
                connection.abort()
                raise
        self._upstreams.expire(now)


def _too_many_connections() -> TooManyConnections:
    return TooManyConnections("As many clients are connected as this gateway serves; try again later.")


def _sweep_interval_s(limits: Limits) -> float:
    """Often enough that no limit is passed by more than a quarter of it."""
    return min(
        _SWEEP_S,
        limits.client_head_s / 4,
        limits.connect_s / 4,
        limits.idle_s / 4,
        limits.write_s / 4,
        limits.drain_s / 4,
        limits.first_byte_streamed_s / 4,
        limits.first_byte_unstreamed_s / 4,
    )


def _book(lease: Lease, shape: RequestShape) -> None:
    """Count a request that has been read on its key, and call it by that. Raises TooManyInFlight or InvalidField."""
    lease.widen(shape.sequences)
    shape.key_id = lease.key.policy.key_id


def _read(
    connection: ClientConnection, exchange: Exchange, lease: Lease | None, future: asyncio.Future[RequestShape]
) -> None:
    try:
        shape = future.result()
        if lease is not None:
            _book(lease, shape)
    except SlipstreamError as error:
        exchange.fail(error)
    except BaseException:  # a fault of ours: the loop tells of it, and the client must not wait for what never comes
        connection.abort()
        raise
    else:
        exchange.begin(shape)
