"""Who commands the agent: of several gateways, one at a time."""

from __future__ import annotations

from slipstream.agent.errors import CommandRefused

__all__ = ["HOLD_S", "Hold"]

HOLD_S = 60.0
"""How long whoever gave the last command is the only one who may give more. Each renews it."""


class Hold:
    """The one who gave the last command, for a while. Times are seconds, monotonic."""

    def __init__(self) -> None:
        self._holder: str | None = None
        self._until = 0.0

    def holder(self, now: float) -> str | None:
        """Who holds the agent now; ``None`` = nobody."""
        return self._holder if now < self._until else None

    def take(self, by: str | None, now: float) -> None:
        """A command of ``by``. Nobody in particular (``None``, a person at a terminal) may always give one, and holds
        nothing. Raises `CommandRefused` when somebody else holds the agent.
        """
        if by is None:
            return
        holder = self.holder(now)
        if holder is not None and holder != by:
            left_s = self._until - now
            raise CommandRefused(f"{holder} commands this node, for {left_s:.0f} s after its last command", "held")
        self._holder, self._until = by, now + HOLD_S
