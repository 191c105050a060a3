"""What is kept per node: for anomalies, and to fill in what responses leave out."""

from __future__ import annotations

from slipstream.core.acceptance.counters import CounterDelta, CounterWindow
from slipstream.core.acceptance.estimate import AcceptanceEstimate, measured_estimate
from slipstream.core.acceptance.evidence import NO_EVIDENCE, Evidence
from slipstream.core.node import SpeculativeCounters

__all__ = ["NodeRecord"]


class NodeRecord:
    """Evidence of one node, from its requests and, apart from that, from its counters."""

    __slots__ = ("_window", "counted", "evidence", "verify_steps_per_drafted")

    def __init__(self) -> None:
        self.evidence: Evidence = NO_EVIDENCE
        self.counted: Evidence = NO_EVIDENCE
        self.verify_steps_per_drafted: float | None = None
        """Verify steps over drafted tokens, from the counters; ``None`` before any drafted token was counted."""
        self._window = CounterWindow()

    def observe(self, counters: SpeculativeCounters, now: float, half_life: float) -> CounterDelta | None:
        """Take in a reading; what happened since the last, ``None`` when nothing did or nothing is known of it."""
        delta = self._window.advance(counters, now)
        if delta is not None:
            self.counted = self.counted.counted(delta, now, half_life)
        if self.counted.drafted > 0.0:
            self.verify_steps_per_drafted = self.counted.verify / self.counted.drafted
        elif counters.drafted and counters.verify_steps:
            # Before the first difference, what the engine counted since its start is the best there is.
            self.verify_steps_per_drafted = counters.verify_steps / counters.drafted
        return delta

    def estimate(self) -> AcceptanceEstimate:
        """From the requests where they said anything, else from the counters."""
        if self.evidence.requests > 0:
            return measured_estimate(self.evidence)
        return measured_estimate(self.counted, "counters")
