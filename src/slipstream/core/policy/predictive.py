"""Policy ``predictive``: a request goes where the most requests will meet their targets, it and those already there.

With a forecast of each node from its profile, every usable node is judged by what the request is worth there (the
probability to meet its class's targets at the occupancy with it on), plus what its joining takes from the requests on
the node. No ceiling is configured: a node is full where joining it costs more than it gives. While all are, a request
waits in the queue as long as it still has a chance. Then, by ``fallback``, it is refused, or goes to the node that has
the least to lose: so an overload costs few nodes their targets and not all.

Where a node has no valid forecast, ``threshold`` decides on it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from slipstream.core.affinity import Affinity
from slipstream.core.errors import OutOfReach
from slipstream.core.fleet import Fleet
from slipstream.core.forecast import Forecast, predict
from slipstream.core.goodput import Target
from slipstream.core.latency import Latency
from slipstream.core.node_state import NodeFacts, NodeState, ReplicaGroup
from slipstream.core.policy.choice import any_usable, closed_because
from slipstream.core.policy.decision import Decision, Foretold
from slipstream.core.policy.kind import PolicyKind
from slipstream.core.policy.place import Place, Places
from slipstream.core.policy.predictions import Kind, Predictions
from slipstream.core.policy.threshold import Evidence, ThresholdPolicy, ThresholdSettings, is_held_back
from slipstream.core.reason import Reason
from slipstream.core.request import Pool, RequestShape, TrafficClass
from slipstream.core.request_queue import BEAT_S

__all__ = ["Forecasts", "PredictivePolicy"]

Forecasts = Callable[[NodeState], Forecast | None]
"""The forecast of a node as it is equipped now; ``None`` = there is none that is valid."""

SPREAD: Final = 0.15
"""Relative spread of what comes true about what was predicted, unless told; what comes true soon tells."""
STALE_AFTER_S: Final = 60.0
"""A category whose drafts were measured within so many seconds needs no probe."""
TIE: Final = 1e-9
LOOK_EVERY_S: Final = 0.1
SHUNNED: Final = 1000.0
"""As the fleet's index: a standard node of which nothing recent is known comes after all others."""
HOPEFUL: Final = 0.5
"""Share of its chance that a request must have left to wait on."""
GIVEN_UP: Final = 0.1
"""Share of a node's requests that meet their targets below which those are given up for the others'."""
NOWHERE: Final = -1e300
OUT_OF_REACH: Final = "no node can answer in time any more without making others late; try again shortly"


