"""Why a request went where it went, or why a node did not get it."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Reason"]


class Reason(StrEnum):
    """One code a decision. docs/reference/reasons.md explains each for operators."""

    SPECULATIVE = "speculative"
    """Every condition holds: to a speculative node."""
    NO_SPECULATOR = "no_speculator"
    """No node of the speculative pool has an active speculator for this model."""
    SATURATED = "saturated"
    """Every speculative node that would do is at its ceiling."""
    BELOW_FLOOR = "below_floor"
    """Acceptance of this category is too low."""
    BELOW_GAIN = "below_gain"
    """Acceptance is high enough, but at the node's occupancy the predicted gain is not."""
    SHORT_OUTPUT = "short_output"
    """Too few tokens to gain anything."""
    BULK = "bulk"
    """Nobody waits: throughput counts, and speculation costs throughput."""
    REJECTED_FEATURE = "rejected_feature"
    """The speculative engine refuses a field of this request."""
    WRONG_MODEL = "wrong_model"
    """The node does not serve this model."""
    UNHEALTHY = "unhealthy"
    """The node can not be reached."""
    STALE = "stale"
    """The node's last report is too old to know how full it is."""
    DRAINING = "draining"
    """The node finishes what it has and takes nothing new."""
    FULL = "full"
    """The node is at its limit, or said so itself."""
    TRIED = "tried"
    """An earlier attempt of the same request failed on the node."""
    PROBE = "probe"
    """Below the floor alone, sent anyway to keep acceptance measured."""
    HOLDBACK = "holdback"
    """Eligible, sent to a standard node at random, so that the effect of speculation can be measured."""
    FALLBACK = "fallback"
    """No standard node is usable: to any node that is."""
    PINNED = "pinned"
    """An operator fixed the pool."""
    AFFINITY = "affinity"
    """The node holds this prefix or session in its cache."""
    IN_TURN = "in_turn"
    """Nodes are taken in turn, whatever the request."""
    OBSERVE = "observe"
    """Decided and recorded, steered by least load only."""
