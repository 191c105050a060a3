"""The policies there are."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["PolicyKind"]


class PolicyKind(StrEnum):
    """Who decides where a request goes."""

    THRESHOLD = "threshold"
    """Conditions on the request and on its node."""
    PREDICTIVE = "predictive"
    """What profiles foretell of the nodes."""
    ROUND_ROBIN = "round-robin"
    """Nobody: nodes are taken in turn."""
