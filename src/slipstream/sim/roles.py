"""Roles that change during a run: a node leaves the fleet, and after its restart comes back in the other pool."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Protocol

from slipstream.core.fleet import Fleet
from slipstream.core.forecast import Forecast
from slipstream.core.request import Pool
from slipstream.core.roles import RoleController, RoleNode
from slipstream.sim.node import Node
from slipstream.sim.scenario import RoleChanges

__all__ = ["Pace", "Roles", "Twins", "pace_of"]


class Pace:
    """Tokens a second that a node makes: ``rates[n]`` with ``n`` sequences on it."""

    __slots__ = ("rates",)

    def __init__(self, rates: tuple[float, ...]) -> None:
        self.rates = rates

    def at(self, sequences: int) -> float:
        """As far as is known, with so many."""
        return self.rates[min(sequences, len(self.rates) - 1)]


def pace_of(forecast: Forecast | None, context_tokens: float, tokens_per_step: float) -> Pace:
    """By a forecast, with so many cached tokens and so many tokens a decode step a sequence; 0 where nothing is
    foretold.
    """
    if forecast is None:
        return Pace((0.0,))
    steps = ((n, forecast.step_s(n, context_tokens)) for n in range(1, forecast.most + 1))
    return Pace((0.0, *(n * tokens_per_step / seconds for n, seconds in steps)))


class Twins:
    """A node in either role, of which at most one is in the fleet."""

    __slots__ = ("since", "speculative", "speculative_pace", "standard", "standard_pace")

    def __init__(self, speculative: Node, standard: Node, speculative_pace: Pace, standard_pace: Pace) -> None:
        self.speculative = speculative
        self.standard = standard
        self.speculative_pace = speculative_pace
        self.standard_pace = standard_pace
        self.since = -inf

    @property
    def present(self) -> Node | None:
        """The one that takes requests; ``None`` while its role changes."""
        for node in (self.speculative, self.standard):
            if node.state is not None and not node.leaving:
                return node
        return None

    def other(self, node: Node) -> Node:
        """The same node in the other role."""
        return self.standard if node is self.speculative else self.speculative


class Stage(Protocol):
    """What a run does for the roles of its nodes."""

    def leave(self, node: Node) -> None:
        """The node takes no more requests, and leaves once it has ended those it has."""

    def stay(self, node: Node) -> None:
        """A node that was to leave takes requests again."""

    def join(self, node: Node) -> None:
        """The node comes to the fleet."""

    def tell(self, node: Node, step: str) -> None:
        """Put down that it does so: ``leaves``, ``stays`` or ``joins``."""


class Roles:
    """Looks at a fleet's load and changes roles, one node at a time."""

    __slots__ = ("_began_at", "_changes", "_changing", "_controller", "_fleet", "_from", "_ready_at", "_twins")

    def __init__(self, changes: RoleChanges, twins: Sequence[Twins], fleet: Fleet) -> None:
        self._controller = RoleController(changes.settings)
        self._changes = changes
        self._twins = twins
        self._fleet = fleet
        self._changing: Twins | None = None
        self._from: Node | None = None
        self._began_at = 0.0
        self._ready_at = -1.0

    def look(self, stage: Stage, queued: int, now: float) -> None:
        """Do what is to be done now, with ``queued`` sequences that no node has yet."""
        if self._changing is not None:
            self._follow(self._changing, stage, now)
            return
        verdict = self._controller.look(self._nodes(queued), queued, now)
        self._move_ceilings(raised=verdict.raised, now=now)
        if verdict.node is None:
            return
        twins = next(twins for twins in self._twins if verdict.node in (twins.speculative.name, twins.standard.name))
        node = twins.present
        assert node is not None
        self._changing, self._from, self._began_at, self._ready_at = twins, node, now, -1.0
        self._controller.began(node.name)
        stage.tell(node, "leaves")
        stage.leave(node)

    def _follow(self, twins: Twins, stage: Stage, now: float) -> None:
        """A node that is changing: drained, then restarted, then back; or it gives up draining and stays."""
        node = self._from
        assert node is not None
        if node.state is not None:
            if now - self._began_at >= self._changes.drain_s:
                self._changing = None
                self._controller.ended(now, None)
                stage.tell(node, "stays")
                stage.stay(node)
            return
        if self._ready_at < 0.0:
            self._ready_at = now + self._changes.restart_s
        if now >= self._ready_at:
            self._changing = None
            twins.since = now
            self._controller.ended(now, now - self._began_at)
            other = twins.other(node)
            stage.tell(other, "joins")
            stage.join(other)

    def _nodes(self, queued: int) -> list[RoleNode]:
        present = [(twins, node) for twins in self._twins if (node := twins.present) is not None]
        demand = queued + sum([node.state.occupancy for _, node in present if node.state is not None])
        each = max(1, round(demand / max(1, len(present))))
        return [_as_seen(twins, node, each) for twins, node in present]

    def _move_ceilings(self, *, raised: bool, now: float) -> None:
        ceiling = self._changes.settings.surge_ceiling if raised else None
        for twins in self._twins:
            state = twins.speculative.state
            if state is not None and state.fixed_ceiling != ceiling:
                self._fleet.override(state.name, now, ceiling=ceiling, drained=False)


def _as_seen(twins: Twins, node: Node, each: int) -> RoleNode:
    """As the controller sees it, with ``each`` sequences were all nodes alike."""
    state = node.state
    assert state is not None
    room = min(twins.speculative.spec.ceiling, twins.speculative.capacity)
    quiet = min(each, room)
    return RoleNode(
        node.name,
        Pool.SPECULATIVE if node is twins.speculative else Pool.STANDARD,
        twins.since,
        state.occupancy,
        room,
        twins.standard.capacity,
        twins.speculative_pace.at(twins.speculative.capacity),
        twins.standard_pace.at(twins.standard.capacity),
        twins.speculative_pace.at(quiet) - twins.standard_pace.at(quiet),
        state.usable,
    )
