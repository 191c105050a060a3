"""Taking a node out whose requests fail although its metrics answer, and trying it again carefully.

It judges by requests alone: connections that fail or break, and the statuses 500, 502 and 504. What is the client's
fault (4xx) counts as an answer; a node that is full (429, 503) and a client that left count as nothing.
"""

from __future__ import annotations

from enum import StrEnum

from slipstream.core.outcome import Ending, Outcome

__all__ = ["Circuit", "CircuitState", "verdict"]

FAILURES = 3
"""Failures it takes to open."""
REQUESTS = 20
"""Requests looked at together; then the count starts anew, so that an old success hides no failure."""
WINDOW_S = 30.0
"""Seconds after a first failure during which others are counted with it."""
FIRST_BACK_OFF_S = 1.0
LONGEST_BACK_OFF_S = 30.0
CALM_S = 60.0
"""Seconds for which a circuit must have been closed before the next back-off is the first again."""

FAILED_STATUSES = frozenset({500, 502, 504})


class CircuitState(StrEnum):
    """``OPEN``: no request. ``HALF_OPEN``: one at a time. ``CLOSED``: as many as fit."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


def verdict(outcome: Outcome) -> bool | None:
    """Whether an attempt shows that its node works; ``None`` = it says neither."""
    ending = outcome.ending
    if ending is Ending.COMPLETED:
        return True
    if ending is Ending.REFUSED:
        return outcome.status not in FAILED_STATUSES
    return False if ending is Ending.UNREACHABLE or ending is Ending.UPSTREAM_LOST else None


class Circuit:
    """One node's circuit. Times are seconds of one monotonic clock.

    Closed, it opens on three failures within 30 seconds if they are at least half of the requests since the first of
    them. Open, it is half-open once its back-off is over: 1 s, and twice as long each time it opens again within a
    minute of closing, up to 30 s. Half-open, one request at a time is its trial: a success closes it, as does a stream
    that has lasted for some seconds; a failure or no answer opens it again; one that says neither is followed by
    another.
    """

    __slots__ = (
        "_back_off_s",
        "_closed_at",
        "_failures",
        "_requests",
        "_since",
        "ejections",
        "retry_at",
        "state",
        "trial",
        "watching",
    )

    def __init__(self) -> None:
        self.state = CircuitState.CLOSED
        self.ejections = 0
        """How often it opened after having been closed."""
        self.retry_at = 0.0
        """When it may be half-open, while it is open."""
        self.trial: object | None = None
        """The attempt that is on trial; ``None`` when there is none."""
        self.watching = False
        """Whether successes count too: since a failure, and until it is closed again."""
        self._failures = 0
        self._requests = 0
        self._since = 0.0
        self._back_off_s = 0.0
        self._closed_at = -CALM_S

    def count(self, now: float, *, failed: bool) -> bool:
        """Take in one request's verdict while closed; returns whether it ought to open."""
        if self.state is not CircuitState.CLOSED:
            return False  # sent before it opened
        if self._requests >= REQUESTS or now - self._since > WINDOW_S:
            self._forget()
        if not failed and not self._failures:
            return False
        if not self._failures:
            self._since = now
            self.watching = True
        self._requests += 1
        self._failures += failed
        return failed and self._failures >= FAILURES and 2 * self._failures >= self._requests

    def open(self, now: float) -> None:
        """No request until the back-off is over."""
        if self.state is CircuitState.CLOSED:
            self.ejections += 1
            if now - self._closed_at >= CALM_S:
                self._back_off_s = 0.0
        self._back_off_s = min(2.0 * self._back_off_s or FIRST_BACK_OFF_S, LONGEST_BACK_OFF_S)
        self.retry_at = now + self._back_off_s
        self.state = CircuitState.OPEN
        self.trial = None
        self._forget()
        self.watching = True

    def half_open(self) -> None:
        """The back-off is over: a trial may begin."""
        self.state = CircuitState.HALF_OPEN

    def close(self, now: float) -> None:
        """The node works again."""
        self._closed_at = now
        self.state = CircuitState.CLOSED
        self.trial = None
        self._forget()

    def tried(self, outcome: Outcome, now: float) -> None:
        """The trial ended."""
        answer = verdict(outcome)
        self.trial = None
        if answer:
            self.close(now)
        elif answer is False or outcome.ending is Ending.TIMED_OUT:
            self.open(now)

    def _forget(self) -> None:
        self._failures = self._requests = 0
        self.watching = False
