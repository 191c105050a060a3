"""How a simulated request ended, and why it went where it went, as numbers for columns."""

from __future__ import annotations

from enum import IntEnum

from slipstream.core.reason import Reason

__all__ = ["REASONS", "Fate"]

REASONS: tuple[Reason, ...] = tuple(Reason)
"""What the numbers in a run's ``reason`` stand for."""


class Fate(IntEnum):
    """How a request ended."""

    FINISHED = 0
    REFUSED = 1
    """No node had room, and the queue none either: shed at once."""
    EXPIRED = 2
    """It waited in the gateway's queue as long as it may."""
    UNFINISHED = 3
    """The run was over before it was."""
