"""What we ourselves have in flight on one node: exact, at once, and with enough memory to judge a late report."""

from __future__ import annotations

__all__ = ["Ledger"]


class _Share:
    """One category's sequences, and their seconds until ``since``, the last change."""

    __slots__ = ("seconds", "sequences", "since")

    def __init__(self, now: float) -> None:
        self.sequences = 0
        self.seconds = 0.0
        self.since = now

    def change(self, sequences: int, now: float) -> None:
        """There are so many from now on."""
        elapsed = now - self.since
        if elapsed > 0.0:
            self.seconds += self.sequences * elapsed
        self.since = now
        self.sequences = sequences


class Ledger:
    """Sequences that this gateway has on one node.

    ``sequences`` is exact at every moment, and ``admitted`` counts all that there ever were. ``peak_since`` answers for
    the past, because an engine's report describes some moment between asking and receiving. ``sequence_seconds`` is the
    sum of their time until the last change, from which mean occupancies follow. ``take_category_seconds`` tells them by
    category, for engines whose responses say nothing of speculation: a window's counters are attributed by these
    shares.
    """

    __slots__ = ("_changed_at", "_past", "_shares", "admitted", "sequence_seconds", "sequences")

    def __init__(self) -> None:
        self.sequences = 0
        self.admitted = 0
        self.sequence_seconds = 0.0
        # (moment until which the value held, value); later entries are always lower, so the list is no longer than the
        # highest value and its first entry after a moment is the maximum since then.
        self._past: list[tuple[float, int]] = []
        self._shares: dict[str, _Share] = {}
        self._changed_at = 0.0

    def admit(self, sequences: int, category: str, now: float) -> None:
        """Book ``sequences`` (at least 1) that are about to be sent."""
        share = self._shares.get(category)
        if share is None:
            share = self._shares[category] = _Share(now)
        share.change(share.sequences + sequences, now)
        self.admitted += sequences
        self._set(self.sequences + sequences, now)

    def release(self, sequences: int, category: str, now: float) -> None:
        """Take back what ``admit`` booked. Raises ``RuntimeError`` when more is released than was booked: that is our
        bug.
        """
        share = self._shares.get(category)
        if share is None or share.sequences < sequences:
            raise RuntimeError(f"released {sequences} sequences of {category!r} more than were in flight")
        share.change(share.sequences - sequences, now)
        self._set(self.sequences - sequences, now)

    def peak_since(self, moment: float) -> int:
        """The most sequences in flight at any time from ``moment`` until now."""
        past, over = self._past, 0
        while over < len(past) and past[over][0] <= moment:
            over += 1
        del past[:over]
        return max(past[0][1], self.sequences) if past else self.sequences

    def take_category_seconds(self, now: float) -> dict[str, float]:
        """Sequence-seconds by category since the last call."""
        taken: dict[str, float] = {}
        for category, share in self._shares.items():
            share.change(share.sequences, now)
            if share.seconds:
                taken[category] = share.seconds
                share.seconds = 0.0
        return taken

    def _set(self, sequences: int, now: float) -> None:
        past, before = self._past, self.sequences
        elapsed = now - self._changed_at
        self._changed_at = now
        if elapsed > 0.0:
            self.sequence_seconds += before * elapsed
        while past and past[-1][1] <= before:
            past.pop()
        past.append((now, before))
        self.sequences = sequences
