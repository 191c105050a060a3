"""Keeping a category measured that is routed away: otherwise its verdict could never change."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Probing", "ProbingSettings"]


@dataclass(frozen=True, slots=True)
class ProbingSettings:
    """``share``: of the requests held below the floor, 0..1; 0 probes by time alone. ``interval_s``: the longest time
    between two probes while requests come; infinity probes by share alone.
    """

    share: float = 0.02
    interval_s: float = 300.0


class _Category:
    __slots__ = ("in_flight", "last_probe_at", "requests_since")

    def __init__(self, now: float) -> None:
        self.in_flight = 0
        self.last_probe_at = now
        self.requests_since = 0


class Probing:
    """Which request below the floor is sent to a speculative node anyway.

    Per (model, category): every ``1/share``-th request, or the first after ``interval_s`` without a probe, and never
    more than one in flight. Counting instead of drawing keeps the promise exactly, also for a category with few
    requests.
    """

    def __init__(self, settings: ProbingSettings) -> None:
        self._settings = settings
        self._categories: dict[tuple[str, str], _Category] = {}

    def configure(self, settings: ProbingSettings) -> None:
        """Probe by these settings from now on; what is counted and in flight stays."""
        self._settings = settings

    def due(self, model: str, category: str, now: float) -> bool:
        """Count one request that failed the acceptance condition alone, and say whether it should be a probe."""
        state = self._categories.get((model, category))
        if state is None:
            state = self._categories[(model, category)] = _Category(now)
        state.requests_since += 1
        if state.in_flight:
            return False
        if now - state.last_probe_at >= self._settings.interval_s:
            return True
        # The tolerance keeps 1/0.02 at fifty requests in floating point.
        return state.requests_since * self._settings.share >= 1.0 - 1e-9

    def started(self, model: str, category: str, now: float) -> None:
        """A probe found a node."""
        state = self._categories[(model, category)]
        state.in_flight += 1
        state.requests_since = 0
        state.last_probe_at = now

    def finished(self, model: str, category: str) -> None:
        """A probe ended, whatever came of it."""
        self._categories[(model, category)].in_flight -= 1
