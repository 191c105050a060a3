"""Nodes in turn, whatever their pool: what a load balancer does that knows nothing of its nodes."""

from __future__ import annotations

from collections.abc import Collection

from slipstream.core.fleet import Fleet
from slipstream.core.policy.choice import nobody_serves, nothing_left
from slipstream.core.policy.decision import Decision
from slipstream.core.policy.threshold import Evidence, FleetView, ThresholdPolicy, ThresholdSettings
from slipstream.core.reason import Reason
from slipstream.core.request import RequestShape

__all__ = ["RoundRobin"]


class RoundRobin(ThresholdPolicy):
    """The next usable node that serves the model and has room, in the order in which nodes were added."""

    def __init__(self, settings: ThresholdSettings, evidence: Evidence, fleet: Fleet) -> None:
        """``fleet`` is the one that decisions are asked for."""
        super().__init__(settings, evidence)
        self._fleet = fleet
        self._turn = 0

    def decide(
        self, fleet: FleetView, shape: RequestShape, now: float, draw: float, avoid: Collection[str] = ()
    ) -> Decision:
        """As `ThresholdPolicy.decide`."""
        serving = fleet.serving(shape.model)
        if serving is None:
            raise nobody_serves(shape.model, fleet.unheard())
        nodes = tuple(self._fleet.nodes())
        for step in range(len(nodes)):
            turn = (self._turn + step) % len(nodes)
            node = nodes[turn]
            if (
                node.usable
                and node.fits(shape.sequences)
                and node.name not in avoid
                and (not shape.model or shape.model in node.models)
            ):
                self._turn = turn + 1
                return Decision(node.name, node.pool, Reason.OBSERVE, fleet.version, draw, now)
        speculative, standard = serving
        raise nothing_left(speculative + standard, shape.model)
