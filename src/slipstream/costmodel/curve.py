"""Speedup over batch size: the table a person reads, the crossovers, and the draft length that pays most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slipstream.core.speedup import Recommendation, crossovers_of, recommendation_of, shape_of
from slipstream.costmodel.acceptance import AcceptanceCurve
from slipstream.costmodel.costs import Costs
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.memory import Admitted
from slipstream.costmodel.profiles import TableCosts
from slipstream.costmodel.rows import LARGEST_BATCH, MOST_BATCH, MOST_TOKENS, Curve, Row

__all__ = ["Workload", "best_k", "curve_of", "speedups", "sweep", "user_throughputs"]

MOST_DRAFTED = 16
"""Draft lengths are tried up to here."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What requests look like: cached tokens a sequence while decoding, prompt and output lengths, in tokens.

    A prompt of 0 leaves prefill out: decode only.
    """

    context: float = 1024.0
    prompt_tokens: float = 0.0
    output_tokens: float = 256.0

    def __post_init__(self) -> None:
        for what, least in (("context", 0), ("prompt_tokens", 0), ("output_tokens", 1)):
            tokens = getattr(self, what)
            if not least <= tokens <= MOST_TOKENS:
                name = what.removesuffix("_tokens")
                raise ImpossibleInput(f"{name} is {least} to {MOST_TOKENS:,} tokens, not {tokens}")


def speedups(
    costs: Costs, acceptance: AcceptanceCurve, batch_sizes: ArrayLike, ks: ArrayLike, workload: Workload
) -> NDArray[np.float64]:
    """Speedups for batch sizes and draft lengths that broadcast against each other: give them axes of their own for a
    grid."""
    return _arms(costs, acceptance, batch_sizes, ks, workload, workload.context)[0]


def sweep(
    costs: Costs, acceptance: AcceptanceCurve, batch_sizes: ArrayLike, ks: ArrayLike, contexts: ArrayLike
) -> NDArray[np.float64]:
    """Decode speedups over every context, draft length and batch size: shape (contexts, ks, batch sizes)."""
    grid = np.ix_(np.asarray(contexts, float), np.asarray(ks, float), np.asarray(batch_sizes, float))
    return _arms(costs, acceptance, grid[2], grid[1], Workload(), grid[0])[0]


def user_throughputs(
    costs: Costs, acceptance: AcceptanceCurve, batch_sizes: ArrayLike, ks: ArrayLike, workload: Workload
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Tokens per second of one user, in the standard and in the speculative arm, at batch sizes that need no curve."""
    standard, speculative = _arms(costs, acceptance, batch_sizes, ks, workload, workload.context)[-2:]
    return standard, speculative


def _arms(
    costs: Costs,
    acceptance: AcceptanceCurve,
    batch_sizes: ArrayLike,
    ks: ArrayLike,
    workload: Workload,
    context: ArrayLike,
) -> tuple[NDArray[np.float64], ...]:
    """Speedup, tokens per step, both step times, and both arms' tokens per second and user."""
    batch = np.asarray(batch_sizes, float)
    k = np.asarray(ks, float)
    standard = costs.standard_s(batch, context)
    speculative = costs.speculative_s(batch, k, context)
    tokens = 1.0 + costs.proposing_share * (acceptance.taus(k) - 1.0)
    standard_request = workload.output_tokens * standard
    speculative_request = workload.output_tokens / tokens * speculative
    if workload.prompt_tokens > 0.0:
        target, drafter = costs.prefill_s(workload.prompt_tokens)
        standard_request = standard_request + batch * target
        speculative_request = speculative_request + batch * (target + np.where(k > 0.0, drafter, 0.0))
    standard_tps = workload.output_tokens / standard_request
    speculative_tps = workload.output_tokens / speculative_request
    return speculative_tps / standard_tps, tokens, standard, speculative, standard_tps, speculative_tps


