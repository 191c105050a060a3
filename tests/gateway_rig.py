"""The gateway over real sockets, with a dispatcher that places where it is told and keeps exact books."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

import httptools

from slipstream.core.dispatch import Placement
from slipstream.core.errors import AllFull, InvalidBody, NothingUsable, SlipstreamError
from slipstream.core.history import History
from slipstream.core.keys import KeyPolicy
from slipstream.core.node import NodeSpec
from slipstream.core.node_state import NodeState
from slipstream.core.outcome import Outcome, ResponseStatistics
from slipstream.core.policy import Decision, Reason
from slipstream.core.request import Pool, RequestShape, TrafficClass
from slipstream.gateway.headers import RequestHead
from slipstream.gateway.keys import KeyRing
from slipstream.gateway.limits import Limits
from slipstream.gateway.ports import AddedFields, Ports, Reader, no_added_fields
from slipstream.gateway.server import Gateway
from slipstream.gateway.tls import Certificate

__all__ = ["Books", "Client", "Rig", "eventually", "no_descriptor_left", "rig"]


@dataclass
class Books:
    """Places on the first node not to be avoided; every placement must be settled exactly once."""

    nodes: list[NodeSpec]
    error: SlipstreamError | None = None
    after: list[SlipstreamError | None] = field(default_factory=list)
    """What ``error`` becomes each time that it was raised; where this is empty, it stays."""
    open: list[Placement] = field(default_factory=list)
    placed: list[Placement] = field(default_factory=list)
    settled: list[tuple[Placement, Outcome]] = field(default_factory=list)
    rejections: list[tuple[SlipstreamError, str]] = field(default_factory=list)
    payloads: list[tuple[bytes, ...]] = field(default_factory=list)
    remembered: list[tuple[str, str]] = field(default_factory=list)
    histories: list[History] = field(default_factory=list)
    answering_well: list[Placement] = field(default_factory=list)
    told: set[int] = field(default_factory=set)
    waits: list[tuple[TrafficClass, bool]] = field(default_factory=list)
    finished_calls: int = 0
    decisions: int = 0

    def place(
        self,
        shape: RequestShape,
        request_id: str,
        now: float,
        avoid: Collection[str] = (),
        may_wait: bool = False,
        before: int = 0,
        queued_s: float | None = None,
    ) -> Placement:
        if self.error is not None:
            error, self.error = self.error, self.after.pop(0) if self.after else self.error
            raise error
        for node in self.nodes:
            if node.name not in avoid:
                decision = Decision(node.name, node.pool, Reason.NO_SPECULATOR, 0, 0.5, now)
                placement = Placement(request_id, shape, decision, NodeState(node, now), len(avoid) + 1, (), queued_s)
                self.open.append(placement)
                self.placed.append(placement)
                return placement
        raise AllFull("Every node is full.") if self.nodes else NothingUsable("No node is up.")

    def settle(self, placement: Placement, outcome: Outcome, now: float) -> None:
        assert placement in self.open, "settled twice, or never placed"
        self.open.remove(placement)
        placement.outcome = outcome
        self.settled.append((placement, outcome))

    def took(self, placement: Placement, now: float) -> None:
        assert placement in self.open

    def answering(self, placement: Placement, now: float) -> None:
        assert placement in self.open
        self.answering_well.append(placement)
        placement.state.circuit.trial = None

    def remember_response(self, placement: Placement, response_id: str, now: float) -> None:
        assert placement in self.open
        self.remembered.append((placement.node.name, response_id))

    def models(self) -> tuple[str, ...]:
        return ("m", "org/other")

    def usable_nodes(self) -> int:
        return 0 if self.error is not None else len(self.nodes)

    def finished(self, placement: Placement, outcome: Outcome, now: float) -> None:
        assert self.settled[-1] == (placement, outcome)
        self.finished_calls += 1

    def rejected(self, error: SlipstreamError, path: str, now: float) -> None:
        self.rejections.append((error, path))

    def answered(self, history: History) -> None:
        for attempt in history.attempts:
            assert attempt.placement not in self.open, "told of before it was settled"
            assert id(attempt.placement) not in self.told, "told of twice"
            self.told.add(id(attempt.placement))
        self.histories.append(history)

    def decided(self, seconds: float) -> None:
        assert seconds >= 0
        self.decisions += 1

    def waited(self, traffic_class: TrafficClass, seconds: float, *, served: bool) -> None:
        self.waits.append((traffic_class, served))

    def read_statistics(self, engine: str | None, payloads: tuple[bytes, ...]) -> ResponseStatistics:
        self.payloads.append(payloads)
        for payload in reversed(payloads):
            try:
                fields = json.loads(payload)
            except ValueError:
                continue
            usage = fields.get("usage") if isinstance(fields, dict) else None
            if usage:
                return ResponseStatistics(usage.get("prompt_tokens"), usage.get("completion_tokens"))
        return ResponseStatistics()

    @property
    def outcomes(self) -> list[Outcome]:
        return [outcome for _, outcome in self.settled]


def read(path: str, body: bytes, head: RequestHead, policy: KeyPolicy | None) -> RequestShape:
    """The real reader's outline: JSON or InvalidBody."""
    try:
        fields = json.loads(body)
    except ValueError:
        raise InvalidBody("The body is not JSON.") from None
    sequences = int(fields.get("n", 1))
    return RequestShape(
        fields["model"], head.category or "code", sequences=sequences, streamed=bool(fields.get("stream"))
    )


