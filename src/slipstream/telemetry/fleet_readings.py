"""Metrics of overrides and of what occupancy does, read from the fleet's own books."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from slipstream.core.acceptance import BUCKETS, OccupancyFigures
from slipstream.core.dispatch import Dispatcher
from slipstream.core.occupancy_group import pool_figures
from slipstream.core.overrides import OverrideKind
from slipstream.core.request import Pool
from slipstream.telemetry.metric import OCCUPANCY_REQUESTS, OCCUPANCY_TAU, OCCUPANCY_TPOT, OVERRIDES, Reading, Samples

__all__ = ["fleet_readings"]


def fleet_readings(dispatcher: Dispatcher, clock: Callable[[], float]) -> list[Reading]:
    """``clock`` is the fleet's, in seconds."""

    def overrides() -> Samples:
        counts = Counter(override.kind for override in dispatcher.overrides)
        return {(kind,): counts[kind] for kind in OverrideKind}

    def buckets() -> Iterator[tuple[tuple[str, ...], OccupancyFigures]]:
        for pool in Pool:
            for one in pool_figures(dispatcher, pool, clock()):
                yield (pool, bucket_name(one.least, one.most)), one

    def requests() -> Samples:
        counts: dict[tuple[str, ...], float] = {
            (pool, bucket_name(*bucket)): 0.0 for pool in Pool for bucket in BUCKETS
        }
        return counts | {labels: float(one.timed) for labels, one in buckets()}

    def tau() -> Samples:
        return {labels: one.tau for labels, one in buckets() if one.tau is not None}

    def tpot() -> Samples:
        return {labels: one.tpot_s for labels, one in buckets() if one.tpot_s is not None}

    return [
        Reading(OVERRIDES, overrides),
        Reading(OCCUPANCY_REQUESTS, requests),
        Reading(OCCUPANCY_TAU, tau),
        Reading(OCCUPANCY_TPOT, tpot),
    ]


def bucket_name(least: int, most: int | None) -> str:
    """1, 3-4 or 65+: the sequences of a bucket, as a label."""
    if most is None:
        return f"{least}+"
    return str(least) if least == most else f"{least}-{most}"
