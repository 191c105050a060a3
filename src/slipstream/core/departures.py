"""Requests whose clients have left, and which their engine may still be working on."""

from __future__ import annotations

from collections import deque

__all__ = ["Departure", "Departures"]


class Departure:
    """Sequences that stay booked for a while after their client left.

    ``left_at``: when it did. ``due``: when the engine should have stopped at the latest. ``admitted``: how many
    sequences had ever been booked on the node when it left. ``outlasting``: the last report that could have confirmed
    it did not.
    """

    __slots__ = ("admitted", "category", "due", "left_at", "outlasting", "sequences")

    def __init__(self, sequences: int, category: str, left_at: float, due: float, admitted: int) -> None:
        self.sequences = sequences
        self.category = category
        self.left_at = left_at
        self.due = due
        self.admitted = admitted
        self.outlasting = False


class Departures:
    """The departures of one node, oldest first. Whoever takes one out releases it. Times are seconds.

    ``sequences`` are those of all departures together.
    """

    __slots__ = ("_waiting", "sequences")

    def __init__(self) -> None:
        self._waiting: deque[Departure] = deque()
        self.sequences = 0

    def add(self, departure: Departure) -> None:
        """A client has left."""
        self._waiting.append(departure)
        self.sequences += departure.sequences

    def take_due(self, now: float) -> list[Departure]:
        """Those that their engine has stopped by now."""
        taken: list[Departure] = []
        while self._waiting and self._waiting[0].due <= now:
            taken.append(self._take())
        return taken

    def take_confirmed(self, seen_at: float, reported: int, booked: int, admitted: int) -> list[Departure]:
        """Those that a report shows to be over: it counts fewer sequences than with them.

        ``seen_at``: all that happened to the engine before is in the report. ``reported`` sequences it counts, other
        clients' included. ``booked`` are ours now, departures included, and ``admitted`` how many there ever were.

        What was booked after a client left may not be in the report yet, so only what was booked before is expected in
        it; what has ended since then would only make the report higher.
        """
        taken: list[Departure] = []
        live = booked - self.sequences
        while self._waiting:
            oldest = self._waiting[0]
            surely_seen = max(0, live - (admitted - oldest.admitted))
            if oldest.left_at > seen_at or surely_seen + self.sequences - oldest.sequences < reported:
                break
            taken.append(self._take())
        for departure in self._waiting:
            departure.outlasting = departure.left_at <= seen_at
        return taken

    def _take(self) -> Departure:
        departure = self._waiting.popleft()
        self.sequences -= departure.sequences
        return departure
