"""How late this process's own event loop runs.

When it stalls, what is known of every node is old, and no node is to blame.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

__all__ = ["LoopLag"]

INTERVAL_S = 0.1
REMEMBERED = 50
"""Wakes looked back on: 5 seconds, so that a stall is still to be seen after it has passed."""


class LoopLag:
    """Notes by how much its own wake-ups are late. ``clock`` is monotonic seconds, by default the running loop's."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._late: deque[float] = deque(maxlen=REMEMBERED)

    @property
    def latest_s(self) -> float | None:
        """Lateness of the last wake-up in seconds; ``None`` before the first."""
        return self._late[-1] if self._late else None

    @property
    def worst_s(self) -> float | None:
        """The worst lateness of the last 5 seconds; ``None`` before the first wake-up."""
        return max(self._late, default=None)

    async def run(self) -> None:
        """Measure until cancelled."""
        clock = self._clock or asyncio.get_running_loop().time
        while True:
            due = clock() + INTERVAL_S
            await self._sleep(INTERVAL_S)
            self._late.append(max(0.0, clock() - due))
