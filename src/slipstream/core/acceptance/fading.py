"""Exponential forgetting that costs a sum nothing until it is added to.

Instead of making old values lighter, new ones are made heavier (forward decay; Cormode, Shkapenyuk, Srivastava and Xu,
"Forward Decay", ICDE 2009, section III). Ratios of such sums need no correction, and any number of sums share a clock.
"""

from __future__ import annotations

from math import exp, log

__all__ = ["FadingClock"]

HALF_LIVES = 60.0
"""From here on weights are made small again, long before a float could overflow."""


class FadingClock:
    """Tells what an event of now weighs. ``half_life`` and times in seconds."""

    __slots__ = ("_half_life", "_landmark", "_longest", "_rate")

    def __init__(self, half_life: float, now: float = 0.0) -> None:
        self._half_life = half_life
        self._rate = log(2.0) / half_life
        self._longest = HALF_LIVES * half_life
        self._landmark = now

    def configure(self, half_life: float) -> None:
        """Forget by this half-life from the next ``rebase`` on, which is overdue."""
        if half_life != self._half_life:
            self._half_life = half_life
            self._longest = float("-inf")

    def weight(self, now: float) -> float:
        """1 at the landmark, twice that a half-life later. Not to be asked while ``rebase`` is overdue."""
        return exp((now - self._landmark) * self._rate)

    def overdue(self, now: float) -> bool:
        """Whether weights have grown so large that ``rebase`` is due."""
        return now - self._landmark > self._longest

    def rebase(self, now: float) -> float:
        """Make ``now`` the landmark. Returns what every sum kept so far must be multiplied by."""
        factor = exp((self._landmark - now) * self._rate)
        self._landmark = now
        self._rate = log(2.0) / self._half_life
        self._longest = HALF_LIVES * self._half_life
        return factor