@dataclass
class Rig:
    """A gateway that serves, and its books."""

    gateway: Gateway
    books: Books
    host: str
    port: int
    ports: Ports

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


@asynccontextmanager
async def rig(
    *urls: str,
    limits: Limits | None = None,
    queue_size: int = 0,
    reader: Reader = read,
    keys: KeyRing | None = None,
    certificate: Certificate | None = None,
    added_fields: AddedFields = no_added_fields,
    clock: Callable[[], float] = monotonic,
    **node: Any,
) -> AsyncIterator[Rig]:
    """A gateway before the nodes at these addresses, called node-0, node-1, …; at the end no placement is left open,
    and no key has anything in flight.
    """
    specs = [NodeSpec(f"node-{number}", url, Pool.STANDARD, **node) for number, url in enumerate(urls)]
    books = Books(specs)
    ports = Ports(
        dispatcher=books,
        fleet=books,
        reader=reader,
        read_statistics=books.read_statistics,
        observer=books,
        added_fields=added_fields,
        keys=keys,
        answered=books.answered,
        clock=clock,
    )
    gateway = Gateway(ports, replace(limits or Limits(), queue_size=queue_size))
    host, port = await gateway.listen("127.0.0.1", 0, certificate)
    try:
        yield Rig(gateway, books, host, port, ports)
    finally:
        await gateway.close(0.0)
    assert not books.open, "a placement was never settled"
    assert keys is None or not any(key.usage.in_flight for key in keys.keys), "a key still has requests in flight"
    assert books.finished_calls == len(books.settled) == len(books.placed)
    assert sum(len(history.attempts) for history in books.histories) == len(books.placed), "a request was never told of"


@dataclass
class Response:
    """An answer as it stood on the wire."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    complete: bool = False
    """Whether it ended as its own framing says it should."""

    @property
    def error(self) -> Any:
        return json.loads(self.body)["error"]


class _Reading:
    def __init__(self) -> None:
        self.response = Response()
        self.pieces: list[bytes] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.response.headers[name.decode().lower()] = value.decode()

    def on_body(self, data: bytes) -> None:
        self.pieces.append(data)

    def on_message_complete(self) -> None:
        self.response.complete = True

    def done(self) -> bool:
        return self.response.complete


class Client:
    """One raw client connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.rest = b""

    @classmethod
    @asynccontextmanager
    async def to(cls, rig: Rig, tls: ssl.SSLContext | None = None) -> AsyncIterator[Client]:
        client = cls(*await asyncio.open_connection(rig.host, rig.port, ssl=tls))
        try:
            yield client
        finally:
            client.writer.close()

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def post(
        self, path: str = "/v1/chat/completions", fields: dict[str, Any] | None = None, headers: str = "", **more: Any
    ) -> None:
        """Send a request with a JSON body."""
        body = json.dumps((fields if fields is not None else {"model": "m"}) | more).encode()
        self.send(f"POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def get(self, path: str, method: str = "GET", headers: str = "") -> None:
        self.send(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode())

    async def response(self, *, head_only: bool = False) -> Response:
        """Read one answer, as far as it comes."""
        reading = _Reading()
        parser: Any = httptools.HttpResponseParser(reading)
        head = b""
        while b"\r\n\r\n" not in head:
            data = self.rest or await self._read()
            self.rest = b""
            if not data:
                return reading.response
            head += data
        head, _, self.rest = head.partition(b"\r\n\r\n")
        parser.feed_data(head + b"\r\n\r\n")
        reading.response.status = parser.get_status_code()
        until_close = not {"content-length", "transfer-encoding"} & reading.response.headers.keys()
        until_close = until_close and reading.response.status not in (100, 204, 304)
        while not (head_only or reading.done()):
            data = self.rest or await self._read()
            self.rest = b""
            if not data:
                reading.response.complete = until_close
                break
            # One byte too many would be the next answer's: near the end, feed no more than what completes this one.
            bulk = max(0, len(data) - 4096)
            if bulk:
                parser.feed_data(data[:bulk])
            for index in range(bulk, len(data)):
                parser.feed_data(data[index : index + 1])
                if reading.done():
                    self.rest = data[index + 1 :]
                    break
        reading.response.body = b"".join(reading.pieces)
        return reading.response

    async def _read(self) -> bytes:
        try:
            return await asyncio.wait_for(self.reader.read(65536), 20)
        except ConnectionError:
            return b""

    def stop_reading(self) -> None:
        """Leave what arrives in the kernel."""
        self.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is a transport that reads as well

    def read_on(self) -> None:
        self.writer.transport.resume_reading()  # type: ignore[attr-defined]  # it is a transport that reads as well

    async def closed(self) -> bool:
        """Whether the gateway closes the connection without sending anything more."""
        return not self.rest and not await self._read()


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """This process can open nothing more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def eventually(condition: Callable[[], bool], deadline_s: float = 10.0) -> None:
    """Wait until a condition holds; fails when it does not in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + deadline_s
    while not condition():
        assert loop.time() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.005)
