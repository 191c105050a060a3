"""Metrics of API keys, by their public names: of those that the configuration has, and of no others."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from slipstream.core.keys import Key
from slipstream.telemetry.metric import KEY_IN_FLIGHT, KEY_REQUESTS, Reading, Samples

__all__ = ["key_readings"]


def key_readings(keys: Callable[[], Iterable[Key]]) -> list[Reading]:
    """``keys`` returns those that are let in now."""

    def requests() -> Samples:
        counts: dict[tuple[str, ...], float] = {}
        for key in keys():
            key_id, usage = key.policy.key_id, key.usage
            counts[key_id, "admitted"] = usage.admitted
            counts[key_id, "over_in_flight"] = usage.over_in_flight
            counts[key_id, "over_rate"] = usage.over_rate
        return counts

    def in_flight() -> Samples:
        return {(key.policy.key_id,): key.usage.in_flight for key in keys()}

    return [Reading(KEY_REQUESTS, requests), Reading(KEY_IN_FLIGHT, in_flight)]
