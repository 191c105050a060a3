"""Nodes sorted by load, so that the least loaded is found without looking at the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

__all__ = ["Indexed", "LoadIndex"]

SPARE_BUCKETS = 256
"""Empty buckets that are kept, beside as many as there are members."""


class Indexed:
    """What the index keeps on its members: where each is, so that moving one costs the same at any number of them."""

    __slots__ = ("bucket", "position")

    def __init__(self) -> None:
        self.bucket: list[Any] | None = None
        self.position = 0


Member = TypeVar("Member", bound=Indexed)


class _Bucket(Generic[Member]):
    """The members with one load, and the bucket with the next higher one."""

    __slots__ = ("above", "load", "members")

    def __init__(self, load: float) -> None:
        self.load = load
        self.members: list[Member] = []
        self.above: _Bucket[Member] | None = None


class LoadIndex(Generic[Member]):
    """Buckets of equally loaded members, from the lowest load to the highest. A member is in at most one index.

    Loads are shares of a few limits, so the same ones come again and again: a bucket stays when it is left empty, and
    moving a member to a load that was reached before is a look-up. All buckets below the ``_lowest`` are empty.
    """

    __slots__ = ("_buckets", "_by_load", "_lowest", "_size")

    def __init__(self) -> None:
        self._buckets: list[_Bucket[Member]] = []
        self._by_load: dict[float, _Bucket[Member]] = {}
        self._lowest: _Bucket[Member] | None = None
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Member]:
        for bucket in self._buckets:
            yield from bucket.members

    def add(self, member: Member, load: float) -> None:
        """Put a member, that is in no index, under ``load``."""
        bucket = self._by_load.get(load)
        if bucket is None:
            bucket = self._insert(load)
        members = bucket.members
        member.bucket = members
        member.position = len(members)
        members.append(member)
        self._size += 1
        lowest = self._lowest
        if lowest is None or load < lowest.load:
            self._lowest = bucket

    def remove(self, member: Member) -> None:
        """Take out a member that is in this index."""
        members = member.bucket
        assert members is not None
        last = members.pop()
        if last is not member:
            members[member.position] = last
            last.position = member.position
        member.bucket = None
        self._size -= 1

    def least(self) -> tuple[float, list[Member]] | None:
        """The lowest load and the members that have it; ``None`` when the index is empty. The list must not be
        changed.
        """
        bucket = self._lowest
        while bucket is not None and not bucket.members:
            bucket = bucket.above
        self._lowest = bucket
        return None if bucket is None else (bucket.load, bucket.members)

    def _insert(self, load: float) -> _Bucket[Member]:
        if len(self._buckets) > 2 * self._size + SPARE_BUCKETS:
            self._drop_empty()
        buckets = self._buckets
        low, high = 0, len(buckets)
        while low < high:
            middle = (low + high) // 2
            if buckets[middle].load < load:
                low = middle + 1
            else:
                high = middle
        bucket: _Bucket[Member] = _Bucket(load)
        if low < len(buckets):
            bucket.above = buckets[low]
        if low:
            buckets[low - 1].above = bucket
        buckets.insert(low, bucket)
        self._by_load[load] = bucket
        return bucket

    def _drop_empty(self) -> None:
        self._buckets = kept = [bucket for bucket in self._buckets if bucket.members]
        self._by_load = {bucket.load: bucket for bucket in kept}
        above: _Bucket[Member] | None = None
        for bucket in reversed(kept):
            bucket.above = above
            above = bucket
        self._lowest = above
