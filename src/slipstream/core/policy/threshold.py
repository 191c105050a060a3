"""Policy ``threshold``: a request goes to a speculative node if every condition holds, otherwise to a standard one.

The first article's rule: draft loaded, batch below a ceiling, recent acceptance of the category above a floor. To it
come the cases in which speculation can not pay (short outputs, bulk work, refused features), probing and a holdback.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from slipstream.core.acceptance import AcceptanceEstimate
from slipstream.core.affinity import DEFAULT_SLACK, Affinity
from slipstream.core.fleet import Fleet
from slipstream.core.latency import Latency
from slipstream.core.node import Speculator, SpeculatorKind
from slipstream.core.node_state import NodeFacts, NodeState, ReplicaGroup
from slipstream.core.policy.choice import (
    any_usable,
    closed_because,
    fallback_node,
    least_loaded,
    least_used,
    nobody_serves,
    nothing_left,
)
from slipstream.core.policy.decision import Decision, Foretold
from slipstream.core.policy.kind import PolicyKind
from slipstream.core.policy.probing import Probing, ProbingSettings
from slipstream.core.reason import Reason
from slipstream.core.request import PinSource, Pool, RequestShape, TrafficClass

__all__ = ["Evidence", "Gain", "ThresholdPolicy", "ThresholdSettings"]

SETTINGS_REMEMBERED = 32

Gain = Callable[[str, Speculator, AcceptanceEstimate, int], float | None]
"""Predicted speedup of (model, speculator, acceptance) at an occupancy, from a measured profile; ``None`` = no
profile.
"""


class Evidence(ABC):
    """What is known of categories. No protocol, since compiled code calls a base class's methods at once."""

    @abstractmethod
    def estimate(self, model: str, speculator: Speculator, category: str) -> AcceptanceEstimate:
        """Acceptance of a category under a speculator."""

    @abstractmethod
    def median_output_tokens(self, category: str) -> int | None:
        """Median length of the category's answers, ``None`` while too few are known."""


def _rejects_nothing(_engine: str | None) -> frozenset[str]:
    """A function with a name, so that settings can be sent to another process."""
    return frozenset()


@dataclass(frozen=True, slots=True)
class ThresholdSettings:
    """``alpha_floor``: per-token acceptance that draft models and heads must exceed, 0..1. ``tokens_per_step_floor``:
    what n-gram speculators must exceed. ``gain_floor``: predicted speedup that must be exceeded where a profile can
    predict it. ``short_output_tokens``: answers under this are short. ``holdback``: share of eligible requests sent
    standard, 0..1. ``fallback``: whether a request may go to any usable node when no standard node is.
    ``affinity_slack``: sequences by which a node that holds a request's cache may be fuller than the least loaded one,
    ``None`` = affinity is off. ``observe``: decide, but steer by least load only, unless an operator's override fixed
    the request's pool. ``rejected_features(engine)``:
    request fields that engine refuses while it speculates.
    """

    alpha_floor: float = 0.6
    tokens_per_step_floor: float = 1.3
    gain_floor: float = 1.15
    short_output_tokens: int = 64
    holdback: float = 0.0
    fallback: bool = True
    affinity_slack: int | None = DEFAULT_SLACK
    observe: bool = False
    probing: ProbingSettings = field(default_factory=ProbingSettings)
    rejected_features: Callable[[str | None], frozenset[str]] = _rejects_nothing


