"""What speculation gains: tokens per step against time per step, and where along the batch size the gain ends.

Everything here takes and returns plain numbers; where the step times come from (a roofline, a fit, a measurement) is
the business of `costmodel`. Times may be in any unit, as long as both arms use the same one.

Sources. The gain at a batch: Liu et al., "Optimizing Speculative Decoding for Serving Large Language Models Using
Goodput" (2024). `latency_speedup` is the same at batch 1, from Leviathan, Kalman and Matias (2023), theorem 3.8. The
`published` functions repeat the script of an article on batching and speculation, number for number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from slipstream.core.acceptance.measures import mean_acceptance_length_of

__all__ = [
    "CurveShape",
    "PublishedRow",
    "Recommendation",
    "crossovers_of",
    "latency_speedup",
    "padded_mean_acceptance_length",
    "published_row",
    "published_speedup",
    "recommendation_of",
    "rejected_share",
    "shape_of",
    "speedup_of",
    "verified_tokens",
]

SPEEDUP_FLOOR = 1.15
AGGREGATE_FLOOR = 0.85
"""The published rule: a speedup above the first, and at least this share of the standard arm's aggregate throughput."""


class Recommendation(StrEnum):
    """What to do at one batch size, in the words of the published script."""

    SPECULATIVE = "ENABLE_SPECULATIVE"
    STANDARD = "USE_STANDARD_BATCHING"


class CurveShape(StrEnum):
    """How a curve of speedups lies about 1 over the batch sizes looked at."""

    NEVER_BELOW = "never below 1"
    BELOW_THROUGHOUT = "below 1 from the first point on"
    FALLS_BELOW = "falls below 1"
    RISES_ABOVE = "starts below 1 and rises above it"
    CROSSES_REPEATEDLY = "crosses 1 more than once"


def verified_tokens(batch_size: float, k: float, proposing_share: float = 1.0) -> float:
    """`B·(1 + p·K)`: query tokens of one verify step over the whole batch. ``proposing_share`` is 0..1."""
    return batch_size * (1.0 + proposing_share * k)


def speedup_of(tokens_per_step: float, standard_step: float, speculative_step: float) -> float:
    """Tokens per second of the speculative arm over the standard arm's, decode only, at equal batch.

    ``tokens_per_step`` is `1 + p·(tau − 1)`; the step times are positive and in one unit. Raises ValueError otherwise.
    """
    if not (standard_step > 0.0 and speculative_step > 0.0):
        raise ValueError(f"a step takes longer than nothing, not {standard_step} and {speculative_step}")
    return tokens_per_step * standard_step / speculative_step


def latency_speedup(alpha: float, k: float, cost_ratio: float) -> float:
    """`tau / (1 + K·c)`, with ``cost_ratio`` c = time of a draft step over a target step; charges no verify width."""
    return mean_acceptance_length_of(alpha, k) / (1.0 + k * cost_ratio)


def rejected_share(alpha: float, k: float) -> float:
    """Share of drafted tokens that are thrown away, 0..1: 0.67 at alpha 0.6 and K = 4. ``k`` is positive.

    Not `1 − alpha`: a rejected position takes the ones behind it with it.
    """
    if not k > 0.0:
        raise ValueError(f"draft length must be positive, not {k}")
    return 1.0 - (mean_acceptance_length_of(alpha, k) - 1.0) / k


def padded_mean_acceptance_length(alphas: Sequence[float], k: int) -> float:
    """`tau` where a batch keeps as many tokens as its worst request: position i survives if it does in all of them.

    `1 + Σ_i Π_j alpha_j^i`, for independent requests (Qian et al., "BASS", 2024). ``alphas`` are the per-token
    acceptances of the requests of one batch.
    """
    together = 1.0
    for alpha in alphas:
        together *= alpha
    return mean_acceptance_length_of(together, k)


