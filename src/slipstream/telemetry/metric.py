"""Metrics that are read where they are kept: of the gateway's own parts, which know nothing of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from slipstream.telemetry.measures import Kind

__all__ = [
    "AFFINITY_REQUESTS",
    "CLIENT_CONNECTIONS",
    "CONFIG_RELOADS",
    "INTENDED_REQUESTS",
    "KEY_IN_FLIGHT",
    "KEY_REQUESTS",
    "LOST_LINES",
    "METRICS",
    "OCCUPANCY_REQUESTS",
    "OCCUPANCY_TAU",
    "OCCUPANCY_TPOT",
    "OVERRIDES",
    "QUEUE_REQUESTS",
    "QUEUE_TIMEOUTS",
    "ROLES_WANTED",
    "ROLE_CHANGES",
    "Metric",
    "Reading",
    "Samples",
]

Samples = Mapping[tuple[str, ...], float]
"""Values by the values of the labels; one by ``()`` where there are no labels. What is unknown is left out."""


class Metric(NamedTuple):
    """``name`` ends with the unit, without ``slipstream_`` and ``_total``. Values of ``labels`` must be bounded."""

    kind: Kind
    name: str
    meaning: str
    labels: tuple[str, ...] = ()


class Reading(NamedTuple):
    """A metric and how it is read, on the loop's thread. All its series should be there from the start."""

    metric: Metric
    read: Callable[[], Samples]


LOST_LINES = Metric(
    Kind.COUNTER, "lost_lines", "Lines that the disk was too slow or too full for, by what they were of.", ("log",)
)

CLIENT_CONNECTIONS = Metric(Kind.GAUGE, "client_connections", "Clients that are connected.")

CONFIG_RELOADS = Metric(
    Kind.COUNTER, "config_reloads", "Times the configuration was read again, by how it went.", ("result",)
)

ROLE_CHANGES = Metric(
    Kind.COUNTER,
    "role_changes",
    "Changes of nodes' roles that have ended, by the role that was wanted, and whether it was had.",
    ("pool", "result"),
)

ROLES_WANTED = Metric(Kind.GAUGE, "speculative_nodes_wanted", "How many nodes should be speculative at this load.")

OVERRIDES = Metric(Kind.GAUGE, "overrides", "Overrides of operators in force, by kind.", ("kind",))

OCCUPANCY_REQUESTS = Metric(
    Kind.COUNTER,
    "occupancy_requests",
    "Answers whose time per token is known, by the occupancy at which they were placed.",
    ("pool", "occupancy"),
)

OCCUPANCY_TAU = Metric(
    Kind.GAUGE, "occupancy_tau_tokens", "Tokens per verify step, by occupancy at placement.", ("pool", "occupancy")
)

OCCUPANCY_TPOT = Metric(
    Kind.GAUGE, "occupancy_tpot_seconds", "Median time per token, by occupancy at placement.", ("pool", "occupancy")
)

KEY_REQUESTS = Metric(
    Kind.COUNTER,
    "key_requests",
    "Requests by API key, by whether they were let in or were over a limit of the key.",
    ("key", "result"),
)

KEY_IN_FLIGHT = Metric(Kind.GAUGE, "key_in_flight_sequences", "Sequences in flight by API key.", ("key",))

INTENDED_REQUESTS = Metric(
    Kind.COUNTER,
    "intended_requests",
    "Requests as they would have been placed, while routing only observes.",
    ("pool", "reason", "category"),
)

AFFINITY_REQUESTS = Metric(
    Kind.COUNTER,
    "affinity_requests",
    "Requests that a node may have in its cache, by what came of looking for it.",
    ("match",),
)

QUEUE_REQUESTS = Metric(Kind.GAUGE, "queue_requests", "Requests that wait for a node with room.", ("class",))

QUEUE_TIMEOUTS = Metric(
    Kind.COUNTER, "queue_timeouts", "Requests that waited for a node with room in vain.", ("class",)
)

METRICS: tuple[Metric, ...] = (
    LOST_LINES,
    CLIENT_CONNECTIONS,
    CONFIG_RELOADS,
    KEY_REQUESTS,
    KEY_IN_FLIGHT,
    OVERRIDES,
    ROLE_CHANGES,
    ROLES_WANTED,
    INTENDED_REQUESTS,
    AFFINITY_REQUESTS,
    QUEUE_REQUESTS,
    QUEUE_TIMEOUTS,
    OCCUPANCY_REQUESTS,
    OCCUPANCY_TAU,
    OCCUPANCY_TPOT,
)
"""All of them, in the order of the page."""
