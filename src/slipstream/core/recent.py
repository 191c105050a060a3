"""A bounded map that forgets what was not put for longest, at the cost of one store."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["RecentMap"]

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class RecentMap(Generic[Key, Value]):
    """Two generations: what is put goes into the young one; when that holds half of ``entries``, it becomes the old one
    and what was the old one is forgotten. So the last ``entries / 2`` keys put are always there, and never more than
    ``entries``. An order kept entry by entry would forget more exactly and cost each use several times as much.
    """

    __slots__ = ("_half", "_old", "_young")

    def __init__(self, entries: int) -> None:
        self._half = max(1, entries // 2)
        self._young: dict[Key, Value] = {}
        self._old: dict[Key, Value] = {}

    def __len__(self) -> int:
        return len(self._young.keys() | self._old.keys())

    def get(self, key: Key) -> Value | None:
        """What was last put under ``key``; ``None`` when that was never or is forgotten."""
        found = self._young.get(key)
        return self._old.get(key) if found is None else found

    def put(self, key: Key, value: Value) -> None:
        """Keep ``value`` under ``key``, as the most recently used."""
        young = self._young
        if len(young) >= self._half and key not in young:
            self.age()
            young = self._young
        young[key] = value

    def age(self) -> None:
        """Forget the old generation; the young one becomes the old one."""
        self._old = self._young
        self._young = {}