def crossovers_of(batch_sizes: Sequence[float], speedups: Sequence[float]) -> tuple[float, ...]:
    """Batch sizes at which a sampled curve passes through 1, in either direction, interpolated linearly.

    A point that only touches 1 and turns back is no crossover. ``batch_sizes`` rise; both sequences are of one length.
    Raises ValueError otherwise.
    """
    if len(batch_sizes) != len(speedups):
        raise ValueError(f"{len(batch_sizes)} batch sizes do not go with {len(speedups)} speedups")
    found: list[float] = []
    before = 0.0  # the last speedup that was not exactly 1, less 1
    at = 0.0
    last = float("-inf")
    for batch_size, speedup in zip(batch_sizes, speedups, strict=True):
        if not batch_size > last:
            raise ValueError("batch sizes must rise")
        last = batch_size
        over = speedup - 1.0
        if over == 0.0:
            continue
        if before * over < 0.0:
            found.append(at + (batch_size - at) * before / (before - over))
        before, at = over, batch_size
    return tuple(found)


def shape_of(batch_sizes: Sequence[float], speedups: Sequence[float]) -> CurveShape:
    """Which sentence describes the curve. Raises ValueError as `crossovers_of`, and for no points at all."""
    if not speedups:
        raise ValueError("a curve has at least one point")
    crossovers = crossovers_of(batch_sizes, speedups)
    if len(crossovers) > 1:
        return CurveShape.CROSSES_REPEATEDLY
    starts_below = next((speedup for speedup in speedups if speedup != 1.0), 1.0) < 1.0
    if crossovers:
        return CurveShape.RISES_ABOVE if starts_below else CurveShape.FALLS_BELOW
    return CurveShape.BELOW_THROUGHOUT if starts_below else CurveShape.NEVER_BELOW


def recommendation_of(speedup: float, speculative_tps: float, standard_tps: float) -> Recommendation:
    """The published rule. At equal batch its second half never binds, so give each arm's throughput at its own load."""
    if speedup > SPEEDUP_FLOOR and speculative_tps >= standard_tps * AGGREGATE_FLOOR:
        return Recommendation.SPECULATIVE
    return Recommendation.STANDARD


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One batch size of the published script. Times in milliseconds, throughputs in tokens a second over the batch."""

    batch_size: float
    tau: float
    standard_step_ms: float
    speculative_step_ms: float
    speedup: float
    standard_aggregate_tps: float
    speculative_aggregate_tps: float
    recommendation: Recommendation

    def __str__(self) -> str:
        """The line that the script prints."""
        return (
            f"Batch {self.batch_size:2g} -> Speedup: {round(self.speedup, 2)}x | Strategy: {self.recommendation.value}"
        )


def published_row(alpha: float, k: int, batch_size: float, *, verify_width: bool = False) -> PublishedRow:
    """The published script's result before it rounds: 35 + 0.45·B ms a target pass, 6 + 0.12·B ms a draft pass.

    The script charges a verify pass what it charges a standard step, however many tokens it verifies. With
    ``verify_width`` each of the `B·(K+1)` verified tokens costs the same 0.45 ms: that is what brings the speedup below
    1 at batch 32, as the article's text has it. Raises ValueError for an ``alpha`` outside 0..1, a negative ``k``, or a
    ``batch_size`` that is not positive.
    """
    if not batch_size > 0.0:
        raise ValueError(f"batch size must be positive, not {batch_size:g}")
    tau = mean_acceptance_length_of(alpha, k)
    standard = 35.0 + batch_size * 0.45
    draft = 6.0 + batch_size * 0.12
    verify = 35.0 + verified_tokens(batch_size, k) * 0.45 if verify_width else standard
    speculative = verify + k * draft
    standard_tps = batch_size * 1000.0 / standard
    speculative_tps = batch_size * tau * 1000.0 / speculative
    speedup = speedup_of(tau, standard, speculative)
    return PublishedRow(
        batch_size=batch_size,
        tau=tau,
        standard_step_ms=standard,
        speculative_step_ms=speculative,
        speedup=speedup,
        standard_aggregate_tps=standard_tps,
        speculative_aggregate_tps=speculative_tps,
        recommendation=recommendation_of(speedup, speculative_tps, standard_tps),
    )


def published_speedup(alpha: float, k: int, batch_size: float, *, verify_width: bool = False) -> float:
    """`published_row(…).speedup` alone."""
    return published_row(alpha, k, batch_size, verify_width=verify_width).speedup
