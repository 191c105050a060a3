"""The nodes as a decision looks them up: in groups of replicas, each with its nodes by load and what closes the others.

It is kept up to date node by node, so that a decision reads a few groups, however many nodes there are.
"""

from __future__ import annotations

from collections import Counter

from slipstream.core.load_index import LoadIndex
from slipstream.core.node import Speculator
from slipstream.core.node_state import NodeState, ReplicaGroup, reason_closed
from slipstream.core.reason import Reason
from slipstream.core.request import Pool

__all__ = ["RoutingIndex"]

STALE_PENALTY = 1_000.0
"""Added to the load of a standard node whose telemetry is stale: it is used after every fresh one, by our ledger
alone.
"""


class RoutingIndex:
    """Groups of nodes that serve the same models in the same way."""

    def __init__(self) -> None:
        self._groups: dict[tuple[Pool, tuple[str, ...], Speculator | None, str | None], ReplicaGroup] = {}
        self._serving: dict[str, tuple[tuple[ReplicaGroup, ...], tuple[ReplicaGroup, ...]]] = {}

    def serving(self, model: str) -> tuple[tuple[ReplicaGroup, ...], tuple[ReplicaGroup, ...]] | None:
        """The speculative and the standard groups whose nodes serve ``model`` (empty: any); ``None`` when no node
        does.
        """
        found = self._serving.get(model)
        if found is None:
            groups = [
                group for group in self._groups.values() if (not model or model in group.models) and group.members
            ]
            if not groups:
                return None
            found = (
                tuple(group for group in groups if group.pool is Pool.SPECULATIVE),
                tuple(group for group in groups if group.pool is Pool.STANDARD),
            )
            self._serving[model] = found
        return found

    def join(self, node: NodeState) -> None:
        """Take a node into the group that its pool, models, speculator and engine put it in."""
        key = (node.pool, node.models, node.speculator, node.engine)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = ReplicaGroup(*key)
        group.members.add(node)
        _count(group.closed, node.closed, 1)
        node.group = group
        self._serving.clear()

    def leave(self, node: NodeState) -> None:
        """Take a node out of its group, if it is in one: before any of these change, or as it leaves the fleet."""
        group = node.group
        if group is None:
            return
        if node.index is not None:
            node.index.remove(node)
            node.index = None
        group.members.discard(node)
        _count(group.closed, node.closed, -1)
        node.group = None
        if not group.members:
            del self._groups[(group.pool, group.models, group.speculator, group.engine)]
        self._serving.clear()

    def update(self, node: NodeState, occupancy: int) -> None:
        """Put a node where its state and its occupancy belong."""
        group = node.group
        if group is None:
            return
        full = node.refusing or occupancy >= node.limit
        closed = reason_closed(
            node.pool,
            healthy=node.healthy and not node.ejected,
            draining=node.draining,
            full=full,
            speculating=node.speculator is not None,
            fresh=node.fresh,
            saturated=node.saturated,
        )
        if closed is not node.closed:
            _count(group.closed, node.closed, -1)
            _count(group.closed, closed, 1)
            node.closed = closed
        index: LoadIndex[NodeState] | None = None
        load = node.load
        if full or not node.healthy or node.ejected or node.draining:
            pass
        elif node.pool is Pool.STANDARD:
            index, load = group.open, occupancy / node.full_at + (0.0 if node.fresh else STALE_PENALTY)
        elif closed is None:
            index, load = group.open, occupancy / node.ceiling
        else:
            index, load = group.spare, occupancy / node.full_at
        if index is node.index and load == node.load:
            return  # a report that changes nothing leaves it where it is among its equals
        if node.index is not None:
            node.index.remove(node)
        node.index, node.load = index, load
        if index is not None:
            index.add(node, load)


def _count(closed: Counter[Reason], reason: Reason | None, by: int) -> None:
    if reason is not None:
        closed[reason] += by
