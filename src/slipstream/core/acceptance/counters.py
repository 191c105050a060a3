"""Cumulative counters of a node, read as what happened between two readings."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from slipstream.core.node import SpeculativeCounters

__all__ = ["CounterDelta", "CounterWindow"]


@dataclass(frozen=True, slots=True)
class CounterDelta:
    """What a node did between two readings; the fields of the counters, never negative, ``None`` where not known.

    ``seconds`` is the time between the readings. After ``restarted`` everything counts from the engine's start.
    """

    seconds: float
    restarted: bool
    drafted: float | None
    accepted: float | None
    verify_steps: float | None
    generated_tokens: float | None
    accepted_per_position: tuple[float, ...] | None

    @property
    def decode_steps(self) -> float | None:
        """Steps of all sequences, proposing or not: each emits one token of its own beside the accepted ones.

        Too high by the requests that began, whose first tokens come from prefill. ``None`` where it can not be told.
        """
        if self.generated_tokens is None or self.accepted is None:
            return None
        return max(0.0, self.generated_tokens - self.accepted, self.verify_steps or 0.0)


class CounterWindow:
    """The last reading of one node's counters, and the difference to the next.

    A counter that went down tells that the engine was restarted: all its counters then count from 0. A counter missing
    from a reading keeps its last value, so that its next difference spans the gap.
    """

    __slots__ = ("_at", "_last", "_read", "_restarted")

    def __init__(self) -> None:
        self._at: float | None = None
        self._restarted = False
        """Whether it was, since the last difference: fresh counters stand at 0, which is none."""
        self._read: SpeculativeCounters | None = None
        self._last: dict[str | int, float] = {}  # by name, and by draft position

    def advance(self, counters: SpeculativeCounters, now: float) -> CounterDelta | None:
        """What happened since the reading before. ``None`` for the first reading, and when every counter stood still.

        Values that no counter can have (negative, not finite) are taken as missing. The same object again is no
        reading: where counters are read less often than load, they are told again until they are read anew.
        """
        if counters is self._read:
            return None
        self._read = counters
        reading = _plausible(counters)
        restarted = any(value < self._last.get(name, 0.0) for name, value in reading.items())
        self._restarted = self._restarted or restarted
        before = dict.fromkeys(self._last, 0.0) if restarted else self._last
        moved = {name: value - before[name] for name, value in reading.items() if name in before}
        before_at, self._at = self._at, now
        self._last = {**before, **reading}
        if before_at is None or not any(moved.values()):
            return None
        restarted, self._restarted = self._restarted, False
        positions = [moved.get(position) for position in range(len(counters.accepted_per_position))]
        return CounterDelta(
            seconds=now - before_at,
            restarted=restarted,
            drafted=moved.get("drafted"),
            accepted=moved.get("accepted"),
            verify_steps=moved.get("verify_steps"),
            generated_tokens=moved.get("generated_tokens"),
            accepted_per_position=tuple(value for value in positions if value is not None)
            if positions and None not in positions
            else None,
        )


def _plausible(counters: SpeculativeCounters) -> dict[str | int, float]:
    values: dict[str | int, float | None] = {
        "drafted": counters.drafted,
        "accepted": counters.accepted,
        "verify_steps": counters.verify_steps,
        "generated_tokens": counters.generated_tokens,
        **dict(enumerate(counters.accepted_per_position)),
    }
    return {name: value for name, value in values.items() if value is not None and isfinite(value) and value >= 0.0}
