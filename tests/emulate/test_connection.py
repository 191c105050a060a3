"""What a connection is told to write arrives whole and in order, whoever writes it: itself or the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from slipstream.emulate.connection import Connection, Request

PIECES = [b"%05d" % number * 8000 for number in range(200)]
"""8 MB: far more than sockets hold."""
RUNNERS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
Run = Callable[[Coroutine[Any, Any, bytes]], bytes]


class Answers:
    """Writes all pieces, or hangs up and then writes."""

    def __init__(self, *, hangs_up: bool) -> None:
        self.hangs_up = hangs_up

    def opened(self, connection: Connection) -> None:
        connection.write(b"hello")

    def lost(self, connection: Connection) -> None:
        pass

    def handle(self, connection: Connection, _request: Request) -> None:
        if self.hangs_up:
            connection.close()
        for piece in PIECES:
            connection.write(piece)
        connection.finish(keep_alive=False)


async def read_late(answers: Answers) -> bytes:
    """All that comes. Nothing is read before all is written."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(answers, loop), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), limit=1024)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    try:
        return await reader.read()
    finally:
        writer.close()
        server.close()


@RUNNERS
def test_a_slow_reader_gets_all_of_it_in_order(run: Run) -> None:
    assert run(read_late(Answers(hangs_up=False))) == b"hello" + b"".join(PIECES)


@RUNNERS
def test_nothing_is_written_after_the_end(run: Run) -> None:
    assert run(read_late(Answers(hangs_up=True))) == b"hello"