class PredictivePolicy(ThresholdPolicy):
    """The same object decides in the gateway and in the simulator. Beside what ``threshold`` keeps, its state is which
    requests each node has, and what is predicted of each kind of them.
    """

    def __init__(
        self,
        settings: ThresholdSettings,
        evidence: Evidence,
        forecasts: Forecasts,
        targets: Mapping[TrafficClass, Target],
        spread: float = SPREAD,
        affinity: Affinity | None = None,
    ) -> None:
        """``targets``: of classes that have any. ``spread`` (above 0): relative spread of what comes true about what is
        predicted. ``affinity`` as `ThresholdPolicy`.
        """
        super().__init__(settings, evidence, None, affinity)
        if not spread > 0.0:
            raise ValueError(f"the spread of predictions is above 0, not {spread}")
        self._forecasts = forecasts
        self._targets = targets
        self._spread = spread
        self._predictions = Predictions(evidence, targets, spread)
        self._places: dict[str, Place] = {}
        self._serving: dict[str, Places] = {}

    def configure(self, settings: ThresholdSettings, version: int) -> None:
        """As `ThresholdPolicy.configure`. Nodes may have other profiles now."""
        super().configure(settings, version)
        self._serving.clear()

    def as_of(self, version: int) -> ThresholdPolicy:
        """As `ThresholdPolicy.as_of`."""
        settings = self._settings_at(version)
        if settings is self.settings:
            return self
        past = PredictivePolicy(settings, self._evidence, self._forecasts, self._targets, self._spread)
        past._places, past._predictions = self._places, self._predictions
        return past

    def decide(
        self, fleet: Fleet, shape: RequestShape, now: float, draw: float, avoid: Collection[str] = ()
    ) -> Decision:
        """As `ThresholdPolicy.decide`."""
        decision = super().decide(fleet, shape, now, draw, avoid)
        if shape.decodes:
            self._places[decision.node].count(self._predictions.kind(shape).index, shape.sequences)
        return decision

    def finished(self, decision: Decision, shape: RequestShape, occupancy: int, latency: Latency | None) -> None:
        """As `ThresholdPolicy.finished`. What came true corrects what is predicted."""
        super().finished(decision, shape, occupancy, latency)
        if shape.decodes and shape.previous_response is None:  # what follows a response was not placed by a policy
            place, index = self._places[decision.node], self._predictions.kind(shape).index
            place.count(index, -shape.sequences)
            given_up = decision.reason is Reason.FALLBACK  # so far from its targets, it would lead the line astray
            if latency is not None and place.equipment is not None and shape.sequences == 1 and not given_up:
                place.equipment.outlooks[index].learn(occupancy, latency, shape.queued_s)
            if place.node.group is None and not any(place.residents):
                del self._places[decision.node]  # it has left the fleet, and this was its last request

    def node_reason(
        self, name: str, node: NodeFacts, shape: RequestShape, decision: Decision, evidence: Evidence
    ) -> Reason | None:
        """As `ThresholdPolicy.node_reason`. A node with a forecast has no ceiling and no floor."""
        place = self._places.get(name)
        if place is None or place.equipment is None or not shape.decodes:
            return super().node_reason(name, node, shape, decision, evidence)
        if self.rejects(shape, node.speculator, node.engine):
            return Reason.REJECTED_FEATURE
        closed = node.closed
        if closed is not None and closed is not Reason.SATURATED:
            return closed
        if not decision.node or decision.reason is Reason.FALLBACK:
            return Reason.SATURATED  # one more costs more there than it gives
        if node.pool is Pool.SPECULATIVE and decision.pool is Pool.STANDARD:
            return Reason.BELOW_GAIN
        return None

    def kind_for(self, node: NodeState) -> PolicyKind:
        """As `ThresholdPolicy.kind_for`."""
        return PolicyKind.THRESHOLD if self._valid(node) is None else PolicyKind.PREDICTIVE

    def foretell(
        self, name: str, occupancy: int, shape: RequestShape, residents: Iterable[RequestShape]
    ) -> Foretold | None:
        """As `ThresholdPolicy.foretell`."""
        place = self._places.get(name)
        if place is None or place.equipment is None or not shape.decodes:
            return None
        predictions, equipment = self._predictions, place.equipment
        kind, after = predictions.kind(shape), occupancy + shape.sequences
        its = equipment.outlooks[kind.index]
        if after >= len(its.worth):
            return None
        then = Place(place.node)
        for resident in residents:
            then.count(predictions.kind(resident).index, resident.sequences)
        then.weigh(equipment, predictions, occupancy)
        alike = min(then.alike + shape.sequences, len(its.worth) - 1)
        predicted = predict(equipment.forecast, predictions.work(equipment, kind), after)
        cost = 0.0 - then.cost * its.burden_s[alike] * shape.sequences  # so that nothing is not shown as -0.00
        return Foretold(predicted.ttft_s, predicted.tpot_s, predicted.e2e_s, its.worth[alike], cost)

    def learned_ceiling(self, name: str) -> int | None:
        """The occupancy from which on joining this node costs more than it gives, for requests as it has them, all
        alike to the most frequent kind; ``None`` where that is nowhere within its forecast, or there is none.
        """
        place = self._places.get(name)
        if place is None or place.equipment is None or not self._predictions.kinds:
            return None
        its = place.equipment.outlooks[self._predictions.most_seen().index]
        for occupancy in range(1, len(its.worth) - 1):
            if its.worth[occupancy + 1] + occupancy * its.loss[occupancy] < 0.0:
                return occupancy
        return None

    def _steer(
        self,
        speculative: tuple[ReplicaGroup, ...],
        standard: tuple[ReplicaGroup, ...],
        shape: RequestShape,
        now: float,
        draw: float,
        avoid: Collection[str],
    ) -> tuple[NodeState | None, Reason, bool]:
        if not shape.decodes:
            return super()._steer(speculative, standard, shape, now, draw, avoid)
        places = self._serving_places(speculative, standard, shape.model, now)
        kind = self._predictions.reviewed(shape)
        if not places.whole:
            by_rule = super()._steer(speculative, standard, shape, now, draw, avoid)
            if by_rule[0] is None or by_rule[1] is Reason.PROBE or not self._is_foretold(by_rule[0]):
                return by_rule
        held_back, draw_left = False, draw
        if shape.pinned_pool is None:
            held_back, draw_left = is_held_back(shape.session, draw, self.settings.holdback)
        drafting, drafting_gain = self._best(places, kind, shape, Pool.SPECULATIVE, draw_left, avoid)
        plain, plain_gain = self._best(places, kind, shape, Pool.STANDARD, draw_left, avoid)
        best = drafting if drafting is not None and drafting_gain >= plain_gain else plain
        if best is None:
            return super()._steer(speculative, standard, shape, now, draw, avoid)
        if best.node.fresh and max(drafting_gain, plain_gain) < 0.0 and places.whole and shape.pinned_pool is None:
            return self._overloaded(places, kind, shape, best, avoid), Reason.FALLBACK, False
        groups = standard
        chosen = plain
        if shape.pinned_pool is not None:
            reason = Reason.PINNED
        elif best is drafting:
            reason = Reason.HOLDBACK if held_back and plain is not None else Reason.SPECULATIVE
        elif drafting is None:
            reason = self._none_drafts(speculative, shape, avoid)
        else:
            reason = Reason.BELOW_GAIN
            if self._wants_probe(drafting.node, shape, now):
                reason = Reason.PROBE
        if reason is Reason.SPECULATIVE or reason is Reason.PROBE or chosen is None:
            chosen, groups = drafting, speculative
        assert chosen is not None
        node = chosen.node
        slack = self.settings.affinity_slack
        if slack is None or self.settings.observe or not shape.cache_keys:
            return node, reason, False
        kept = self.affinity.choose(shape.cache_keys, node, groups, shape.sequences, avoid, slack)
        return kept, reason, kept is not node

    def _best(
        self, places: Places, kind: Kind, shape: RequestShape, pool: Pool, draw: float, avoid: Collection[str]
    ) -> tuple[Place | None, float]:
        """Where in a pool the request is worth the most, less what it costs there; ``None`` when no node of that pool
        with a forecast can take it. Ties by ``draw``.
        """
        sequences, index, queued_s = shape.sequences, kind.index, shape.queued_s
        predictions = self._predictions
        changes = predictions.changes
        best = NOWHERE
        tied: list[Place] = []
        late: dict[tuple[int, int], float] = {}
        if shape.pinned_pool is not None and shape.pinned_pool is not pool:
            return None, best
        for place in places.found:
            node = place.node
            if node.pool is not pool or node.index is None:
                continue
            equipment = place.equipment
            if equipment is None:
                continue
            occupancy = node.ledger.sequences + node.foreign
            after = occupancy + sequences
            its = equipment.outlooks[index]
            worth = its.worth
            if after >= len(worth) or (after > node.limit and occupancy > 0) or (avoid and node.name in avoid):
                continue
            if pool is Pool.SPECULATIVE and not self._may_draft(node, after, shape):
                continue
            if place.known_at != occupancy or place.known_by != changes:
                place.weigh(equipment, predictions, occupancy)
            after = place.alike + sequences
            if after >= len(worth):
                after = len(worth) - 1
            own = worth[after]
            if queued_s > 0.0:
                key = (id(its), after)
                known = late.get(key)
                if known is None:
                    known = late[key] = its.worth_late(after, queued_s)
                own = known
            gain = own + place.cost * its.burden_s[after] * sequences
            if not node.fresh:
                gain -= SHUNNED
            if gain > best + TIE:
                best = gain
                tied = [place]
            elif gain > best - TIE:
                tied.append(place)
        if not tied:
            return None, best
        return tied[int(draw * len(tied))], best

    def _overloaded(
        self, places: Places, kind: Kind, shape: RequestShape, best: Place, avoid: Collection[str]
    ) -> NodeState | None:
        """What becomes of a request that costs more than it gives everywhere, least on the node ``best``; ``None``: it
        is to wait. Raises ``OutOfReach`` for one that has waited too long.
        """
        fallback, observes = self.settings.fallback, self.settings.observe
        if shape.may_wait and not observes:
            assert best.equipment is not None
            its = best.equipment.outlooks[kind.index]
            after = min(best.alike + shape.sequences, len(its.worth) - 1)
            if its.worth[1] > 0.0 and its.chance_left(after, shape.queued_s + BEAT_S) >= HOPEFUL:
                return None
            if not fallback:
                raise OutOfReach(OUT_OF_REACH)
        if not fallback and not observes:
            return None
        given_up = self._given_up(places, kind, shape, avoid)
        return best.node if given_up is None else given_up

    def _given_up(self, places: Places, kind: Kind, shape: RequestShape, avoid: Collection[str]) -> NodeState | None:
        """The fullest node with room on which hardly any request is expected to meet its targets, so that there is
        little to lose; ``None`` where there is none.
        """
        found: NodeState | None = None
        most = 0
        for place in places.found:
            node, equipment = place.node, place.equipment
            occupancy = node.ledger.sequences + node.foreign
            if node.index is None or equipment is None or occupancy <= most or place.hope > GIVEN_UP * occupancy:
                continue
            after = occupancy + shape.sequences
            if after >= len(equipment.outlooks[kind.index].worth) or after > node.limit or node.name in avoid:
                continue
            if node.pool is Pool.STANDARD or self._may_draft(node, after, shape):
                found, most = node, occupancy
        return found

    def _may_draft(self, node: NodeState, after: int, shape: RequestShape) -> bool:
        """Whether a speculative node may be given what makes its occupancy ``after``. A ceiling that an operator fixed
        at run time holds.
        """
        if not node.fresh:
            return False
        if node.fixed_ceiling is not None and after > node.ceiling:
            return False
        return not (shape.features and self.rejects(shape, node.speculator, node.engine))

    def _wants_probe(self, node: NodeState, shape: RequestShape, now: float) -> bool:
        speculator = node.speculator
        if speculator is None or self.settings.observe or node.closed is not None:
            return False
        evidence = self._evidence.estimate(shape.model, speculator, shape.category).evidence
        if evidence.requests > 0 and now - evidence.at < STALE_AFTER_S:
            return False
        if not self._probing.due(shape.model, shape.category, now):
            return False
        self._probing.started(shape.model, shape.category, now)
        return True

    def _none_drafts(
        self, speculative: tuple[ReplicaGroup, ...], shape: RequestShape, avoid: Collection[str]
    ) -> Reason:
        """Why no speculative node came into question."""
        speculating = False
        for group in speculative:
            if group.speculator is not None:
                speculating = True
                if not self.rejects(shape, group.speculator, group.engine):
                    return closed_because(speculative, shape.sequences, avoid)
        if speculating:
            return Reason.REJECTED_FEATURE
        if speculative and not any_usable(speculative):
            return closed_because(speculative)
        return Reason.NO_SPECULATOR

    # What is kept up to date

    def _serving_places(
        self, speculative: tuple[ReplicaGroup, ...], standard: tuple[ReplicaGroup, ...], model: str, now: float
    ) -> Places:
        known = self._serving.get(model)
        if known is not None and known.speculative is speculative and known.standard is standard:
            if now < known.look_at:
                return known
            known.look_at = now + LOOK_EVERY_S
            if all(self._as_ever(place) for place in known.next_looked_at()):
                return known
        nodes = [node for group in speculative + standard for node in group.members]
        nodes.sort(key=_name)
        found = [self._place(node) for node in nodes]
        whole = all(place.equipment is not None for place in found)
        places = self._serving[model] = Places(speculative, standard, found, whole, now + LOOK_EVERY_S)
        return places

    def _place(self, node: NodeState) -> Place:
        place = self._places.get(node.name)
        if place is None:
            place = self._places[node.name] = Place(node)
        place.node = node
        place.known_at = -1
        forecast = self._valid(node)
        place.equipment = None if forecast is None else self._predictions.equipment(forecast, node.speculator)
        return place

    def _valid(self, node: NodeState) -> Forecast | None:
        """The forecast that a node is judged by now, if by any."""
        return None if node.pool is Pool.SPECULATIVE and node.speculator is None else self._forecasts(node)

    def _as_ever(self, place: Place) -> bool:
        """Whether a node's forecast still is what it was."""
        equipment = place.equipment
        return self._valid(place.node) is (None if equipment is None else equipment.forecast)

    def _is_foretold(self, node: NodeState) -> bool:
        place = self._places.get(node.name)
        return place is not None and place.equipment is not None


def _name(node: NodeState) -> str:
    return node.name