class ThresholdPolicy:
    """The same object decides in the gateway and in the simulator. Its only state is which categories are being probed
    and which node holds what.
    """

    def __init__(
        self,
        settings: ThresholdSettings,
        evidence: Evidence,
        gain: Gain | None = None,
        affinity: Affinity | None = None,
    ) -> None:
        """``affinity``: what is known of the nodes' caches already; ``None`` = nothing."""
        self.settings = settings
        self._evidence = evidence
        self.gain = gain
        self.affinity = Affinity() if affinity is None else affinity
        self._probing = Probing(settings.probing)
        self._past: deque[tuple[int, ThresholdSettings]] = deque(maxlen=SETTINGS_REMEMBERED)

    def configure(self, settings: ThresholdSettings, version: int) -> None:
        """Decide by these settings from now on. ``version``: the fleet's, once they hold."""
        if settings == self.settings:
            return
        self._past.append((version, self.settings))
        self.settings = settings
        self._probing.configure(settings.probing)

    def succeed(self, before: ThresholdPolicy) -> None:
        """Decide in place of another policy: go on with what it knew of caches and probes."""
        self.affinity = before.affinity
        self._probing = before._probing
        self._probing.configure(self.settings.probing)

    def as_of(self, version: int) -> ThresholdPolicy:
        """The policy by which decisions were made when the fleet was at ``version``, to explain them by."""
        settings = self._settings_at(version)
        return self if settings is self.settings else ThresholdPolicy(settings, self._evidence, self.gain)

    def _settings_at(self, version: int) -> ThresholdSettings:
        for until, settings in self._past:
            if version < until:
                return settings
        return self.settings

    def decide(
        self, fleet: Fleet, shape: RequestShape, now: float, draw: float, avoid: Collection[str] = ()
    ) -> Decision:
        """Choose a node for a request.

        ``draw`` is one uniform number in [0, 1): it decides every tie, and the holdback of a request that belongs to no
        conversation. ``avoid`` names nodes already tried. Raises ``UnknownModel``, ``AllFull`` or ``NothingUsable``.
        """
        serving = fleet.serving(shape.model)
        if serving is None:
            raise nobody_serves(shape.model, fleet.unheard())
        speculative, standard = serving
        chosen, reason, by_affinity = self._steer(speculative, standard, shape, now, draw, avoid)
        intended: Decision | None = None
        if self.observes(shape):
            if chosen is not None:
                intended = Decision(chosen.name, chosen.pool, reason, fleet.version, draw, now)
            chosen = least_used(self._able(speculative, standard, shape), shape.sequences, draw, avoid)
            reason = Reason.OBSERVE
        if chosen is None:
            raise nothing_left(self._able(speculative, standard, shape), shape.model)
        if shape.cache_keys and self.settings.affinity_slack is not None:
            self.affinity.remember(shape.cache_keys, chosen)
        return Decision(chosen.name, chosen.pool, reason, fleet.version, draw, now, by_affinity, intended)

    def _steer(
        self,
        speculative: tuple[ReplicaGroup, ...],
        standard: tuple[ReplicaGroup, ...],
        shape: RequestShape,
        now: float,
        draw: float,
        avoid: Collection[str],
    ) -> tuple[NodeState | None, Reason, bool]:
        """The node by the rules (``None`` when none has room), why, and whether affinity preferred it."""
        settings = self.settings
        sequences = shape.sequences
        least: NodeState | None = None
        groups = standard
        if shape.pinned_pool is not None:
            reason = Reason.PINNED
            if shape.pinned_pool is Pool.SPECULATIVE:
                groups = speculative
            least = least_loaded(groups, sequences, draw, avoid)
        else:
            reason, eligible = self._assess(speculative, shape)
            if reason is Reason.NO_SPECULATOR and speculative and not any_usable(speculative):
                reason = closed_because(speculative)
            if reason is Reason.SPECULATIVE:
                held_back, draw_left = is_held_back(shape.session, draw, settings.holdback)
                least = least_loaded(eligible, sequences, draw_left, avoid)
                if least is None:
                    reason = closed_because(eligible, sequences, avoid)
                else:
                    comparison = least_loaded(standard, sequences, draw_left, avoid) if held_back else None
                    if comparison is None:
                        groups = eligible
                    else:
                        reason, least = Reason.HOLDBACK, comparison
            elif reason in _ACCEPTANCE and not settings.observe and self._probing.due(shape.model, shape.category, now):
                least = least_loaded(eligible, sequences, draw, avoid)
                if least is not None:
                    reason, groups = Reason.PROBE, eligible
                    self._probing.started(shape.model, shape.category, now)
            if least is None:
                least = least_loaded(standard, sequences, draw, avoid)
        if least is None:
            if settings.fallback:
                least = fallback_node(self._able(speculative, standard, shape), sequences, draw, avoid)
            return least, Reason.FALLBACK, False
        slack = settings.affinity_slack
        if slack is None or settings.observe or not shape.cache_keys:
            return least, reason, False
        chosen = self.affinity.choose(shape.cache_keys, least, groups, sequences, avoid, slack)
        return chosen, reason, chosen is not least

    def observes(self, shape: RequestShape) -> bool:
        """Whether the decision on a request is only recorded. What operators fix at run time holds all the same: it is
        their switch for incidents.
        """
        return self.settings.observe and shape.pinned_by is not PinSource.OVERRIDE

    def finished(
        self,
        decision: Decision,
        shape: RequestShape,
        occupancy: int,  # noqa: ARG002 - for policies that learn from it
        latency: Latency | None,  # noqa: ARG002
    ) -> None:
        """A request that this policy placed as the last of ``occupancy`` sequences has ended. ``latency`` is ``None``
        unless a whole answer was delivered.
        """
        if decision.reason is Reason.PROBE:
            self._probing.finished(shape.model, shape.category)

    def request_reason(
        self, shape: RequestShape, speculator: Speculator, engine: str | None, evidence: Evidence
    ) -> Reason:
        """``SPECULATIVE``, or the first condition on the request itself that fails under this speculator.

        Acceptance comes last: a request that fails it has met every other condition, so it can serve as a probe.
        """
        settings = self.settings
        if shape.features and self.rejects(shape, speculator, engine):
            return Reason.REJECTED_FEATURE
        if shape.traffic_class is TrafficClass.BULK:
            return Reason.BULK
        if not shape.decodes:
            return Reason.SHORT_OUTPUT
        if is_short(shape.output_limit, evidence.median_output_tokens(shape.category), settings.short_output_tokens):
            return Reason.SHORT_OUTPUT
        if not self._accepted(evidence.estimate(shape.model, speculator, shape.category), speculator):
            return Reason.BELOW_FLOOR
        return Reason.SPECULATIVE

    def below_gain(self, shape: RequestShape, speculator: Speculator, occupancy: int, evidence: Evidence) -> bool:
        """Whether a profile predicts too little gain for one more request at this occupancy. Without a profile: no."""
        if self.gain is None:
            return False
        estimate = evidence.estimate(shape.model, speculator, shape.category)
        predicted = self.gain(shape.model, speculator, estimate, occupancy)
        return predicted is not None and predicted <= self.settings.gain_floor

    def node_reason(
        self,
        name: str,  # noqa: ARG002 - for policies that know nodes by it
        node: NodeFacts,
        shape: RequestShape,
        decision: Decision,  # noqa: ARG002 - for policies by which nodes compete
        evidence: Evidence,
    ) -> Reason | None:
        """Why a node of the request's model that takes requests, and was not pinned away or held back from, did not get
        this one; ``None`` = it could have served and was not needed.
        """
        if node.pool is Pool.SPECULATIVE and node.speculator is not None and shape.pinned_pool is None:
            reason = self.request_reason(shape, node.speculator, node.engine, evidence)
            if reason is Reason.SPECULATIVE and self.below_gain(shape, node.speculator, node.occupancy, evidence):
                reason = Reason.BELOW_GAIN
            if reason is not Reason.SPECULATIVE:
                return reason
        return node.closed

    def kind_for(self, node: NodeState) -> PolicyKind:  # noqa: ARG002 - for policies that are not the same for all
        """The policy by which a node is judged."""
        return PolicyKind.THRESHOLD

    def learned_ceiling(self, name: str) -> int | None:  # noqa: ARG002 - for policies that learn one
        """The occupancy from which on a node takes no more, as was found out; ``None`` = that was not."""
        return None

    def foretell(
        self,
        name: str,  # noqa: ARG002 - for policies that foretell
        occupancy: int,  # noqa: ARG002
        shape: RequestShape,  # noqa: ARG002
        residents: Iterable[RequestShape],  # noqa: ARG002
    ) -> Foretold | None:
        """What is foretold of a request that joins ``occupancy`` sequences on a node, ours among them those of the
        ``residents``; ``None`` where nothing is. As the forecast is now, with what is known now of lengths and
        acceptance.
        """
        return None

    def rejects(self, shape: RequestShape, speculator: Speculator | None, engine: str | None) -> bool:
        """Whether a node with this speculator and engine refuses a field of the request."""
        return (
            bool(shape.features)
            and speculator is not None
            and not shape.features.isdisjoint(self.settings.rejected_features(engine))
        )

    def _able(
        self, speculative: tuple[ReplicaGroup, ...], standard: tuple[ReplicaGroup, ...], shape: RequestShape
    ) -> tuple[ReplicaGroup, ...]:
        """All groups but those that refuse a field of the request; all, when that leaves none: then the engine can say
        what is wrong.
        """
        if not shape.features:
            return speculative + standard
        able = tuple(group for group in speculative if not self.rejects(shape, group.speculator, group.engine))
        return able + standard or speculative

    def _accepted(self, estimate: AcceptanceEstimate, speculator: Speculator) -> bool:
        if speculator.kind is SpeculatorKind.NGRAM:
            tokens = estimate.tokens_per_step
            return tokens is None or tokens > self.settings.tokens_per_step_floor
        alpha = estimate.alpha
        return alpha is None or alpha > self.settings.alpha_floor

    def _assess(self, groups: tuple[ReplicaGroup, ...], shape: RequestShape) -> tuple[Reason, tuple[ReplicaGroup, ...]]:
        """The verdict on a request and the groups it holds for: the best verdict that any group's speculator allows."""
        best, best_rank = Reason.NO_SPECULATOR, 0
        found: tuple[ReplicaGroup, ...] = ()
        for group in groups:
            speculator = group.speculator
            if speculator is None:
                continue
            reason = self.request_reason(shape, speculator, group.engine, self._evidence)
            if reason is Reason.SPECULATIVE and self.gain is not None:
                least = group.open.least()
                if least is not None and self.below_gain(shape, speculator, least[1][0].occupancy, self._evidence):
                    reason = Reason.BELOW_GAIN
            rank = _RANK[reason]
            if rank > best_rank:
                best, best_rank, found = reason, rank, (group,)
            elif rank == best_rank:
                found += (group,)
        return best, found


