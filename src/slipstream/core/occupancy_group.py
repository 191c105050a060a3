"""Acceptance and time per token by occupancy, over nodes that run the same."""

from __future__ import annotations

from typing import NamedTuple

from slipstream.core.acceptance import BUCKETS, OccupancyFigures
from slipstream.core.dispatch import Dispatcher
from slipstream.core.node_state import NodeState
from slipstream.core.request import Pool

__all__ = ["OccupancyGroup", "bucket_at", "occupancy_groups", "pool_figures"]


class OccupancyGroup(NamedTuple):
    """Nodes of one pool that serve the same models with the same speculator, and their buckets with requests.

    ``speculator`` is its fingerprint, ``None`` without an active one.
    """

    pool: Pool
    models: tuple[str, ...]
    speculator: str | None
    nodes: tuple[str, ...]
    buckets: list[OccupancyFigures]


def occupancy_groups(dispatcher: Dispatcher, now: float) -> list[OccupancyGroup]:
    """Every group of the fleet, in the order of their first nodes."""
    members: dict[tuple[Pool, tuple[str, ...], str | None], list[str]] = {}
    for node in dispatcher.fleet.nodes():
        members.setdefault(_key(node), []).append(node.name)
    book = dispatcher.evidence.book
    return [OccupancyGroup(*key, tuple(names), book.occupancy_figures(names, now)) for key, names in members.items()]


def pool_figures(dispatcher: Dispatcher, pool: Pool, now: float) -> list[OccupancyFigures]:
    """The buckets of all nodes of a pool together."""
    names = [node.name for node in dispatcher.fleet.nodes() if node.pool is pool]
    return dispatcher.evidence.book.occupancy_figures(names, now)


def bucket_at(figures: list[OccupancyFigures], occupancy: int) -> OccupancyFigures | None:
    """The bucket that an occupancy belongs to; ``None`` when no request was in it."""
    least = next(low for low, high in BUCKETS if high is None or occupancy <= high)
    return next((one for one in figures if one.least == least), None)


def _key(node: NodeState) -> tuple[Pool, tuple[str, ...], str | None]:
    return node.pool, node.models, None if node.speculator is None else node.speculator.fingerprint
