"""Policy ``predictive``: a request goes where the most requests will meet their targets, it and those already there.

With a forecast of each node from its profile, every usable node is judged by what the request is worth there (the
probability to meet its class's targets at the occupancy with it on), plus what its joining takes from the requests on
the node. No ceiling is configured: a node stops being chosen where joining it costs more than it gives. When that is so
on every node, the one with the least to lose gets it, which is one that is beyond its targets already: so an overload
costs some nodes their targets and not all.

Where a node has no valid forecast, ``threshold`` decides on it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from slipstream.core.acceptance import AcceptanceEstimate
from slipstream.core.affinity import Affinity
from slipstream.core.forecast import PRESSED, Company, Forecast, Outlook, Work, outlook, predict
from slipstream.core.goodput import Target
from slipstream.core.node import Speculator
from slipstream.core.node_state import NodeFacts, NodeState, ReplicaGroup
from slipstream.core.policy.choice import any_usable, closed_because
from slipstream.core.policy.decision import Decision, Foretold
from slipstream.core.policy.kind import PolicyKind
from slipstream.core.policy.threshold import Evidence, FleetView, ThresholdPolicy, ThresholdSettings, is_held_back
from slipstream.core.reason import Reason
from slipstream.core.request import Pool, RequestShape, TrafficClass

__all__ = ["Forecasts", "PredictivePolicy"]

Forecasts = Callable[[NodeState], Forecast | None]
"""The forecast of a node as it is equipped now; ``None`` = there is none that is valid."""

SPREAD: Final = 0.15
"""Relative spread of what comes true about what was predicted, unless told."""
CHARACTERS_A_TOKEN: Final = 4.0
PROMPT_TOKENS: Final = 500.0
"""Assumed of prompts of unknown length."""
OUTPUT_TOKENS: Final = 250.0
"""Assumed of a category's answers until enough were seen."""
MEAN_OVER_MEDIAN: Final = 1.28
"""Of answers' lengths, where they are lognormal with the spread that `core.forecast` assumes."""
FORGET: Final = 0.02
"""What the latest prompt weighs in the mean of its kind."""
LONGEST_REVIEW: Final = 256
"""Requests of a kind after which what is predicted of it is looked at again; sooner at the start."""
NOTABLE: Final = 0.02
"""Relative change of what a prediction rests on that makes it worth computing anew."""
STALE_AFTER_S: Final = 60.0
"""A category whose drafts were measured within so many seconds needs no probe."""
TIE: Final = 1e-9
LOOK_EVERY_S: Final = 0.1
LOOK_AT_MOST: Final = 32
"""So often so many nodes, in turn, are asked whether their forecast holds: all at once would hold a request up."""
SHUNNED: Final = 1000.0
"""As the fleet's index: a standard node of which nothing recent is known comes after all others."""


class _Kind:
    """Requests alike: of one model, category and class, and with prompts of one order of length. ``prompt_tokens`` is a
    mean that forgets.
    """

    __slots__ = ("category", "index", "model", "output_tokens", "prompt_tokens", "review_at", "seen", "target")

    def __init__(self, index: int, model: str, category: str, target: Target) -> None:
        self.index = index
        self.model = model
        self.category = category
        self.target = target
        self.prompt_tokens = PROMPT_TOKENS
        self.output_tokens = OUTPUT_TOKENS
        self.seen = 0
        self.review_at = 1


class _Equipment:
    """Nodes of one forecast and speculator. ``outlooks`` are those of each kind, and ``bases`` what each rests on."""

    __slots__ = ("bases", "forecast", "outlooks", "speculator")

    def __init__(self, forecast: Forecast, speculator: Speculator | None) -> None:
        self.forecast = forecast
        self.speculator = speculator
        self.outlooks: list[Outlook] = []
        self.bases: list[tuple[float, ...]] = []


class _Place:
    """A node as this policy sees it. ``residents[kind]`` are the sequences that it was given. ``cost`` is what one more
    sequence adds to what those are worth in a second (negative: takes), while the occupancy is ``known_at``; -1 = to be
    computed. ``alike``: as many sequences of the mean length weigh as much as those.
    ``equipment`` ``None``: there is no valid forecast.
    """

    __slots__ = ("alike", "cost", "equipment", "known_at", "node", "residents")

    def __init__(self, node: NodeState) -> None:
        self.node = node
        self.equipment: _Equipment | None = None
        self.residents: list[int] = []
        self.alike = 0
        self.cost = 0.0
        self.known_at = -1


