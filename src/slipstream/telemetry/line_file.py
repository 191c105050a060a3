"""Lines appended to a file by a thread of its own, so that a slow or full disk never holds up a request.

Compiled, since every request has lines.
"""

from __future__ import annotations

import math
import os
import stat
import sys
import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Final

import structlog

from slipstream.core.errors import SlipstreamError

__all__ = ["HANDED_OVER_BYTES", "MAX_WAITING_BYTES", "STANDARD_OUTPUT", "CanNotWrite", "LineFile"]

STANDARD_OUTPUT = "-"
"""The name that stands for standard output."""

MAX_WAITING_BYTES = 8 * 1024 * 1024
"""Lines that wait for the disk take at most this much memory; what comes on top is dropped and counted."""

FLUSH_S = 0.2
"""A line waits no longer than this to be written, as long as the disk keeps up."""

HANDED_OVER_BYTES: Final = 128 * 1024
"""So much is written without waiting for that: to write a megabyte at once would hold up requests for milliseconds."""

LOOK_S = 1.0
"""How often the file's name is looked at, to see whether it still leads to the file that is open."""
BATCH_BYTES: Final = 256 * 1024
CLOSE_S = 5.0

log = structlog.get_logger(__name__)


class CanNotWrite(SlipstreamError):
    """A file that lines should be appended to can not be opened."""


