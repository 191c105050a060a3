"""Nodes sorted by load, so that the least loaded is found without looking at the others."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

__all__ = ["Indexed", "LoadIndex"]


class Indexed:
    """What the index keeps on its members: where each is, so that moving one costs the same at any number of them."""

    __slots__ = ("bucket", "position")

    def __init__(self) -> None:
        self.bucket: list[Any] | None = None
        self.position = 0


Member = TypeVar("Member", bound=Indexed)


class LoadIndex(Generic[Member]):
    """Buckets of equally loaded members and a heap of their loads. A member is in at most one index.

    Empty buckets stay until they come to the top of the heap: a load that is left and reached again at once costs
    nothing.
    """

    __slots__ = ("_buckets", "_loads", "_size")

    def __init__(self) -> None:
        self._buckets: dict[float, list[Member]] = {}
        self._loads: list[float] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Member]:
        for bucket in self._buckets.values():
            yield from bucket

    def add(self, member: Member, load: float) -> None:
        """Put a member, that is in no index, under ``load``."""
        bucket = self._buckets.get(load)
        if bucket is None:
            bucket = self._buckets[load] = []
            heappush(self._loads, load)
        member.bucket = bucket
        member.position = len(bucket)
        bucket.append(member)
        self._size += 1

    def remove(self, member: Member) -> None:
        """Take out a member that is in this index."""
        bucket = member.bucket
        assert bucket is not None
        last = bucket.pop()
        if last is not member:
            bucket[member.position] = last
            last.position = member.position
        member.bucket = None
        self._size -= 1

    def least(self) -> tuple[float, list[Member]] | None:
        """The lowest load and the members that have it; ``None`` when the index is empty. The list must not be
        changed.
        """
        loads, buckets = self._loads, self._buckets
        while loads:
            load = loads[0]
            bucket = buckets[load]
            if bucket:
                return load, bucket
            heappop(loads)
            del buckets[load]
        return None
