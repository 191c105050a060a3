"""What a process writes: passed on as it comes, and the end of it kept for whoever wants to know what went wrong."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from io import FileIO
from typing import Self

__all__ = ["OUTPUT", "Output", "legible"]

OUTPUT = "output of a process"
"""Name of the tasks that read some."""

TAIL_BYTES = 8192
TAIL_LINES = 5
COLOURS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


class Output:
    """Reads a pipe until nobody can write to it any more, and keeps the last 8 KiB. Made by `of`.

    ``reading`` is done then.
    """

    def __init__(self, reader: asyncio.StreamReader, on_output: Callable[[bytes], None]) -> None:
        self._reader = reader
        self._on_output = on_output
        self._tail = b""
        self.reading = asyncio.create_task(self._read(), name=OUTPUT)

    @classmethod
    async def of(cls, pipe: int, on_output: Callable[[bytes], None]) -> Self:
        """Of a pipe's end, which is closed when that is all; ``on_output`` gets what comes out of it."""
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: _ClosedAtItsEnd(reader), FileIO(pipe))
        return cls(reader, on_output)

    def last_lines(self) -> list[str]:
        """The last lines so far, each `legible`."""
        lines = [legible(line) for line in self._tail.splitlines()]
        return [line for line in lines if line][-TAIL_LINES:]

    async def _read(self) -> None:
        while output := await self._reader.read(TAIL_BYTES):
            self._tail = (self._tail + output)[-TAIL_BYTES:]
            self._on_output(output)


def legible(said: bytes) -> str:
    """As text on one line, without colours and what else a terminal would act on."""
    words = " ".join(COLOURS.sub("", said.decode(errors="replace")).split())
    return "".join(character for character in words if character.isprintable())


class _ClosedAtItsEnd(asyncio.StreamReaderProtocol):
    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self._kept = reader  # its base lets go of a reader that nobody else holds, and the task that waits for it ends

    def eof_received(self) -> bool:
        super().eof_received()
        return False
