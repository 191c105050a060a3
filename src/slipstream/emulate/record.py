"""What the node has seen, for tests to look at."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Record", "Seen"]

KEPT = 1000


@dataclass(slots=True)
class Seen:
    """One request that the engine works for. Times are seconds since the node's start; ``None`` = not yet, or unknown.

    ``outcome`` is ``completed``, ``aborted`` (the client left), ``died`` (a fault closed it) or ``refused`` (an error).
    """

    number: int
    at_s: float
    path: str
    headers: dict[str, str]
    category: str | None = None
    streamed: bool | None = None
    status: int | None = None
    outcome: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    ended_at_s: float | None = None


@dataclass
class Record:
    """Counts since the start, and the latest requests, oldest first."""

    requests: deque[Seen] = field(default_factory=lambda: deque(maxlen=KEPT))
    received: int = 0
    in_flight: int = 0
    peak_in_flight: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)

    def begin(self, at_s: float, path: str, headers: dict[str, str]) -> Seen:
        self.received += 1
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        seen = Seen(self.received, at_s, path, headers)
        self.requests.append(seen)
        return seen

    def end(self, seen: Seen, outcome: str, at_s: float) -> None:
        seen.outcome = outcome
        seen.ended_at_s = at_s
        self.in_flight -= 1
        self.outcomes[outcome] += 1

    def as_json(self) -> dict[str, Any]:
        return {
            "received": self.received,
            "in_flight": self.in_flight,
            "peak_in_flight": self.peak_in_flight,
            **{outcome: self.outcomes[outcome] for outcome in ("completed", "aborted", "died", "refused")},
            "requests": [asdict(seen) for seen in self.requests],
        }
