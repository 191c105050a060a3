"""How often the configuration was read again while it was in use, and how it went."""

from __future__ import annotations

from collections import Counter
from typing import Literal, NamedTuple

from slipstream.telemetry.metric import Samples

__all__ = ["RESULTS", "Reload", "Reloads"]

Result = Literal["applied", "refused"]
RESULTS: tuple[Result, ...] = ("applied", "refused")


class Reload(NamedTuple):
    """One attempt. ``sentences`` are what changed, or, of a refused one, what is wrong. ``at`` is in seconds on the
    fleet's clock.
    """

    result: Result
    sentences: tuple[str, ...]
    at: float


class Reloads:
    """Counts attempts by result, and keeps the last; ``None`` before the first."""

    def __init__(self) -> None:
        self.counts: Counter[Result] = Counter(dict.fromkeys(RESULTS, 0))
        self.last: Reload | None = None

    def samples(self) -> Samples:
        """How often each result came, for the metrics page."""
        return {(result,): count for result, count in self.counts.items()}

    def add(self, reload: Reload) -> None:
        """Another attempt was made."""
        self.counts[reload.result] += 1
        self.last = reload
