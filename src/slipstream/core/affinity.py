"""Which node holds the KV cache of a session or a prompt's beginning, as far as this gateway can know."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from slipstream.core.node_state import NodeState, ReplicaGroup
from slipstream.core.recent import RecentMap
from slipstream.core.request import Pool

__all__ = ["DEFAULT_SLACK", "ENTRIES", "Affinity", "Match"]

ENTRIES = 32_768
"""Keys remembered for each pool. A request has one for its session and one for each kilobyte of its beginning."""

DEFAULT_SLACK = 2
FULLER_SHARE = 0.2
"""A fifth of what it works on: a node that is a quarter fuller than the least loaded one is not much fuller."""


class Match(StrEnum):
    """What came of looking for the node that holds a request's cache. Metrics label requests by it."""

    HELD = "held"
    """The node that holds it took the request."""
    FULLER = "fuller"
    """It was much fuller than the least loaded one, which took the request."""
    CLOSED = "closed"
    """It could take no request: saturated, full, stale, draining, unhealthy or gone."""
    UNKNOWN = "unknown"
    """No node of the pool is known to hold it."""


class Affinity:
    """Remembers, by pool, the node that last got a key.

    Keys are numbers that stand for a session or a prefix of a prompt, of one model: no text is kept. A request's keys
    come with the most telling first. A pool is remembered apart from the other, because a conversation that comes back
    to a pool still finds there what it left behind.
    """

    __slots__ = ("_speculative", "_standard", "matches")

    def __init__(self, entries: int = ENTRIES) -> None:
        self._speculative: RecentMap[int, NodeState] = RecentMap(entries)
        self._standard: RecentMap[int, NodeState] = RecentMap(entries)
        self.matches: dict[Match, int] = dict.fromkeys(Match, 0)
        """Requests that had any key, by what came of it, since the start."""

    def holder(self, keys: tuple[int, ...], pool: Pool) -> NodeState | None:
        """The node of ``pool`` that last got the most telling key that is known; ``None`` when none is."""
        known = self._speculative if pool is Pool.SPECULATIVE else self._standard
        for key in keys:
            node = known.get(key)
            if node is not None:
                return node
        return None

    def choose(
        self,
        keys: tuple[int, ...],
        least: NodeState,
        groups: tuple[ReplicaGroup, ...],
        sequences: int,
        avoid: Collection[str],
        slack: int = DEFAULT_SLACK,
    ) -> NodeState:
        """The holder of ``keys`` if it may take the request, else ``least``: the least loaded node of ``groups``.

        ``slack``: sequences by which the holder may be fuller than the least loaded node; a quarter of the latter's
        load is always allowed.
        """
        holder = self.holder(keys, least.pool)
        if holder is None:
            match, chosen = Match.UNKNOWN, least
        elif holder is least:
            match, chosen = Match.HELD, least
        elif (
            holder.closed is not None
            or holder.group not in groups
            or not holder.has_room(sequences)
            or holder.name in avoid
        ):
            match, chosen = Match.CLOSED, least
        elif _much_fuller(holder, least, slack):
            match, chosen = Match.FULLER, least
        else:
            match, chosen = Match.HELD, holder
        self.matches[match] += 1
        return chosen

    def remember(self, keys: tuple[int, ...], node: NodeState) -> None:
        """``node`` gets a request with these keys, and so will hold its cache."""
        known = self._speculative if node.pool is Pool.SPECULATIVE else self._standard
        for key in keys:
            known.put(key, node)


def _much_fuller(holder: NodeState, least: NodeState, slack: int) -> bool:
    """Judged in sequences of the holder, by which it is above an equal share of its own room."""
    room = holder.ceiling if holder.pool is Pool.SPECULATIVE else holder.limit
    excess = (holder.load - least.load) * room
    return excess > max(slack, FULLER_SHARE * holder.occupancy)
