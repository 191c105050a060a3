"""Nodes in turn, whatever their pool: what a load balancer does that knows nothing of its nodes."""

from __future__ import annotations

from collections.abc import Collection

from slipstream.core.fleet import Fleet
from slipstream.core.node_state import NodeFacts, NodeState, ReplicaGroup
from slipstream.core.policy.decision import Decision
from slipstream.core.policy.kind import PolicyKind
from slipstream.core.policy.threshold import Evidence, ThresholdPolicy, ThresholdSettings
from slipstream.core.reason import Reason
from slipstream.core.request import RequestShape

__all__ = ["RoundRobin"]


class RoundRobin(ThresholdPolicy):
    """The next usable node that serves the model and has room, in the order in which nodes were added. What operators
    fix holds: a pinned request goes to its pool, as under ``threshold``.
    """

    def __init__(self, settings: ThresholdSettings, evidence: Evidence, fleet: Fleet) -> None:
        """``fleet`` is the one that decisions are asked for."""
        super().__init__(settings, evidence)
        self._fleet = fleet
        self._turn = 0

    def as_of(self, version: int) -> ThresholdPolicy:
        """As `ThresholdPolicy.as_of`."""
        settings = self._settings_at(version)
        return self if settings is self.settings else RoundRobin(settings, self._evidence, self._fleet)

    def kind_for(self, node: NodeState) -> PolicyKind:  # noqa: ARG002 - all alike
        """As `ThresholdPolicy.kind_for`."""
        return PolicyKind.ROUND_ROBIN

    def node_reason(
        self, name: str, node: NodeFacts, shape: RequestShape, decision: Decision, evidence: Evidence
    ) -> Reason | None:
        """As `ThresholdPolicy.node_reason`. It was not the node's turn, unless it could take nothing."""
        if shape.pinned_pool is not None:
            return super().node_reason(name, node, shape, decision, evidence)
        if self.rejects(shape, node.speculator, node.engine):
            return Reason.REJECTED_FEATURE
        closed = node.closed
        return closed if closed in _CLOSED else None

    def _steer(
        self,
        speculative: tuple[ReplicaGroup, ...],
        standard: tuple[ReplicaGroup, ...],
        shape: RequestShape,
        now: float,
        draw: float,
        avoid: Collection[str],
    ) -> tuple[NodeState | None, Reason, bool]:
        if shape.pinned_pool is not None:
            return super()._steer(speculative, standard, shape, now, draw, avoid)
        able = self._able(speculative, standard, shape)
        nodes = tuple(self._fleet.nodes())
        for step in range(len(nodes)):
            turn = (self._turn + step) % len(nodes)
            node = nodes[turn]
            if node.usable and node.fits(shape.sequences) and node.name not in avoid and node.group in able:
                self._turn = turn + 1
                return node, Reason.IN_TURN, False
        return None, Reason.IN_TURN, False


_CLOSED = (Reason.UNHEALTHY, Reason.DRAINING, Reason.FULL)
"""Why a node takes nothing from anybody."""