def best_k(
    costs: Costs,
    acceptance: AcceptanceCurve,
    batch_sizes: ArrayLike,
    workload: Workload,
    *,
    most: int = MOST_DRAFTED,
) -> NDArray[np.int64]:
    """The draft length of most tokens per second at each batch size, the shorter of two that are equal; 0 where no
    speculation beats a standard node.

    A measured table offers only the draft lengths that it has.
    """
    lengths = np.array(
        [0, *(k for k in costs.step_s if 0 < k <= most)] if isinstance(costs, TableCosts) else range(most + 1)
    )
    found = speedups(costs, acceptance, np.asarray(batch_sizes, float)[None, :], lengths[:, None], workload)
    found[0] = 1.0  # K = 0 is what a standard node does
    return np.asarray(lengths[np.argmax(found, axis=0)], np.int64)


def curve_of(
    name: str,
    costs: Costs,
    acceptance: AcceptanceCurve,
    k: int,
    batch_sizes: Sequence[float],
    workload: Workload,
    *,
    admitted: Admitted | None = None,
    largest: int = LARGEST_BATCH,
) -> Curve:
    """The curve of one speculator at draft length ``k``.

    With ``admitted``, each arm's aggregate throughput is judged at what it can hold at once, which is where the second
    half of the published rule begins to bind. Raises ImpossibleInput for a negative ``k`` or batch sizes that are none.
    """
    if k < 0:
        raise ImpossibleInput(f"draft length must not be negative, not {k}")
    wanted = np.asarray(sorted(set(batch_sizes)), float)
    if not wanted.size or not (wanted > 0.0).all() or not wanted[-1] <= MOST_BATCH:
        raise ImpossibleInput(f"batch sizes are above 0 and at most {MOST_BATCH:,}, and at least one must be given")
    low, high = costs.batch_range if isinstance(costs, TableCosts) else (1.0, max(float(largest), float(wanted[-1])))
    every = np.unique(np.concatenate([np.arange(low, high + 1.0), wanted]))
    every = every[every <= high]
    speedup = speedups(costs, acceptance, every, k, workload)
    columns = np.broadcast_arrays(wanted, *_arms(costs, acceptance, wanted, k, workload, workload.context))
    lengths = best_k(costs, acceptance, wanted, workload)
    tau = acceptance.tau(k)
    rows = []
    for (batch, gain, tokens, standard, speculative, standard_tps, speculative_tps), length in zip(
        np.stack(columns, axis=1), lengths, strict=True
    ):
        row = Row(
            batch_size=float(batch),
            speedup=float(gain),
            tau=tau,
            tokens_per_step=float(tokens),
            standard_step_ms=float(standard) * 1e3,
            speculative_step_ms=float(speculative) * 1e3,
            standard_user_tps=float(standard_tps),
            speculative_user_tps=float(speculative_tps),
            standard_aggregate_tps=float(batch * standard_tps),
            speculative_aggregate_tps=float(batch * speculative_tps),
            best_k=int(length),
            recommendation=_recommendation(costs, acceptance, k, float(batch), float(gain), workload, admitted),
        )
        rows.append(row)
    points = every.tolist(), speedup.tolist()
    return Curve(name, k, tuple(rows), crossovers_of(*points), shape_of(*points), (tuple(points[0]), tuple(points[1])))


def _recommendation(
    costs: Costs,
    acceptance: AcceptanceCurve,
    k: int,
    batch: float,
    gain: float,
    workload: Workload,
    admitted: Admitted | None,
) -> Recommendation:
    if admitted is None or admitted.speculative is None:
        return recommendation_of(gain, gain, 1.0)
    standard_load = min(batch, admitted.standard)
    speculative_load = min(batch, admitted.speculative)
    if speculative_load < 1:
        return Recommendation.STANDARD
    loads = np.array([standard_load, speculative_load])
    arms = _arms(costs, acceptance, loads, k, workload, workload.context)
    return recommendation_of(gain, float(loads[1] * arms[5][1]), float(loads[0] * arms[4][0]))
