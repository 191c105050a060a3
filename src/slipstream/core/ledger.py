"""What we ourselves have in flight on one node: exact, at once, and with enough memory to judge a late report."""

from __future__ import annotations

__all__ = ["Ledger"]


class Ledger:
    """Sequences that this gateway has on one node.

    ``sequences`` is exact at every moment, and ``admitted`` counts all that there ever were. ``peak_since`` answers for
    the past, because an engine's report describes some moment between asking and receiving. ``sequence_seconds`` is the
    sum of their time until the last change, from which mean occupancies follow. ``category_seconds``
    collects sequence-seconds by category, for engines whose responses say nothing of speculation: a window's counters
    are attributed by these shares.
    """

    __slots__ = ("_categories", "_integrated_at", "_past", "_seconds", "admitted", "sequence_seconds", "sequences")

    def __init__(self) -> None:
        self.sequences = 0
        self.admitted = 0
        self.sequence_seconds = 0.0
        # (moment until which the value held, value); later entries are always lower, so the list is no longer than the
        # highest value and its first entry after a moment is the maximum since then.
        self._past: list[tuple[float, int]] = []
        self._categories: dict[str, int] = {}
        self._seconds: dict[str, float] = {}
        self._integrated_at = 0.0

    def admit(self, sequences: int, category: str, now: float) -> None:
        """Book ``sequences`` (at least 1) that are about to be sent."""
        self._integrate(now)
        self._categories[category] = self._categories.get(category, 0) + sequences
        self.admitted += sequences
        self._set(self.sequences + sequences, now)

    def release(self, sequences: int, category: str, now: float) -> None:
        """Take back what ``admit`` booked. Raises ``RuntimeError`` when more is released than was booked: that is our
        bug.
        """
        categories = self._categories
        left = categories.get(category, 0) - sequences
        if left < 0:
            raise RuntimeError(f"released {sequences} sequences of {category!r} more than were in flight")
        self._integrate(now)
        categories[category] = left
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
        self._integrate(now)
        taken, self._seconds = self._seconds, {}
        return taken

    def _set(self, sequences: int, now: float) -> None:
        past, before = self._past, self.sequences
        while past and past[-1][1] <= before:
            past.pop()
        past.append((now, before))
        self.sequences = sequences

    def _integrate(self, now: float) -> None:
        elapsed = now - self._integrated_at
        self._integrated_at = now
        if elapsed > 0 and self.sequences:
            self.sequence_seconds += self.sequences * elapsed
            seconds = self._seconds
            for category, sequences in self._categories.items():
                if sequences:
                    seconds[category] = seconds.get(category, 0.0) + sequences * elapsed
