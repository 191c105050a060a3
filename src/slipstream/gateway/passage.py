"""The short way of a stream's chunks: from the node's connection straight to the client's."""

from __future__ import annotations

from collections.abc import Callable

from slipstream.gateway.sse import EventStream

__all__ = ["Passage"]


class Passage:
    """Where the chunks of a stream go of which nothing more is wanted than to pass them on.

    ``events`` are those of the stream, ``write`` sends to its client, who takes chunks.
    """

    __slots__ = ("_events", "_write")

    def __init__(self, events: EventStream, write: Callable[[bytes], None]) -> None:
        self._events = events
        self._write = write

    def take(self, chunk: bytes, start: int) -> bool:
        """Pass on one whole HTTP chunk, whose content begins at ``start``; whether it could be, as it is."""
        if not self._events.note(chunk, start):
            return False
        self._write(chunk)
        return True
