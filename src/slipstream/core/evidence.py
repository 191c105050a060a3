"""What the fleet's answers have taught about categories: acceptance, and how long answers are.

Every change leaves its undo, so that a past decision is explained by what was known then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from slipstream.core.acceptance import (
    AcceptanceBook,
    AcceptanceEstimate,
    AcceptancePrior,
    CounterDelta,
    SpeculationSample,
)
from slipstream.core.median import RecentMedian
from slipstream.core.node import SpeculativeCounters, Speculator
from slipstream.core.policy.threshold import Evidence

__all__ = ["FOREIGN", "CategoryEvidence", "PastEvidence"]

JOURNAL_ENTRIES = 20_000
WAITING_SAMPLES = 100
FOREIGN = "(foreign)"
"""The name under which other clients' sequences take part when a node's counters are split over categories."""

_Key = tuple[str, str, str]


class CategoryEvidence(Evidence):
    """Acceptance per (model, speculator, category) and the median answer per category."""

    def __init__(self, book: AcceptanceBook) -> None:
        self.book = book
        self._medians: dict[str, RecentMedian] = {}
        self._waiting: dict[str, deque[tuple[str, Speculator, str, SpeculationSample, int | None]]] = {}
        """By node: samples whose steps only the node's counters can tell, and these were not read yet."""
        self._estimates_before: deque[tuple[int, _Key, AcceptanceEstimate]] = deque(maxlen=JOURNAL_ENTRIES)
        self._medians_before: deque[tuple[int, str, int | None]] = deque(maxlen=JOURNAL_ENTRIES)

    def configure(self, prior: AcceptancePrior, half_life: float, version: int) -> None:
        """Believe and forget by these from now on; the evidence stays. ``version``: the fleet's, once this holds."""
        for key, before in self.book.configure(prior, half_life):
            self._estimates_before.append((version, key, before))

    def estimate(self, model: str, speculator: Speculator, category: str) -> AcceptanceEstimate:
        """What is known of a category's acceptance; the prior stands in. A dictionary look-up."""
        return self.book.estimate(model, speculator, category)

    def median_output_tokens(self, category: str) -> int | None:
        """Median length of the category's last 101 answers in tokens; ``None`` below ten answers."""
        median = self._medians.get(category)
        return None if median is None else median.value

    def answered(self, category: str, output_tokens: int, version: int) -> None:
        """An answer of a category had so many tokens. ``version``: the fleet's, once this is known."""
        median = self._medians.get(category)
        if median is None:
            median = self._medians[category] = RecentMedian()
        before = median.value
        median.add(output_tokens)
        if median.value != before:
            self._medians_before.append((version, category, before))

    def credit(
        self,
        model: str,
        speculator: Speculator,
        category: str,
        node: str,
        sample: SpeculationSample,
        version: int,
        now: float,
        occupancy: int | None = None,
    ) -> None:
        """A request's own statistics came back from ``node``, whose occupancy was that when it was placed there."""
        before = self.book.estimate(model, speculator, category)
        if self.book.credit(model, speculator, category, node, sample, now, occupancy):
            self._estimates_before.append((version, (model, speculator.fingerprint, category), before))
        elif sample.verify_steps is None:
            waiting = self._waiting.setdefault(node, deque(maxlen=WAITING_SAMPLES))
            waiting.append((model, speculator, category, sample, occupancy))

    def observe(self, node: str, counters: SpeculativeCounters, version: int, now: float) -> CounterDelta | None:
        """A node's counters were read. Samples that waited for them to tell their steps are credited now."""
        delta = self.book.observe(node, counters, now)
        if delta is not None:
            for model, speculator, category, sample, occupancy in self._waiting.pop(node, ()):
                before = self.book.estimate(model, speculator, category)
                if self.book.credit(model, speculator, category, node, sample, now, occupancy):
                    self._estimates_before.append((version, (model, speculator.fingerprint, category), before))
        return delta

    def attribute(
        self,
        model: str,
        speculator: Speculator,
        node: str,
        delta: CounterDelta,
        sequence_seconds: Mapping[str, float],
        version: int,
        now: float,
    ) -> None:
        """Split what a node did in a window over the categories it worked on."""
        before = {
            category: self.book.estimate(model, speculator, category)
            for category in sequence_seconds
            if category != FOREIGN
        }
        if self.book.attribute(model, speculator, node, delta, sequence_seconds, now):
            for category, estimate in before.items():
                if self.book.estimate(model, speculator, category) is not estimate:
                    self._estimates_before.append((version, (model, speculator.fingerprint, category), estimate))

    def forget_node(self, node: str) -> None:
        """Drop what is kept of a node that left the fleet; what its requests said of their categories stays."""
        self._waiting.pop(node, None)
        self.book.forget_node(node)

    def at(self, version: int) -> PastEvidence:
        """What was known when the fleet was at ``version``."""
        estimates = {
            key: before for changed_at, key, before in reversed(self._estimates_before) if changed_at > version
        }
        medians = {name: before for changed_at, name, before in reversed(self._medians_before) if changed_at > version}
        return PastEvidence(self, estimates, medians)


class PastEvidence(Evidence):
    """Evidence as it once was: today's, with what has changed since put back."""

    def __init__(
        self,
        present: CategoryEvidence,
        estimates: Mapping[_Key, AcceptanceEstimate],
        medians: Mapping[str, int | None],
    ) -> None:
        self._present = present
        self._estimates = estimates
        self._medians = medians

    def estimate(self, model: str, speculator: Speculator, category: str) -> AcceptanceEstimate:
        """What was known of a category's acceptance."""
        before = self._estimates.get((model, speculator.fingerprint, category))
        return self._present.estimate(model, speculator, category) if before is None else before

    def median_output_tokens(self, category: str) -> int | None:
        """What was known of the category's answers."""
        return self._medians[category] if category in self._medians else self._present.median_output_tokens(category)