_RANK = {
    reason: rank
    for rank, reason in enumerate(
        (
            Reason.NO_SPECULATOR,
            Reason.REJECTED_FEATURE,
            Reason.BULK,
            Reason.SHORT_OUTPUT,
            Reason.BELOW_FLOOR,
            Reason.BELOW_GAIN,
            Reason.SPECULATIVE,
        )
    )
}
SESSIONS = 2.0**64
"""How many numbers of conversations there are."""

_ACCEPTANCE = frozenset({Reason.BELOW_FLOOR, Reason.BELOW_GAIN})


def split_draw(draw: float, share: float) -> tuple[bool, float]:
    """Use one uniform draw twice: whether it falls into ``share``, and what is left of it, uniform in [0, 1) again."""
    if draw < share:
        return True, draw / share
    return False, (draw - share) / (1.0 - share)


def is_held_back(session: int | None, draw: float, share: float) -> tuple[bool, float]:
    """Whether a request is among the ``share`` held back, and a draw that is left for ties.

    A conversation is held back or not as a whole: its number decides, so that it does not change sides from turn to
    turn.
    """
    if session is None:
        return split_draw(draw, share)
    return session < share * SESSIONS, draw


def is_short(output_limit: int | None, median_output_tokens: int | None, short_output_tokens: int) -> bool:
    """Whether the answer will be short: by the client's limit, or by what the category's answers usually are. Unknown
    is not.
    """
    if output_limit is not None and output_limit < short_output_tokens:
        return True
    return median_output_tokens is not None and median_output_tokens < short_output_tokens
