"""What a configuration may say, and is hardly meant to."""

from __future__ import annotations

from slipstream.config.schema import FleetConfig
from slipstream.config.values import is_loopback
from slipstream.core.request import Pool

__all__ = ["warnings"]

GUESSABLE_BELOW = 32
"""Characters of a secret. A shorter one may be a word, and who listens or tries may find it."""


def warnings(config: FleetConfig) -> tuple[str, ...]:
    """A sentence for everything that can be used and probably is a mistake; empty when there is nothing."""
    return (
        *_one_sided(config),
        *_unreachable_ceilings(config),
        *_open_to_others(config),
        *_guessable(config),
        *_idle_keys(config),
        *_unforetold(config),
        *_late_unless_told(config),
    )


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


def _idle_keys(config: FleetConfig) -> list[str]:
    """What is set under routing and does nothing beside other keys there."""
    routing = config.routing
    found = []
    if routing.mode == "observe":
        idle = [key for key, given in (("holdback", routing.holdback), ("pins", routing.pins)) if given]
        found = [f"routing.{key} does nothing while routing.mode is observe" for key in idle]
    if routing.policy != "predictive" and "targets" in routing.model_fields_set:
        found.append(f"routing.targets does nothing while routing.policy is {routing.policy}")
    return found


def _unforetold(config: FleetConfig) -> list[str]:
    """Nodes that policy `predictive` has nothing to foretell from."""
    if config.routing.policy != "predictive":
        return []
    without = [node.name for node in config.nodes if (node.profile or config.profile) is None]
    if not without:
        return []
    named = ", ".join(without[:3]) + (f" and {len(without) - 3} more" if len(without) > 3 else "")
    verb = "has" if len(without) == 1 else "have"
    return [f"{named} {verb} no profile, so requests are placed there by threshold, not by routing.policy predictive"]


def _late_unless_told(config: FleetConfig) -> list[str]:
    """Who has named targets is to say what becomes of requests that can not meet them: either is costly."""
    routing = config.routing
    said = routing.model_fields_set
    if routing.policy != "predictive" or "targets" not in said or "fallback" in said:
        return []
    found = (
        "routing.fallback is not set, so a request that can not meet its targets is answered late, which in overload "
        "makes others late too; false refuses it with 429, true says that late is meant"
    )
    return [found]


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


def _open_to_others(config: FleetConfig) -> list[str]:
    if config.gateway.keys or is_loopback(config.gateway.address.host):
        return []
    return [f"whoever reaches {config.gateway.listen} may use every node: there are no gateway.keys"]


def _guessable(config: FleetConfig) -> list[str]:
    token = config.admin.token
    secrets = {f"gateway.keys ({key.id})": key.reveal() for key in config.gateway.keys}
    secrets["admin.token"] = None if token is None else token.reveal()
    return [
        f"{name} has {len(secret)} characters and may be guessed; `slipstream keys new` makes a long one"
        for name, secret in secrets.items()
        if secret is not None and len(secret) < GUESSABLE_BELOW
    ]