class _Places:
    """The places of all nodes that serve a model, as long as these are its groups. ``whole``: all have a forecast.
    ``look_at`` is when it is asked whether forecasts are still valid, beginning with that of the place at ``turn``.
    """

    __slots__ = ("found", "look_at", "speculative", "standard", "turn", "whole")

    def __init__(
        self,
        speculative: tuple[ReplicaGroup, ...],
        standard: tuple[ReplicaGroup, ...],
        found: list[_Place],
        whole: bool,  # noqa: FBT001 - a row of data
        look_at: float,
    ) -> None:
        self.look_at = look_at
        self.turn = 0
        self.speculative = speculative
        self.standard = standard
        self.found = found
        self.whole = whole


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
        self._kinds: dict[tuple[str, str, TrafficClass, int], _Kind] = {}
        self._by_index: list[_Kind] = []
        self._places: dict[str, _Place] = {}
        self._serving: dict[str, _Places] = {}
        self._equipments: list[_Equipment] = []
        self._full_tokens = PROMPT_TOKENS + OUTPUT_TOKENS
        """What a sequence has in the cache at its end, on average."""

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
        past._places, past._equipments = self._places, self._equipments
        past._kinds, past._by_index = self._kinds, self._by_index
        past._full_tokens = self._full_tokens
        return past

    def decide(
        self, fleet: FleetView, shape: RequestShape, now: float, draw: float, avoid: Collection[str] = ()
    ) -> Decision:
        """As `ThresholdPolicy.decide`."""
        decision = super().decide(fleet, shape, now, draw, avoid)
        if shape.decodes:
            self._count(self._places[decision.node], self._kind(shape).index, shape.sequences)
        return decision

    def finished(self, decision: Decision, shape: RequestShape) -> None:
        """As `ThresholdPolicy.finished`."""
        super().finished(decision, shape)
        if shape.decodes and shape.previous_response is None:  # what follows a response was not placed by a policy
            place = self._places[decision.node]
            self._count(place, self._kind(shape).index, -shape.sequences)
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
        equipment, kind, after = place.equipment, self._kind(shape), occupancy + shape.sequences
        its = equipment.outlooks[kind.index]
        if after >= len(its.worth):
            return None
        then = _Place(place.node)
        for resident in residents:
            self._count(then, self._kind(resident).index, resident.sequences)
        self._weigh(then, equipment, occupancy)
        alike = min(then.alike + shape.sequences, len(its.worth) - 1)
        predicted = predict(equipment.forecast, self._work(equipment, kind), after)
        cost = 0.0 - then.cost * its.burden_s[alike] * shape.sequences  # so that nothing is not shown as -0.00
        return Foretold(predicted.ttft_s, predicted.tpot_s, predicted.e2e_s, its.worth[alike], cost)

    def learned_ceiling(self, name: str) -> int | None:
        """The occupancy from which on joining this node costs more than it gives, for requests as it has them, all
        alike to the most frequent kind; ``None`` where that is nowhere within its forecast, or there is none.
        """
        place = self._places.get(name)
        if place is None or place.equipment is None or not self._by_index:
            return None
        kind = max(self._by_index, key=_seen)
        worth = place.equipment.outlooks[kind.index].worth
        for occupancy in range(1, len(worth) - 1):
            if (occupancy + 1) * worth[occupancy + 1] < occupancy * worth[occupancy]:
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
        kind = self._reviewed(shape)
        if not places.whole:
            by_rule = super()._steer(speculative, standard, shape, now, draw, avoid)
            if by_rule[0] is None or by_rule[1] is Reason.PROBE or not self._forecast(by_rule[0]):
                return by_rule
        held_back, draw_left = False, draw
        if shape.pinned_pool is None:
            held_back, draw_left = is_held_back(shape.session, draw, self.settings.holdback)
        drafting, drafting_worth = self._best(places, kind, shape, Pool.SPECULATIVE, draw_left, avoid)
        plain, plain_worth = self._best(places, kind, shape, Pool.STANDARD, draw_left, avoid)
        if drafting is None and plain is None:
            return super()._steer(speculative, standard, shape, now, draw, avoid)
        groups = standard
        chosen = plain
        if shape.pinned_pool is not None:
            reason = Reason.PINNED
        elif drafting is not None and drafting_worth >= plain_worth:
            reason = Reason.HOLDBACK if held_back and plain is not None else Reason.SPECULATIVE
        elif drafting is None:
            reason = self._none_drafts(speculative, shape, avoid)
        else:
            reason = Reason.BELOW_GAIN
            if self._wants_probe(drafting, shape, now):
                reason = Reason.PROBE
        if reason is Reason.SPECULATIVE or reason is Reason.PROBE or chosen is None:
            chosen, groups = drafting, speculative
        assert chosen is not None
        slack = self.settings.affinity_slack
        if slack is None or self.settings.observe or not shape.cache_keys:
            return chosen, reason, False
        kept = self.affinity.choose(shape.cache_keys, chosen, groups, shape.sequences, avoid, slack)
        return kept, reason, kept is not chosen

    def _best(
        self, places: _Places, kind: _Kind, shape: RequestShape, pool: Pool, draw: float, avoid: Collection[str]
    ) -> tuple[NodeState | None, float]:
        """The node of a pool on which the request is worth the most, less what it costs there; ``None`` when no node of
        that pool with a forecast can take it. Ties by ``draw``.
        """
        sequences, index = shape.sequences, kind.index
        best = -1e300
        tied: list[NodeState] = []
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
            if place.known_at != occupancy:
                self._weigh(place, equipment, occupancy)
            after = place.alike + sequences
            if after >= len(worth):
                after = len(worth) - 1
            score = worth[after] + place.cost * its.burden_s[after] * sequences
            if not node.fresh:
                score -= SHUNNED
            if score > best + TIE:
                best = score
                tied = [node]
            elif score > best - TIE:
                tied.append(node)
        if not tied:
            return None, best
        return tied[int(draw * len(tied))], best

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

    def _kind(self, shape: RequestShape) -> _Kind:
        key = (shape.model, shape.category, shape.traffic_class, _order(shape.prompt_characters))
        kind = self._kinds.get(key)
        if kind is None:
            target = self._targets.get(shape.traffic_class) or Target()
            kind = self._kinds[key] = _Kind(len(self._by_index), shape.model, shape.category, target)
            self._by_index.append(kind)
            for equipment in self._equipments:
                self._predict(equipment, kind)
        return kind

    def _reviewed(self, shape: RequestShape) -> _Kind:
        """The request's kind, one request more seen of it, and what is predicted of it up to date."""
        kind = self._kind(shape)
        seen = kind.seen = kind.seen + 1
        characters = shape.prompt_characters
        if characters is not None:
            weight = max(FORGET, 1.0 / seen)
            kind.prompt_tokens += weight * (characters / CHARACTERS_A_TOKEN - kind.prompt_tokens)
        if seen >= kind.review_at:
            kind.review_at = seen + min(seen, LONGEST_REVIEW)
            median = self._evidence.median_output_tokens(kind.category)
            if median is not None:
                kind.output_tokens = max(1.0, MEAN_OVER_MEDIAN * median)
            for equipment in self._equipments:
                self._predict(equipment, kind)
        return kind

    def _predict(self, equipment: _Equipment, kind: _Kind) -> None:
        """Compute a kind's outlook on nodes so equipped, if what it rests on has changed notably."""
        work = self._work(equipment, kind)
        accepted = 1.0 if work.acceptance is None else work.acceptance.tokens_per_step or 1.0
        company = work.company
        self._full_tokens = company.full_tokens
        bases = (
            kind.prompt_tokens,
            kind.output_tokens,
            accepted,
            company.prompt_tokens,
            company.output_tokens,
            company.context_tokens,
            company.full_tokens,
        )
        fresh = kind.index == len(equipment.outlooks)
        if not fresh and not _differ(bases, equipment.bases[kind.index]):
            return
        found = outlook(equipment.forecast, work, self._spread)
        if fresh:
            equipment.outlooks.append(found)
            equipment.bases.append(bases)
        else:
            equipment.outlooks[kind.index] = found
            equipment.bases[kind.index] = bases
        for place in self._places.values():
            place.known_at = -1

    def _work(self, equipment: _Equipment, kind: _Kind) -> Work:
        """A kind's requests on nodes so equipped, by all that is known now."""
        acceptance: AcceptanceEstimate | None = None
        if equipment.speculator is not None:
            acceptance = self._evidence.estimate(kind.model, equipment.speculator, kind.category)
        return Work(kind.prompt_tokens, kind.output_tokens, self._company(), acceptance, kind.target)

    def _company(self) -> Company:
        """What all kinds are like together: each weighs as much as it was seen, and in the cache by how long it is."""
        requests = prompts = outputs = contexts = fulls = 0.0
        for kind in self._by_index:
            seen = max(1, kind.seen)
            prompt, output = kind.prompt_tokens, kind.output_tokens
            requests += seen
            prompts += seen * prompt
            outputs += seen * output
            contexts += seen * output * (prompt + 0.5 * output)
            fulls += seen * output * (prompt + output)
        return Company(prompts / requests, outputs / requests, contexts / outputs, fulls / outputs)

    def _serving_places(
        self, speculative: tuple[ReplicaGroup, ...], standard: tuple[ReplicaGroup, ...], model: str, now: float
    ) -> _Places:
        known = self._serving.get(model)
        if known is not None and known.speculative is speculative and known.standard is standard:
            if now < known.look_at:
                return known
            known.look_at = now + LOOK_EVERY_S
            if self._as_ever(known):
                return known
        nodes = [node for group in speculative + standard for node in group.members]
        nodes.sort(key=_name)
        found = [self._place(node) for node in nodes]
        whole = all(place.equipment is not None for place in found)
        places = self._serving[model] = _Places(speculative, standard, found, whole, now + LOOK_EVERY_S)
        return places

    def _place(self, node: NodeState) -> _Place:
        place = self._places.get(node.name)
        if place is None:
            place = self._places[node.name] = _Place(node)
        place.node = node
        place.known_at = -1
        forecast = self._valid(node)
        place.equipment = None if forecast is None else self._equipment(forecast, node.speculator)
        return place

    def _valid(self, node: NodeState) -> Forecast | None:
        """The forecast that a node is judged by now, if by any."""
        return None if node.pool is Pool.SPECULATIVE and node.speculator is None else self._forecasts(node)

    def _as_ever(self, places: _Places) -> bool:
        """Whether forecasts still are what they were, of the nodes whose turn it is to be looked at."""
        found = places.found
        for _ in range(min(len(found), LOOK_AT_MOST)):
            place = found[places.turn]
            places.turn = (places.turn + 1) % len(found)
            equipment = place.equipment
            if self._valid(place.node) is not (None if equipment is None else equipment.forecast):
                return False
        return True

    def _equipment(self, forecast: Forecast, speculator: Speculator | None) -> _Equipment:
        for equipment in self._equipments:
            if equipment.forecast is forecast and equipment.speculator == speculator:
                return equipment
        equipment = _Equipment(forecast, speculator)
        self._equipments.append(equipment)
        for kind in self._by_index:
            self._predict(equipment, kind)
        return equipment

    def _weigh(self, place: _Place, equipment: _Equipment, occupancy: int) -> None:
        """What one sequence more on a node takes from those it has; foreign ones are taken to be like ours there, or,
        where we have none, like the requests seen most.

        On a node whose cache fills, long sequences count as several of the mean length.
        """
        outlooks, kinds = equipment.outlooks, self._by_index
        own = 0
        tokens = 0.0
        residents = place.residents
        if occupancy > 0 and not any(residents):
            residents = [0] * len(kinds)
            residents[max(kinds, key=_seen).index] = occupancy
        for index, count in enumerate(residents):
            if count > 0:
                own += count
                tokens += count * (kinds[index].prompt_tokens + kinds[index].output_tokens)
        place.alike = occupancy
        place.known_at = occupancy
        place.cost = 0.0
        if own == 0:
            return
        forecast = equipment.forecast
        tokens = tokens * occupancy / own
        if forecast.cache_tokens is not None and tokens > PRESSED * forecast.cache_tokens:
            place.alike = round(tokens / self._full_tokens)
        alike = min(place.alike, forecast.most - 1)
        cost = 0.0
        for index, count in enumerate(residents):
            if count > 0:
                its = outlooks[index]
                cost += count * (its.worth[alike + 1] - its.worth[alike]) / its.stay_s[alike]
        place.cost = cost * occupancy / own

    def _forecast(self, node: NodeState) -> bool:
        place = self._places.get(node.name)
        return place is not None and place.equipment is not None

    def _count(self, place: _Place, index: int, sequences: int) -> None:
        residents = place.residents
        while len(residents) <= index:
            residents.append(0)
        residents[index] = residents[index] + sequences
        place.known_at = -1


def _order(characters: int | None) -> int:
    """The order of a prompt's length, each four times the one before; -1 = unknown."""
    return -1 if characters is None else (characters >> 10).bit_length() >> 1


def _differ(new: tuple[float, ...], old: tuple[float, ...]) -> bool:
    return any(abs(one - other) > NOTABLE * other for one, other in zip(new, old, strict=True))


def _name(node: NodeState) -> str:
    return node.name


def _seen(kind: _Kind) -> int:
    return kind.seen
