"""Choosing among nodes: the least loaded, the least used, any that will do; and the error when none will."""

from __future__ import annotations

from collections.abc import Collection

from slipstream.core.errors import AllFull, NothingUsable, UnknownModel
from slipstream.core.load_index import LoadIndex
from slipstream.core.node_state import NodeState, ReplicaGroup
from slipstream.core.reason import Reason

__all__ = [
    "any_usable",
    "closed_because",
    "fallback_node",
    "least_loaded",
    "least_used",
    "nobody_serves",
    "nothing_left",
]


def least_loaded(
    groups: tuple[ReplicaGroup, ...], sequences: int, draw: float, avoid: Collection[str] = ()
) -> NodeState | None:
    """The least loaded open node with room for ``sequences``, ties by ``draw``; ``None`` when there is none."""
    if len(groups) == 1:
        least = groups[0].open.least()
        if least is None:
            return None
        tied = least[1]
    else:
        tied = _tied([group.open for group in groups])
        if not tied:
            return None
    chosen = tied[int(draw * len(tied))]
    if chosen.has_room(sequences) and (not avoid or chosen.name not in avoid):
        return chosen
    # Rare: a request of several sequences, or a second try. Only then are the others looked at.
    return _pick([node for group in groups for node in group.open if node.has_room(sequences)], draw, avoid)


def fallback_node(
    groups: tuple[ReplicaGroup, ...], sequences: int, draw: float, avoid: Collection[str] = ()
) -> NodeState | None:
    """Any usable node with room under its own limit, ceiling or not: open ones first, then spare ones."""
    for indexes in ([group.open for group in groups], [group.spare for group in groups]):
        tied = _tied(indexes)
        if not tied:
            continue
        chosen: NodeState | None = tied[int(draw * len(tied))]
        if chosen is None or not chosen.fits(sequences) or chosen.name in avoid:
            chosen = _pick([node for index in indexes for node in index if node.fits(sequences)], draw, avoid)
        if chosen is not None:
            return chosen
    return None


def least_used(
    groups: tuple[ReplicaGroup, ...], sequences: int, draw: float, avoid: Collection[str] = ()
) -> NodeState | None:
    """The usable node with the least of its limit in use, whatever its pool, ceiling or speculator; those of which
    nothing recent is known after all others.
    """
    lowest = (True, float("inf"))
    tied: list[NodeState] = []
    for group in groups:
        for index in (group.open, group.spare):
            least = index.least()
            if least is None:
                continue
            use = _use(least[1][0])
            if use < lowest:
                lowest, tied = use, least[1]
            elif use == lowest:
                tied = tied + least[1]
    if not tied:
        return None
    chosen = tied[int(draw * len(tied))]
    if chosen.fits(sequences) and chosen.name not in avoid:
        return chosen
    nodes = [
        node
        for group in groups
        for index in (group.open, group.spare)
        for node in index
        if node.fits(sequences) and node.name not in avoid
    ]
    return min(nodes, key=_use) if nodes else None


def _use(node: NodeState) -> tuple[bool, float]:
    return not node.fresh, node.occupancy / node.full_at


def _tied(indexes: list[LoadIndex[NodeState]]) -> list[NodeState]:
    lowest = float("inf")
    tied: list[NodeState] = []
    for index in indexes:
        least = index.least()
        if least is None:
            continue
        load, members = least
        if load < lowest:
            lowest, tied = load, members
        elif load == lowest:
            tied = tied + members
    return tied


def _pick(nodes: list[NodeState], draw: float, avoid: Collection[str]) -> NodeState | None:
    nodes = [node for node in nodes if node.name not in avoid]
    if not nodes:
        return None
    lowest = min(node.load for node in nodes)
    tied = [node for node in nodes if node.load == lowest]
    return tied[int(draw * len(tied))]


_CLOSED_FIRST = (Reason.SATURATED, Reason.STALE, Reason.DRAINING, Reason.FULL, Reason.UNHEALTHY)


def any_usable(groups: tuple[ReplicaGroup, ...]) -> bool:
    """Whether any node of these groups could take a request at all."""
    return any(len(group.open) or len(group.spare) for group in groups)


def closed_because(groups: tuple[ReplicaGroup, ...], sequences: int = 1, avoid: Collection[str] = ()) -> Reason:
    """Why none of these speculative groups has a node for ``sequences``: that it is one of ``avoid``, tried already;
    else the first of saturated, stale, draining, full, unhealthy that holds for any of their nodes.
    """
    if avoid and any(node.name in avoid and node.has_room(sequences) for group in groups for node in group.open):
        return Reason.TRIED
    for reason in _CLOSED_FIRST:
        for group in groups:
            if group.closed[reason]:
                return reason
    return Reason.SATURATED  # open, but without room for all sequences of this request under the ceiling


def nobody_serves(model: str, unheard: int) -> UnknownModel | NothingUsable:
    """The error for a model that no node is known to serve: for good, or because some have not said what they serve."""
    if unheard:
        late = (
            "1 node has not said yet what it serves"
            if unheard == 1
            else f"{unheard} nodes have not said what they serve"
        )
        return NothingUsable(f"no node is known to serve the model {model!r}, and {late}", retry_after_s=5)
    return UnknownModel(f"no node of this fleet serves the model {model!r}", param="model")


def nothing_left(groups: tuple[ReplicaGroup, ...], model: str) -> AllFull | NothingUsable:
    """The error for a request that no node can take: full is worth another try soon, unreachable is not."""
    nodes = sum(len(group.members) for group in groups)
    draining = sum(group.closed[Reason.DRAINING] for group in groups)
    out = draining + sum(group.closed[Reason.UNHEALTHY] for group in groups)
    if out < nodes:
        return AllFull(f"every node that serves {model!r} is at its limit; try again shortly", retry_after_s=1)
    if draining == nodes:
        return NothingUsable(f"every node that serves {model!r} is being drained", retry_after_s=5)
    if nodes == 1:
        return NothingUsable(f"the only node that serves {model!r} can not be reached", retry_after_s=5)
    return NothingUsable(f"none of the {nodes} nodes that serve {model!r} can be reached", retry_after_s=5)
