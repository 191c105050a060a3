"""How long to wait before a dead engine is started again."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Backoff"]


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off. All figures are seconds.

    The first wait is ``initial_s``; each further death doubles it, up to ``limit_s``. An engine that was ready for at
    least ``reset_after_s`` before it died starts over.
    """

    initial_s: float = 0.5
    limit_s: float = 30.0
    reset_after_s: float = 60.0

    def next_wait(self, previous_s: float | None, ready_for_s: float) -> float:
        """The wait after a death. ``previous_s`` is the wait before it, ``None`` at the first death.

        ``ready_for_s`` is how long the node served before it died, 0 when it never did.
        """
        if previous_s is None or ready_for_s >= self.reset_after_s:
            return self.initial_s
        return min(2 * previous_s, self.limit_s)
