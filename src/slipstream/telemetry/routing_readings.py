"""Metrics of affinity, of observing and of the queue, read where they are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from slipstream.core.dispatch import Dispatcher
from slipstream.core.request import TrafficClass
from slipstream.telemetry.instruments import Instruments
from slipstream.telemetry.metric import (
    AFFINITY_REQUESTS,
    INTENDED_REQUESTS,
    QUEUE_REQUESTS,
    QUEUE_TIMEOUTS,
    Reading,
    Samples,
)
from slipstream.telemetry.snapshot import DECISION_REASONS

__all__ = ["routing_readings"]


def routing_readings(
    dispatcher: Dispatcher,
    instruments: Instruments,
    categories: Callable[[], Sequence[str]],
    queue_lengths: Callable[[], Mapping[TrafficClass, int]],
) -> list[Reading]:
    """``categories`` are those shown, ``queue_lengths`` how many requests wait, by class."""

    def intended() -> Samples:
        reasons = [(pool, reason) for pool, reasons in DECISION_REASONS.items() for reason in reasons]
        placed = dispatcher.intended
        return {
            (pool, reason, category): placed.get((category, pool, reason), 0)
            for category in categories()
            for pool, reason in reasons
        }

    def affinity() -> Samples:
        return {(match,): count for match, count in dispatcher.policy.affinity.matches.items()}

    def queue() -> Samples:
        return {(traffic_class,): count for traffic_class, count in queue_lengths().items()}

    def timeouts() -> Samples:
        return {(traffic_class,): count for traffic_class, count in instruments.waits_in_vain.items()}

    return [
        Reading(INTENDED_REQUESTS, intended),
        Reading(AFFINITY_REQUESTS, affinity),
        Reading(QUEUE_REQUESTS, queue),
        Reading(QUEUE_TIMEOUTS, timeouts),
    ]
