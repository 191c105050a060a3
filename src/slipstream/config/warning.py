"""What a configuration may say, and is hardly meant to."""

from __future__ import annotations

from slipstream.config.schema import FleetConfig
from slipstream.core.request import Pool

__all__ = ["warnings"]


def warnings(config: FleetConfig) -> tuple[str, ...]:
    """A sentence for everything that can be used and probably is a mistake; empty when there is nothing."""
    return (*_one_sided(config), *_unreachable_ceilings(config))


def _one_sided(config: FleetConfig) -> list[str]:
    pools = {node.pool for node in config.nodes}
    if not pools:
        return [f"{config.discovery.file} names no node yet, so every request is refused"]
    if Pool.SPECULATIVE not in pools:
        return ["no node is in the speculative pool, so nothing is ever speculated"]
    if Pool.STANDARD not in pools:
        outcome = "speculate all the same" if config.routing.fallback else "are refused"
        return [f"no node is in the standard pool, so requests for which speculation does not pay {outcome}"]
    return []


def _unreachable_ceilings(config: FleetConfig) -> list[str]:
    found = []
    for index, node in enumerate(config.nodes):
        ceiling = node.ceiling or config.pools.speculative.ceiling
        limit = node.max_in_flight
        if node.pool is Pool.SPECULATIVE and limit is not None and limit < ceiling:
            found.append(
                f"nodes[{index}] ({node.name}) takes at most {limit} sequences (max_in_flight), "
                f"so its ceiling of {ceiling} is never reached"
            )
    return found
