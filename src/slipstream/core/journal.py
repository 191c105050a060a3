"""What the fleet was before each of its last changes: a ring that costs a change two stores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

__all__ = ["Journal"]

Before = TypeVar("Before")


class Journal(Generic[Before]):
    """The last ``entries`` changes, numbered by version without a gap: each has a name and the state before it."""

    __slots__ = ("_before", "_entries", "_names", "_version")

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._names: list[str | None] = [None] * entries
        self._before: list[Before | None] = [None] * entries
        self._version = 0

    @property
    def version(self) -> int:
        """The number of the last change; 0 before the first."""
        return self._version

    def record(self, name: str | None, before: Before | None) -> int:
        """Take note of a change and return its number. ``name`` ``None``: a change that has nothing to undo."""
        self._version = version = self._version + 1
        at = version % self._entries
        self._names[at] = name
        self._before[at] = before
        return version

    def undo(self, version: int) -> Iterator[tuple[str, Before | None]] | None:
        """Names and states before, newest first, of all changes after ``version``; ``None`` when some are forgotten."""
        if self._version - version > self._entries:
            return None
        return self._since(version)

    def _since(self, version: int) -> Iterator[tuple[str, Before | None]]:
        for number in range(self._version, version, -1):
            at = number % self._entries
            name = self._names[at]
            if name is not None:
                yield name, self._before[at]
