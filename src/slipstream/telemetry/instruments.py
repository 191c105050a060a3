"""What the data plane counts as it goes. Three microseconds a request are all there is for it."""

from __future__ import annotations

from collections import Counter

from slipstream.core.dispatch import Placement
from slipstream.core.errors import PlacementError, RequestError, SlipstreamError
from slipstream.core.outcome import Outcome
from slipstream.core.request import Pool, TrafficClass
from slipstream.telemetry.histogram import Histogram

__all__ = ["REJECTIONS", "Instruments", "Latencies"]

TTFT_BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0)
TPOT_BOUNDS_S = (0.002, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.2, 0.5)
E2E_BOUNDS_S = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0)
WAIT_BOUNDS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
DECISION_BOUNDS_S = (2e-6, 4e-6, 8e-6, 15e-6, 30e-6, 60e-6, 125e-6, 250e-6, 1e-3, 1e-2)


def _leaves(kind: type[SlipstreamError]) -> list[type[SlipstreamError]]:
    """The errors of a family that are raised: those that have no further kinds."""
    below = kind.__subclasses__()
    return [leaf for child in below for leaf in _leaves(child)] if below else [kind]


REJECTIONS = tuple(sorted(error.__name__ for error in (*_leaves(RequestError), *_leaves(PlacementError))))
"""Every way in which the gateway itself turns a request down."""


class Latencies:
    """The three measures of one pool and category, in seconds, and the tokens that went with them."""

    __slots__ = ("e2e", "output_tokens", "prompt_tokens", "tpot", "ttft")

    def __init__(self) -> None:
        self.ttft = Histogram(TTFT_BOUNDS_S)
        self.tpot = Histogram(TPOT_BOUNDS_S)
        self.e2e = Histogram(E2E_BOUNDS_S)
        self.prompt_tokens = 0
        self.output_tokens = 0


class Instruments:
    """The gateway's observer: it is told of every attempt, refusal and decision, and only counts."""

    __slots__ = ("by_pool_and_category", "decisions", "rejections", "waits", "waits_in_vain")

    def __init__(self) -> None:
        self.by_pool_and_category: dict[tuple[Pool, str], Latencies] = {}
        self.rejections: Counter[str] = Counter(dict.fromkeys(REJECTIONS, 0))
        """Refusals by the name of the error's class."""
        self.decisions = Histogram(DECISION_BOUNDS_S)
        self.waits = {traffic_class: Histogram(WAIT_BOUNDS_S) for traffic_class in TrafficClass}
        """Seconds in the queue of requests that were then placed, by class."""
        self.waits_in_vain = dict.fromkeys(TrafficClass, 0)
        """Requests whose time in the queue was up, by class."""

    def finished(self, placement: Placement, outcome: Outcome, now: float) -> None:  # noqa: ARG002 - the port's signature
        """A placement was settled. Latencies count whole answers only; tokens whatever was told."""
        key = placement.decision.pool, placement.shape.category
        row = self.by_pool_and_category.get(key)
        if row is None:
            row = self.by_pool_and_category[key] = Latencies()
        if outcome.prompt_tokens is not None:
            row.prompt_tokens += outcome.prompt_tokens
        if outcome.output_tokens is not None:
            row.output_tokens += outcome.output_tokens
        latency = outcome.latency
        if latency is None:
            return
        row.e2e.observe(latency.e2e_s)
        if latency.ttft_s is not None:
            row.ttft.observe(latency.ttft_s)
        if latency.tpot_s is not None:
            row.tpot.observe(latency.tpot_s)

    def rejected(self, error: SlipstreamError, path: str, now: float) -> None:  # noqa: ARG002 - the port's
        """The gateway answered a request with an error of its own. The path is the client's word, so it is no label."""
        self.rejections[type(error).__name__] += 1

    def decided(self, seconds: float) -> None:
        """One decision took this long."""
        self.decisions.observe(seconds)

    def waited(self, traffic_class: TrafficClass, seconds: float, *, served: bool) -> None:
        """A request left the queue."""
        if served:
            self.waits[traffic_class].observe(seconds)
        else:
            self.waits_in_vain[traffic_class] += 1
