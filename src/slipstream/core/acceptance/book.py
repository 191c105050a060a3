"""The fleet's memory of acceptance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias, TypeVar

from slipstream.core.acceptance.attribution import Attribution, AttributionWindow
from slipstream.core.acceptance.by_occupancy import OccupancyFigures, figures
from slipstream.core.acceptance.counters import CounterDelta
from slipstream.core.acceptance.estimate import (
    AcceptanceEstimate,
    attributed_estimate,
    blended_estimate,
    measured_estimate,
    prior_estimate,
)
from slipstream.core.acceptance.evidence import HALF_LIFE, NO_EVIDENCE
from slipstream.core.acceptance.learned_times import LearnedTime
from slipstream.core.acceptance.node_record import NodeRecord
from slipstream.core.acceptance.prior import AcceptancePrior
from slipstream.core.acceptance.sample import SpeculationSample, always_proposes, steps_of
from slipstream.core.acceptance.tenure import AcceptanceFall, Identity
from slipstream.core.node import SpeculativeCounters, Speculator

__all__ = ["AcceptanceBook", "AcceptanceKey"]

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


AcceptanceKey: TypeAlias = tuple[str, str, str]
"""(model, speculator fingerprint, category)."""


class AcceptanceBook:
    """Evidence per (model, speculator, category) and per node, and the estimates made of it.

    Estimates change only when evidence comes in; ``version`` counts those changes. ``prior`` is what is believed
    before, ``half_life`` (seconds) how fast evidence fades. At most ``max_keys`` keys and as many nodes are
    remembered: beyond that, the key longest without evidence is forgotten, and the node first heard of.
    """

    __slots__ = (
        "_attributions",
        "_estimates",
        "_nodes",
        "_speculators",
        "half_life",
        "max_keys",
        "prior",
        "version",
    )

    def __init__(self, prior: AcceptancePrior, *, half_life: float = HALF_LIFE, max_keys: int = 4096) -> None:
        self.prior = prior
        self.half_life = half_life
        self.max_keys = max_keys
        self.version = 0
        self._estimates: dict[AcceptanceKey, AcceptanceEstimate] = {}
        self._attributions: dict[tuple[str, str], Attribution] = {}
        self._nodes: dict[str, NodeRecord] = {}
        self._speculators: dict[str, Speculator] = {}  # by fingerprint, for estimates to be made anew

    def configure(self, prior: AcceptancePrior, half_life: float) -> list[tuple[AcceptanceKey, AcceptanceEstimate]]:
        """Believe and forget by these from now on; evidence stays. Returns the estimates that changed, as they were."""
        self.prior = prior
        self.half_life = half_life
        for attribution in self._attributions.values():
            attribution.half_life = half_life
        for record in self._nodes.values():
            record.configure(half_life)
        changed = []
        for key, before in self._estimates.items():
            if before.source == "attributed":
                continue  # it rests on no prior but in its ridge, and is made anew with the next window
            _, fingerprint, category = key
            estimate = blended_estimate(category, prior, self._speculators[fingerprint], before.evidence)
            if estimate != before:
                changed.append((key, before))
                self._estimates[key] = estimate
        self.version += bool(changed)
        return changed

    def estimate(self, model: str, speculator: Speculator, category: str) -> AcceptanceEstimate:
        """What is known of the acceptance of ``category``: never fails, the prior stands in. A dictionary look-up."""
        key = (model, speculator.fingerprint, category)
        try:
            return self._estimates[key]
        except KeyError:
            estimate = prior_estimate(category, self.prior, speculator)
            self._remember(key, estimate, speculator)
            return estimate

    def credit(
        self,
        model: str,
        speculator: Speculator,
        category: str,
        node: str,
        sample: SpeculationSample,
        now: float,
        occupancy: int | None = None,
    ) -> bool:
        """Take in a finished request; ``now`` in seconds, ``occupancy`` the node's when the request was placed there,
        ``None`` when unknown.

        False when the sample says nothing: impossible, or its steps can not be told (see ``steps_of``).
        """
        record = self._nodes.get(node) or self._node(node)
        steps = steps_of(sample, speculator, record.verify_steps_per_drafted)
        if steps is None:
            return False
        half_life = self.half_life
        record.credit(category, sample, steps, occupancy, now)
        key = (model, speculator.fingerprint, category)
        known = self._estimates.pop(key, None)
        evidence = (NO_EVIDENCE if known is None else known.evidence).credited(sample, steps, now, half_life)
        if known is not None and known.source == "attributed" and evidence.requests < self.prior.requests:
            estimate = known._replace(evidence=evidence)
        else:
            estimate = blended_estimate(category, self.prior, speculator, evidence)
        self._remember(key, estimate, speculator)
        self.version += 1
        return True

    def timed(self, node: str, occupancy: int, tpot_s: float, now: float, mean_occupancy: float | None = None) -> None:
        """A finished request, placed on ``node`` when its occupancy was that, took ``tpot_s`` seconds a token.

        ``mean_occupancy`` is the node's meanwhile, ``None`` = not known.
        """
        record = self._nodes.get(node) or self._node(node)
        record.timed(occupancy, tpot_s, mean_occupancy, now)

    def identify(self, node: str, identity: Identity, now: float) -> None:
        """``node`` said what runs on it. When that changed, its acceptance is measured anew."""
        record = self._nodes.get(node) or self._node(node)
        record.identify(identity, now)

    def observe(self, node: str, counters: SpeculativeCounters, now: float) -> CounterDelta | None:
        """Take in a reading of a node's counters. Returns what happened since the last, ``None`` when nothing is known
        of it."""
        record = self._nodes.get(node) or self._node(node)
        delta = record.observe(counters, now)
        if delta is not None:
            self.version += 1
        return delta

    def attribute(
        self,
        model: str,
        speculator: Speculator,
        node: str,
        delta: CounterDelta,
        sequence_seconds: Mapping[str, float],
        now: float,
    ) -> bool:
        """Split what a node did over the categories in flight; for engines that say nothing per request.

        ``sequence_seconds`` is, by category, the time its sequences were in flight on ``node`` during ``delta``,
        summed over them. Foreign traffic, where known, goes in under a name of its own. A category with enough
        per-request evidence keeps that. Returns True when an estimate changed.
        """
        steps = delta.verify_steps if always_proposes(speculator) else delta.decode_steps
        if steps is None or delta.accepted is None or delta.drafted is None:
            return False
        attribution = self._attribution(model, speculator)
        window = AttributionWindow(delta.drafted, delta.accepted, steps, sequence_seconds)
        if not attribution.add(node, window, delta.seconds, now):
            return False
        k = self.prior.draft_length(speculator)
        believed = {name: self.prior.tokens_per_step(name, speculator, k) - 1.0 for name in attribution.categories}
        changed = False
        for category, ratio in attribution.solve(believed).items():
            known = self.estimate(model, speculator, category)
            if ratio is None or known.requests >= self.prior.requests:
                continue
            key = (model, speculator.fingerprint, category)
            del self._estimates[key]
            attributed = attributed_estimate(ratio, speculator, attribution.drafted_per_step, known.evidence)
            self._remember(key, attributed, speculator)
            changed = True
        if changed:
            self.version += 1
        return changed

    def node_estimate(self, node: str) -> AcceptanceEstimate | None:
        """What a node shows over all its categories, without a prior; ``None`` for a node never heard of.

        From its requests where they said anything, else from its counters, which have no intervals.
        """
        record = self._nodes.get(node)
        return record.estimate() if record is not None else None

    def occupancy_figures(self, nodes: Iterable[str], now: float) -> list[OccupancyFigures]:
        """Acceptance and time per token by occupancy, over these nodes together; empty before any request finished."""
        records = (record for record in map(self._nodes.get, nodes) if record is not None)
        return figures((record.by_occupancy, record.weight(now)) for record in records)

    def learned_times(self, node: str) -> list[LearnedTime]:
        """Time per token of what runs on ``node``, by how busy it was meanwhile; empty before any request told."""
        record = self._nodes.get(node)
        return [] if record is None else record.learned.figures()

    def acceptance_fall(self, node: str) -> AcceptanceFall | None:
        """Whether ``node`` accepts less than before the last change of what runs on it; ``None`` = no, or unknown."""
        record = self._nodes.get(node)
        return record.fall() if record is not None else None

    def category_estimate(self, category: str) -> AcceptanceEstimate:
        """``category`` over all models and speculators, from per-request evidence alone; every figure ``None`` without
        any."""
        evidence = NO_EVIDENCE
        for (_, _, name), estimate in self._estimates.items():
            if name == category:
                evidence = evidence.merged(estimate.evidence, self.half_life)
        return measured_estimate(evidence)

    def estimates(self) -> Iterator[tuple[AcceptanceKey, AcceptanceEstimate]]:
        """Every estimate held, for reports. The book must not change meanwhile."""
        return iter(self._estimates.items())

    def forget_node(self, node: str) -> None:
        """Drop what is kept per node, for one that left the fleet. What its requests said of their categories stays."""
        self._nodes.pop(node, None)
        for attribution in self._attributions.values():
            attribution.forget_node(node)

    def _node(self, node: str) -> NodeRecord:
        record = self._nodes[node] = NodeRecord(self.half_life)
        _trim(self._nodes, self.max_keys)
        return record

    def _remember(self, key: AcceptanceKey, estimate: AcceptanceEstimate, speculator: Speculator) -> None:
        self._estimates[key] = estimate
        self._speculators[speculator.fingerprint] = speculator
        _trim(self._estimates, self.max_keys)

    def _attribution(self, model: str, speculator: Speculator) -> Attribution:
        key = (model, speculator.fingerprint)
        attribution = self._attributions.pop(key, None) or Attribution(half_life=self.half_life)
        self._attributions[key] = attribution
        _trim(self._attributions, self.max_keys)
        return attribution


def _trim(mapping: dict[_Key, _Value], limit: int) -> None:
    # Estimates are put back at the end as evidence comes in, so the first is the one longest without.
    if len(mapping) > limit:
        del mapping[next(iter(mapping))]
