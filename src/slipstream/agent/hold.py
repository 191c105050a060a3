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
        """A command of ``by``, who holds the agent from now on. Raises as `check`."""
        self.check(by, now)
        if by is not None:
            self._holder, self._until = by, now + HOLD_S

    def check(self, by: str | None, now: float) -> None:
        """Whether ``by`` may give a command. Nobody in particular (``None``, a person at a terminal) always may, and
        holds nothing. Raises `CommandRefused` when somebody else holds the agent.
        """
        holder = self.holder(now)
        if by is not None and holder is not None and holder != by:
            left_s = self._until - now
            raise CommandRefused(f"{holder} commands this node, and alone for another {left_s:.0f} s", "held")
