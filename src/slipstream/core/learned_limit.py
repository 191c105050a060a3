"""How many sequences a node takes, as its refusals and its own queue show it where nobody has said so.

docs/decisions/0012 says why it is done so.
"""

from __future__ import annotations

from slipstream.core.node import NodeReport

__all__ = ["LONGEST_RETRY_AFTER_S", "LearnedLimit"]

LONGEST_RETRY_AFTER_S = 30.0
"""A node that asks for more is tried again after so long."""
FIRST_BACK_OFF_S = 0.25
LONGEST_BACK_OFF_S = 5.0
RAISE_AFTER_S = 5.0
"""Seconds after its last refusal for which a node is not given more than it took then."""


class LearnedLimit:
    """What one node has taught. Times are seconds of one monotonic clock, counts are sequences.

    ``limit`` is what it worked on when it last refused a request, raised one by one as it takes more; ``None`` = it has
    refused nothing. ``queues_from`` is what it runs while it lets others wait inside; ``None`` = it was not seen to.
    ``retry_at`` is when one that refused may be asked again.
    """

    __slots__ = ("_idle_refusals", "_raise_at", "_refused_at", "limit", "queues_from", "retry_at")

    def __init__(self) -> None:
        self.limit: int | None = None
        self.queues_from: int | None = None
        self.retry_at = 0.0
        self._refused_at = 0.0
        self._raise_at = 0.0
        self._idle_refusals = 0
        """Refusals in a row of a node that had nothing to do: it is on trial, one request at a time."""

    def refused(self, occupancy: int, sent_at: float, retry_after_s: float | None, now: float) -> None:
        """It refused a request sent at ``sent_at`` while it worked on ``occupancy`` others."""
        further = self.limit is None or sent_at >= self._refused_at
        if occupancy == 0:
            self._idle_refusals += further or not self._idle_refusals
        if self.limit is None or occupancy < self.limit:
            self.limit = max(1, occupancy)
        if retry_after_s is not None:
            retry_at = now + min(retry_after_s, LONGEST_RETRY_AFTER_S)
        elif self._idle_refusals > 1:
            retry_at = now + min(FIRST_BACK_OFF_S * 2.0 ** min(self._idle_refusals - 2, 10), LONGEST_BACK_OFF_S)
        else:
            retry_at = now
        self.retry_at = max(self.retry_at, retry_at)
        self._refused_at = now
        self._raise_at = max(now + RAISE_AFTER_S, self.retry_at)

    def took(self, occupancy: int, sent_at: float, now: float) -> bool:
        """It answers a request sent at ``sent_at``, which made it ``occupancy``; whether that shows more room."""
        if self.limit is None or sent_at < self._refused_at:
            return False
        if self._idle_refusals:  # it was out of order rather than full, so that is no limit
            self.limit = None
            self._idle_refusals = 0
            return True
        if occupancy < self.limit or now < self._raise_at:
            return False
        self.limit += 1
        return True

    def reported(self, report: NodeReport, asked_at: float, *, known: bool) -> None:
        """Its report came. ``known``: its limit is configured or reported."""
        running, waiting = report.running, report.waiting
        if known:
            self.queues_from = None
        elif running is not None and waiting is not None:
            if waiting > 0:
                self.queues_from = max(1, running)
            elif self.queues_from is not None and running >= self.queues_from:
                self.queues_from = running + 1
        sequences = report.sequences
        if self.limit is not None and sequences is not None and sequences > self.limit and asked_at > self._refused_at:
            self.limit = sequences

    def forget(self) -> None:
        """The node went away: what it was says nothing of what it will be."""
        self.limit = self.queues_from = None
        self.retry_at = 0.0
        self._idle_refusals = 0