class LineFile:
    """A file that lines are appended to, in order, each whole or not at all.

    ``write`` belongs to one thread, costs well under a microsecond and never waits. Lines are dropped, and counted in
    ``dropped``, when ``max_waiting_bytes`` of them wait for the disk and when the disk refuses them. A file that was
    moved away is opened anew under its name, within a second or at ``reopen``.
    """

    def __init__(
        self,
        name: str,
        *,
        max_waiting_bytes: int = MAX_WAITING_BYTES,
        flush_s: float = FLUSH_S,
    ) -> None:
        """Open the file and start to write to it. Raises ``CanNotWrite``."""
        self.name = name
        self.dropped = 0
        """Lines given up for want of room or because the disk refused them."""
        self._max_bytes: int | None = None
        self._keep = 1
        self._max_waiting_bytes = max_waiting_bytes
        self._flush_s = flush_s
        self._lines: list[bytes] = []
        self._accepted_bytes = 0  # the writer's count, and below it the thread's: neither is written by both
        self._taken_bytes = 0
        self._refused_lines = 0
        self._rest = b""  # of a line that the disk took in part: the file must not go on without it
        self._failing = False
        self._misplaced = False  # whether lines go on in a file that the name no longer leads to
        self._stale = False
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._woken = False  # since the thread last looked
        self._closing = False
        try:
            self._descriptor = self._opened()
        except (OSError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise CanNotWrite(f"can not write to {name}: {reason}") from None
        self._size = self._current_size()
        self._writer = threading.Thread(target=self._run, name=f"write {name}", daemon=True)
        self._writer.start()

    def write(self, line: bytes) -> None:
        """Append a line, which ends with a line end, soon."""
        accepted = self._accepted_bytes + len(line)
        waiting = accepted - self._taken_bytes
        if waiting > self._max_waiting_bytes:
            self.dropped += 1
            return
        self._accepted_bytes = accepted
        self._lines.append(line)
        if waiting >= HANDED_OVER_BYTES and not self._woken:
            self._woken = True
            self._wake.put(None)

    def rotate_at(self, max_bytes: int | None, keep: int) -> None:
        """From now on, move the file to ``NAME.1`` before it grows beyond ``max_bytes``, and that to ``NAME.2``, up to
        ``keep``. ``None``: let it grow. What is no file, such as a pipe, is never moved.
        """
        self._keep = keep
        self._max_bytes = max_bytes

    @property
    def lost(self) -> int:
        """Lines that were to be written and never will be."""
        return self.dropped + self._refused_lines

    def reopen(self) -> None:
        """Open the file anew under its name before the next line is written: it was rotated."""
        self._stale = True

    def close(self) -> None:
        """Write what waits, as far as that takes no more than some seconds, and close the file."""
        self._closing = True
        self._wake.put(None)
        self._writer.join(CLOSE_S)

    # What follows runs in the thread.

    def _run(self) -> None:
        look_at = monotonic() + LOOK_S
        while True:
            with suppress(Empty):  # then it is time to write what there is
                self._wake.get(timeout=self._flush_s)
            self._woken = False
            closing = self._closing  # asked first: what was written before `close` is among the lines
            due = monotonic() >= look_at
            if due:
                look_at = monotonic() + LOOK_S
            try:
                if self._stale or (due and self._moved()):
                    self._stale = False
                    self._change_file()
                    self._misplaced = False
            except OSError as error:
                self._misplaced = True
                self._failed(error)
            while self._lines or self._rest:
                if not self._write_batch():
                    break
            if closing:
                break
        if self.name != STANDARD_OUTPUT:
            os.close(self._descriptor)

    def _write_batch(self) -> bool:
        """Write some of what waits; whether the disk took it."""
        waiting = self._lines
        count = size = 0
        for line in waiting:
            size += len(line)
            count += 1
            if size >= BATCH_BYTES:
                break
        lines = waiting[:count]
        del waiting[:count]  # the other thread only appends, behind these
        try:
            if self._size and not self._rest and self._size + size > self._longest():
                self._rotate()
            data = b"".join(lines)
            left = self._write_all(memoryview(self._rest + data if self._rest else data))
        except OSError as error:
            self._failed(error)
            self._refused_lines += len(lines)
            return False
        finally:
            self._taken_bytes += size
        if left is None:
            self._succeeded()
            return True
        self._give_up(bytes(left[0]), left[1])
        return False

    def _write_all(self, data: memoryview) -> tuple[memoryview, OSError] | None:
        """Write; what could not be, and why. Raises ``OSError`` when nothing could."""
        written = 0
        while written < len(data):
            try:
                count = os.write(self._descriptor, data[written:])
            except OSError as error:
                if written == 0:
                    raise
                return data[written:], error
            written += count
            self._size += count
        self._rest = b""
        return None

    def _give_up(self, left: bytes, error: OSError) -> None:
        """Keep the rest of a line that the disk has the beginning of, and count the lines behind it as lost."""
        end = left.find(b"\n") + 1
        self._rest = left[:end]
        self._refused_lines += left.count(b"\n", end)
        self._failed(error)

    def _failed(self, error: OSError) -> None:
        if not self._failing:
            self._failing = True
            log.warning("lines.refused", file=self.name, reason=error.strerror or str(error))

    def _succeeded(self) -> None:
        if self._failing and not self._misplaced:
            self._failing = False
            log.warning("lines.written_again", file=self.name, lost=self.lost)

    # Files.

    def _opened(self) -> int:
        if self.name == STANDARD_OUTPUT:
            return sys.stdout.fileno()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not block this
        descriptor = os.open(self.name, flags, 0o640)
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            os.set_blocking(descriptor, True)  # it is the thread that waits for who reads
        return descriptor

    def _current_size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def _moved(self) -> bool:
        """Whether the name no longer leads to the open file."""
        if self.name == STANDARD_OUTPUT:
            return False
        try:
            there = os.stat(self.name)
        except FileNotFoundError:
            return True
        return not os.path.samestat(there, os.fstat(self._descriptor))

    def _change_file(self) -> None:
        """Go on in whatever the name leads to; in the old file, when that can not be opened."""
        if self.name == STANDARD_OUTPUT:
            return
        descriptor = self._opened()
        if self._rest:  # the old file's last line is finished there
            self._write_all(memoryview(self._rest))
        os.close(self._descriptor)
        self._descriptor = descriptor
        self._size = self._current_size()

    def _longest(self) -> float:
        """The bytes that it may grow to. A pipe, a device and standard output hold none, and are not ours to move."""
        if self.name == STANDARD_OUTPUT or not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            return math.inf
        return self._max_bytes or math.inf

    def _rotate(self) -> None:
        for number in range(self._keep, 1, -1):
            older = f"{self.name}.{number - 1}"
            if os.path.exists(older):
                os.replace(older, f"{self.name}.{number}")
        os.replace(self.name, f"{self.name}.1")
        self._change_file()
