"""How many sequences a node works on: our own, known exactly, plus foreign ones, inferred from its reports."""

from __future__ import annotations

from collections import deque

__all__ = ["REPORTS_REMEMBERED", "ForeignSequences", "foreign_sequences"]

REPORTS_REMEMBERED = 3


def foreign_sequences(reported: int, own_peak: int) -> int:
    """Sequences of other clients in one report: what can not have been ours.

    ``own_peak`` is the most we had in flight between asking (less the engine's gauge lag) and receiving the report.
    """
    return max(0, reported - own_peak)


class ForeignSequences:
    """The largest foreign count over the last three reports: one dip of a gauge does not open a full node."""

    __slots__ = ("_recent",)

    def __init__(self) -> None:
        self._recent: deque[int] = deque(maxlen=REPORTS_REMEMBERED)

    def report(self, reported: int, own_peak: int) -> None:
        """Take in one report."""
        self._recent.append(foreign_sequences(reported, own_peak))

    def forget(self) -> None:
        """The engine went away: what it reported before says nothing of what it does after."""
        self._recent.clear()

    @property
    def sequences(self) -> int:
        """Foreign sequences to count on; 0 before the first report."""
        most = 0
        for sequences in self._recent:
            most = max(most, sequences)
        return most
