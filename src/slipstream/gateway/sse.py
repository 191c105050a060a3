"""Server-sent events without sockets: whole-event framing, the first content, the last payloads, the terminator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from slipstream.gateway.content import FAILURES, event_type
from slipstream.gateway.dialect import Dialect

__all__ = ["MAX_HELD_BYTES", "EventStream", "data_payloads", "last_boundary"]

MAX_HELD_BYTES: Final = 1024 * 1024
"""An incomplete event longer than this is forwarded as it comes."""

_BLANK_LINES: Final = (b"\n\n", b"\n\r\n", b"\r\r")
_COLON: Final = 0x3A
_DONE: Final = b"[DONE]"
_TAIL_BYTES: Final = 2  # of a blank line that the next bytes complete, at most so much has come
_KEPT_BLOCKS: Final = 4  # one event each at worst: the last three payloads, and the terminator


def last_boundary(data: bytes, start: int = 0) -> int:
    """The index just behind the last event that ends in ``data`` at or after ``start``; 0 when none does.

    Events end with a blank line; lines end with LF, CRLF or CR.
    """
    ends = [index + len(blank) for blank in _BLANK_LINES if (index := data.rfind(blank, start)) >= 0]
    return max(ends, default=0)


def data_payloads(blocks: Iterable[bytes]) -> list[bytes]:
    """The ``data`` of every event in ``blocks``, each of which holds whole events. Comments and such are left out."""
    payloads: list[bytes] = []
    for block in blocks:
        event: list[bytes] = []
        for line in block.splitlines():
            if line.startswith(b"data:"):
                event.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif not line and event:
                payloads.append(event[0] if len(event) == 1 else b"\n".join(event))
                event = []
    return payloads


class EventStream:
    """Cuts a stream into blocks of whole events. However the bytes are cut on arrival, the same bytes come out.

    ``first_content_at`` is the time handed to the ``feed`` that brought the first content, ``None`` before. ``seeking``
    is true until then. ``split`` is true once part of an overlong event was let through. ``answer_id`` is the id by
    which a later request can refer to the answer, ``None`` before it is known.
    """

    __slots__ = (
        "_dialect",
        "_held",
        "_held_bytes",
        "_opening",
        "_payloads",
        "_recent",
        "_tail",
        "_turn",
        "answer_id",
        "first_content_at",
        "seeking",
        "split",
    )

    def __init__(self, dialect: Dialect | None) -> None:
        """``dialect`` is what the events are read by; ``None``: they are passed through unread."""
        self._dialect = dialect
        self.seeking = dialect is not None and dialect.has_content is not None
        self._held: list[bytes] = []  # pieces, so that an event that comes byte by byte is not copied each time
        self._held_bytes = 0
        self._tail = b""  # the last of what is held: a blank line may have begun there
        self._opening = b""
        self._recent = [b""] * _KEPT_BLOCKS  # the last blocks, the oldest of them at ``_turn``
        self._turn = 0
        self._payloads: list[bytes] | None = None  # of the last blocks, once they have been read
        self.first_content_at: float | None = None
        self.split = False
        self.answer_id: str | None = None

    def feed(self, data: bytes, now: float) -> bytes:
        """Take bytes that arrived at ``now`` (of use only while ``seeking``); returns the whole events to forward."""
        if self._held_bytes or not data.endswith(b"\n\n"):
            data = self._cut(data)
            if not data:
                return data
        self._keep(data, 0)
        if self.seeking:
            self._seek(data, now)
        return data

    def note(self, chunk: bytes, start: int) -> bool:
        """Take one whole HTTP chunk, at least two bytes from ``start`` on, once nothing is sought; whether it can be
        forwarded as it is.
        """
        if self._held_bytes or not chunk.endswith(b"\n\n\r\n"):
            return False
        self._keep(chunk, start)
        return True

    def _keep(self, block: bytes, start: int) -> None:
        """Keep whole events, which begin at ``start``. What a chunk has around them reads as no field of theirs."""
        if block[start] != _COLON or b"data:" in block:  # comments only keep a connection alive
            self._payloads = None
            turn = self._turn
            self._recent[turn] = block
            self._turn = turn + 1 if turn < _KEPT_BLOCKS - 1 else 0

    def _seek(self, block: bytes, now: float) -> None:
        """Look for the first content, and on the way for what the first events say."""
        dialect = self._dialect
        assert dialect is not None
        has_content, identify = dialect.has_content, dialect.identify
        assert has_content is not None
        for payload in data_payloads((block,)):
            if not self._opening and dialect.count_tokens is not None:
                self._opening = payload
            if identify is not None and self.answer_id is None:
                self.answer_id = identify(payload)
            if has_content(payload):
                self.seeking = False
                self.first_content_at = now
                return

    def _cut(self, data: bytes) -> bytes:
        """What is held and ``data``, up to the end of the last whole event; the rest is held."""
        seam = self._tail + data
        end = last_boundary(seam)
        cut = end - len(self._tail) if end else 0
        if len(data) - cut + (0 if end else self._held_bytes) > MAX_HELD_BYTES:
            self.split = True
            end = cut = len(data)
        if not end:
            self._held.append(data)
            self._held_bytes += len(data)
            self._tail = seam[-_TAIL_BYTES:]
            return b""
        block, rest = data[:cut], data[cut:]
        if self._held_bytes:
            block = b"".join((*self._held, block))
        self._held = [rest] if rest else []
        self._held_bytes = len(rest)
        self._tail = rest[-_TAIL_BYTES:]
        return block

    def _last_payloads(self) -> list[bytes]:
        """The ``data`` of the last few events forwarded, in order: read once, though several ask when all has come."""
        payloads = self._payloads
        if payloads is None:
            payloads = self._payloads = data_payloads(self._recent[self._turn :] + self._recent[: self._turn])
        return payloads

    def _last_and_held(self) -> list[bytes]:
        """The same, and that of an event whose end has not come."""
        held = data_payloads((self.held + b"\n\n",)) if self._held_bytes else []
        return self._last_payloads() + held

    def payloads(self) -> list[bytes]:
        """The ``data`` of the last few events forwarded, in order, without the terminator ``[DONE]``."""
        return [payload for payload in self._last_payloads() if payload != _DONE]

    def counting_payloads(self) -> tuple[bytes, ...]:
        """The ``data`` of the events that may count tokens: the last three, and the first where they count there."""
        last = self.payloads()[-3:]
        return (self._opening, *last) if self._opening else tuple(last)

    @property
    def terminated(self) -> bool:
        """Whether the stream has said that it is complete."""
        payloads = self._last_and_held()
        if _DONE in payloads:
            return True
        dialect = self._dialect
        return dialect is not None and bool(dialect.ends) and any(event_type(each) in dialect.ends for each in payloads)

    def failure(self) -> bytes | None:
        """The ``data`` of the event by which the node said that it could not go on; ``None`` when it did not say so."""
        for payload in reversed(self._last_and_held()):
            if payload != _DONE and event_type(payload) in FAILURES:
                return payload
        return None

    @property
    def held(self) -> bytes:
        """The beginning of an event whose end has not come."""
        return b"".join(self._held)
