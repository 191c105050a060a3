"""What is kept per node: for anomalies, for its ceiling, and to fill in what responses leave out."""

from __future__ import annotations

from slipstream.core.acceptance.by_occupancy import OccupancyRecord
from slipstream.core.acceptance.counters import CounterDelta, CounterWindow
from slipstream.core.acceptance.estimate import AcceptanceEstimate, measured_estimate
from slipstream.core.acceptance.evidence import NO_EVIDENCE, Evidence
from slipstream.core.acceptance.fading import FadingClock
from slipstream.core.acceptance.fading_median import bin_of
from slipstream.core.acceptance.learned_times import LearnedTimes
from slipstream.core.acceptance.sample import SpeculationSample, Steps
from slipstream.core.acceptance.tenure import AcceptanceFall, Identity, Tenure, change_between, fall
from slipstream.core.node import SpeculativeCounters

__all__ = ["NodeRecord"]


class NodeRecord:
    """Evidence of one node, from its requests and, apart from that, from its counters.

    What its requests said is of what runs there now: a change of that starts it anew and keeps what was before.
    """

    __slots__ = ("_before", "_clock", "_half_life", "_identity", "_tenure", "_window", "by_occupancy", "counted",
                 "learned", "verify_steps_per_drafted")  # fmt: skip

    def __init__(self, half_life: float) -> None:
        self._half_life = half_life
        self._clock = FadingClock(half_life)
        self._identity = Identity()
        self._tenure = Tenure()
        self._before: Tenure | None = None
        self.by_occupancy = OccupancyRecord()
        self.learned = LearnedTimes()
        self.counted: Evidence = NO_EVIDENCE
        self.verify_steps_per_drafted: float | None = None
        """Verify steps over drafted tokens, from the counters; ``None`` before any drafted token was counted."""
        self._window = CounterWindow()

    def configure(self, half_life: float) -> None:
        """Forget by this half-life (seconds) from now on."""
        self._half_life = half_life
        self._clock.configure(half_life)

    def credit(self, category: str, sample: SpeculationSample, steps: Steps, occupancy: int | None, now: float) -> None:
        """Take in a finished request; ``occupancy`` is the node's when it was placed, ``None`` when unknown."""
        weight = self.weight(now)
        self._tenure.credit(category, sample, steps, now, self._half_life, weight)
        if occupancy is not None:
            self.by_occupancy.accepted(occupancy, sample, steps, weight)

    def timed(self, occupancy: int, tpot_s: float, mean_occupancy: float | None, now: float) -> None:
        """A finished request, placed at ``occupancy``, took ``tpot_s`` seconds a token after the first;
        ``mean_occupancy`` is the node's meanwhile, ``None`` = not known.
        """
        place, weight = bin_of(tpot_s), self.weight(now)
        self.by_occupancy.timed(occupancy, place, weight)
        if mean_occupancy is not None:
            self.learned.add(mean_occupancy, place, weight)

    def weight(self, now: float) -> float:
        """What a request of ``now`` weighs in the sums that forget."""
        clock = self._clock
        if clock.overdue(now):
            factor = clock.rebase(now)
            self.by_occupancy.scale(factor)
            self.learned.scale(factor)
            self._tenure.scale(factor)
        return clock.weight(now)

    def identify(self, identity: Identity, now: float) -> None:
        """The node said what runs on it."""
        known = self._identity
        if identity == known:
            return
        change = change_between(known, identity)
        if change:
            self._changed(change, now)
        self._identity = Identity(
            identity.engine or known.engine, identity.version or known.version, identity.speculator or known.speculator
        )

    def observe(self, counters: SpeculativeCounters, now: float) -> CounterDelta | None:
        """Take in a reading; what happened since the last, ``None`` when nothing did or nothing is known of it."""
        delta = self._window.advance(counters, now)
        if delta is not None:
            if delta.restarted:
                self._changed("it was restarted", now)
            self.counted = self.counted.counted(delta, now, self._half_life)
        if self.counted.drafted > 0.0:
            self.verify_steps_per_drafted = self.counted.verify / self.counted.drafted
        elif counters.drafted and counters.verify_steps:
            # Before the first difference, what the engine counted since its start is the best there is.
            self.verify_steps_per_drafted = counters.verify_steps / counters.drafted
        return delta

    def estimate(self) -> AcceptanceEstimate:
        """From the requests where they said anything, else from the counters."""
        if self._tenure.evidence.requests > 0:
            return measured_estimate(self._tenure.evidence)
        return measured_estimate(self.counted, "counters")

    def fall(self) -> AcceptanceFall | None:
        """Whether acceptance is lower than before the last change; ``None`` when not, or when too little is known."""
        return None if self._before is None else fall(self._before, self._tenure)

    def _changed(self, change: str, now: float) -> None:
        tenure = self._tenure
        if tenure.tells:
            self._before = tenure
        elif tenure.change and now - tenure.since < 60.0:
            change = f"{tenure.change}, and {change}"  # a restart shows first in the counters, then in the version
        self._tenure = Tenure(change, now)
        self.learned = LearnedTimes()
