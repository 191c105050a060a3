"""A node that does exactly what a test tells it to, byte by byte, over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

__all__ = [
    "Call",
    "ScriptedNode",
    "answer",
    "chunked",
    "close",
    "die_after",
    "raw",
    "reset",
    "scripted_node",
    "stall",
    "stream",
]


@dataclass
class Call:
    """A request that reached the node."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    writer: asyncio.StreamWriter
    reader: asyncio.StreamReader
    connection: int
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the other side left while the node did not answer."""


Behaviour = Callable[[Call], Awaitable[None]]


@dataclass
class ScriptedNode:
    """``behaviours`` are used up from the front, one a request; the last one stays."""

    behaviours: list[Behaviour]
    url: str = ""
    calls: list[Call] = field(default_factory=list)
    connections: int = 0
    open_connections: int = 0
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        self.connections += 1
        self.open_connections += 1
        number = self.connections
        try:
            while not writer.is_closing():
                call = await _read_call(reader, writer, number)
                self.calls.append(call)
                behaviour = self.behaviours.pop(0) if len(self.behaviours) > 1 else self.behaviours[0]
                await behaviour(call)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the other side left, or the test is over
        finally:
            self.open_connections -= 1
            self.tasks.discard(task)
            writer.close()


async def _read_call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int) -> Call:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:-2])}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Call(method, target, headers, body, writer, reader, connection)


@asynccontextmanager
async def scripted_node(*behaviours: Behaviour, port: int = 0) -> AsyncIterator[ScriptedNode]:
    """A node listening on a loopback port, by default a free one."""
    node = ScriptedNode(list(behaviours))
    server = await asyncio.start_server(node.serve, "127.0.0.1", port)
    host, port = server.sockets[0].getsockname()
    node.url = f"http://{host}:{port}"
    try:
        yield node
    finally:
        server.close()
        for task in tuple(node.tasks):
            task.cancel()
        if node.tasks:
            await asyncio.wait(tuple(node.tasks))


def raw(*pieces: bytes, close: bool = False) -> Behaviour:
    """Write these bytes, one write a piece, each in its own packet as far as the kernel allows."""

    async def behave(call: Call) -> None:
        for piece in pieces:
            call.writer.write(piece)
            await call.writer.drain()
            await asyncio.sleep(0)
        if close:
            call.writer.close()

    return behave


def answer(status: int = 200, body: bytes = b"{}", headers: str = "", *, close: bool = False) -> Behaviour:
    """A whole unstreamed answer."""
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return raw(head.encode() + body, close=close)


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunked(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def stream(events: Iterable[bytes], *, end: bytes = b"0\r\n\r\n") -> Behaviour:
    """Events as they are, one chunk each."""
    return raw(STREAM_HEAD, *map(chunked, events), end)


def die_after(*pieces: bytes) -> Behaviour:
    """Write these bytes and close the connection."""
    return raw(*pieces, close=True)


def close() -> Behaviour:
    """Close without a byte."""
    return raw(close=True)


def reset() -> Behaviour:
    """Reset the connection without a byte."""

    async def behave(call: Call) -> None:
        call.writer.transport.abort()

    return behave


def stall(*pieces: bytes) -> Behaviour:
    """Write these bytes, then nothing, until the other side leaves."""

    async def behave(call: Call) -> None:
        await raw(*pieces)(call)
        with suppress(ConnectionError):
            await call.reader.read(1)
        call.gone.set()
        call.writer.close()

    return behave
