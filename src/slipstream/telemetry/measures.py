"""The metrics of a node and of a category, as data: name, meaning, and where the value is."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from slipstream.core.circuit import CircuitState
from slipstream.core.request import Pool
from slipstream.core.summary import CategorySummary, NodeSummary

__all__ = ["CATEGORY_MEASURES", "NODE_MEASURES", "Kind", "Measure", "Row"]

Row = TypeVar("Row")


class Kind(Enum):
    """Whether a metric goes up and down or only up."""

    GAUGE = "gauge"
    COUNTER = "counter"


GAUGE, COUNTER = Kind


class Measure(NamedTuple, Generic[Row]):
    """One metric. ``name`` ends with the unit, counters get ``_total`` too. ``value`` is ``None`` when unknown."""

    kind: Kind
    name: str
    meaning: str
    value: Callable[[Row], float | None]


_CIRCUIT_STATES = {CircuitState.CLOSED: 0.0, CircuitState.HALF_OPEN: 1.0, CircuitState.OPEN: 2.0}

NODE_MEASURES: tuple[Measure[NodeSummary], ...] = (
    Measure(GAUGE, "healthy", "Whether the node answers (1) or not (0).", lambda node: node.healthy),
    Measure(GAUGE, "fresh", "Whether its last report is recent enough (1) or not (0).", lambda node: node.fresh),
    Measure(
        GAUGE,
        "eligible",
        "Whether it takes new requests of its pool (1) or not (0).",
        lambda node: node.closed is None,
    ),
    Measure(
        GAUGE,
        "saturated",
        "Whether a speculative node is at or above its ceiling (1) or not (0).",
        lambda node: node.saturated if node.pool is Pool.SPECULATIVE else None,
    ),
    Measure(
        GAUGE,
        "circuit_state",
        "Its circuit: closed (0), half-open (1), open (2): its requests fail though its metrics answer.",
        lambda node: _CIRCUIT_STATES[node.circuit],
    ),
    Measure(GAUGE, "occupancy_sequences", "Sequences it works on.", lambda node: node.occupancy),
    Measure(GAUGE, "own_sequences", "Sequences of this gateway on it.", lambda node: node.own),
    Measure(GAUGE, "foreign_sequences", "Sequences of others on it.", lambda node: node.foreign),
    Measure(GAUGE, "waiting_sequences", "Sequences that wait inside the engine.", lambda node: node.waiting),
    Measure(
        GAUGE,
        "ceiling_sequences",
        "Occupancy at which a speculative node takes no new request.",
        lambda node: node.ceiling,
    ),
    Measure(
        GAUGE,
        "learned_ceiling_sequences",
        "Occupancy from which policy predictive finds that joining it costs more than it gives.",
        lambda node: node.learned_ceiling,
    ),
    Measure(GAUGE, "limit_sequences", "Most sequences it is given at once.", lambda node: node.limit),
    Measure(
        GAUGE,
        "capacity_left_sequences",
        "Sequences that still fit: below the ceiling (speculative) or the limit (standard).",
        lambda node: node.capacity_left,
    ),
    Measure(GAUGE, "kv_use_ratio", "Share of its KV cache in use.", lambda node: node.kv_use),
    Measure(GAUGE, "tau_tokens", "Tokens per verify step, bonus token included.", lambda node: node.tau),
    Measure(
        GAUGE,
        "saturated_ratio",
        "Share of the last ten minutes spent saturated.",
        lambda node: node.saturated_share,
    ),
    Measure(
        GAUGE,
        "report_age_seconds",
        "Age of its last report.",
        lambda node: node.report_age_s,
    ),
    Measure(
        GAUGE,
        "calibration_stale",
        "Whether what its profile was measured on, or promises, is no longer so (1) or is (0).",
        lambda node: node.calibration_stale,
    ),
    Measure(
        GAUGE,
        "profile_tpot_ratio",
        "Time per token of its own traffic over its profile's, at the same occupancies.",
        lambda node: node.tpot_ratio,
    ),
    Measure(
        COUNTER,
        "saturation_events",
        "Times it became saturated.",
        lambda node: node.saturation_events if node.pool is Pool.SPECULATIVE else None,
    ),
    Measure(
        COUNTER,
        "ejections",
        "Times its failing requests took it out.",
        lambda node: node.ejections,
    ),
    Measure(COUNTER, "drafted_tokens", "Draft tokens proposed, as the engine counts.", lambda node: node.drafted),
    Measure(
        COUNTER,
        "accepted_tokens",
        "Draft tokens accepted, as the engine counts.",
        lambda node: node.accepted,
    ),
    Measure(COUNTER, "verify_steps", "Verify steps, as the engine counts.", lambda node: node.verify_steps),
)


CATEGORY_MEASURES: tuple[Measure[CategorySummary], ...] = (
    Measure(GAUGE, "alpha_ratio", "Per-token acceptance.", lambda category: category.alpha),
    Measure(
        GAUGE,
        "alpha_lower_ratio",
        "Lower end of the 95 % interval of alpha.",
        lambda category: category.interval[0] if category.interval else None,
    ),
    Measure(
        GAUGE,
        "alpha_upper_ratio",
        "Upper end of the 95 % interval of alpha.",
        lambda category: category.interval[1] if category.interval else None,
    ),
    Measure(GAUGE, "tau_tokens", "Tokens per verify step, bonus token included.", lambda category: category.tau),
    Measure(
        GAUGE,
        "step_tokens",
        "Tokens per decode step, over steps that propose and steps that do not.",
        lambda category: category.tokens_per_step,
    ),
    Measure(
        COUNTER,
        "evidence_requests",
        "Answers that carried speculative statistics.",
        lambda category: category.evidence_requests,
    ),
    Measure(
        COUNTER,
        "drafted_tokens",
        "Draft tokens proposed, as answers told.",
        lambda category: category.drafted or 0,
    ),
    Measure(
        COUNTER,
        "accepted_tokens",
        "Draft tokens accepted, as answers told.",
        lambda category: category.accepted or 0,
    ),
)
