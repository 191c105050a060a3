"""What a curve is told in: one row a batch size, the crossovers, and the points between for a plot."""

from __future__ import annotations

from dataclasses import dataclass, field

from slipstream.core.speedup import CurveShape, Recommendation

__all__ = ["LARGEST_BATCH", "MOST_BATCH", "MOST_TOKENS", "Curve", "Row"]

LARGEST_BATCH = 512
"""Crossovers are looked for up to here."""

MOST_BATCH = 65_536
MOST_TOKENS = 16_777_216
"""No node works on so many sequences, and no sequence is so long: what is beyond is a slip."""


@dataclass(frozen=True, slots=True)
class Row:
    """One batch size. ``best_k`` is 0 where a standard node is best, ``None`` where it was not looked for.

    Throughputs are tokens per second: of one user, and of the whole batch. With a prompt, steps still are decode steps;
    speedup and throughputs count its prefill.
    """

    batch_size: float
    speedup: float
    tau: float
    tokens_per_step: float
    standard_step_ms: float
    speculative_step_ms: float
    standard_user_tps: float
    speculative_user_tps: float
    standard_aggregate_tps: float
    speculative_aggregate_tps: float
    best_k: int | None
    recommendation: Recommendation


@dataclass(frozen=True, slots=True)
class Curve:
    """Rows at the batch sizes asked for; crossovers and shape over every batch size from 1 to the largest looked at.

    ``sampled`` are those batch sizes and their speedups, for a plot.
    """

    name: str
    k: int
    rows: tuple[Row, ...]
    crossovers: tuple[float, ...]
    shape: CurveShape
    sampled: tuple[tuple[float, ...], tuple[float, ...]] = field(repr=False)
