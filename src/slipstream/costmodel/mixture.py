"""Requests that differ: categories on one node, speculators beside one another, alphas within a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slipstream.core.speedup import padded_mean_acceptance_length
from slipstream.costmodel.acceptance import AcceptanceCurve, geometric
from slipstream.costmodel.costs import Costs
from slipstream.costmodel.curve import Workload, speedups
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.rows import Curve

__all__ = ["BestSpeculator", "Exclusion", "Heterogeneous", "best_speculators", "exclusions", "heterogeneous"]


@dataclass(frozen=True, slots=True)
class Exclusion:
    """What to route away at one batch size.

    ``speedup`` is by category, as if it had the node to itself. ``excluded`` are those that gain nothing there, the
    worst first. ``mixed_speedup`` is what the node shows with all of them on it, ``remaining_speedup`` with the rest;
    ``None`` when nothing remains.
    """

    batch_size: float
    speedup: dict[str, float]
    excluded: tuple[str, ...]
    mixed_speedup: float
    remaining_speedup: float | None


@dataclass(frozen=True, slots=True)
class BestSpeculator:
    """Which speculator pays most at a batch size; ``name`` is ``None`` where none pays."""

    batch_size: float
    name: str | None
    speedup: float


@dataclass(frozen=True, slots=True)
class Heterogeneous:
    """A batch whose requests differ in alpha, verified together.

    Ragged kernels keep each request's own tokens; padded ones the batch's least. Wasted shares are of all verified
    draft tokens, 0..1, ``None`` where nothing is drafted.
    """

    batch_size: int
    ragged_tau: float
    padded_tau: float
    ragged_speedup: float
    padded_speedup: float
    ragged_wasted: float | None
    padded_wasted: float | None


def exclusions(
    costs: Costs,
    categories: Mapping[str, AcceptanceCurve],
    shares: Mapping[str, float],
    k: int,
    batch_sizes: Sequence[float],
    workload: Workload,
) -> tuple[Exclusion, ...]:
    """Which categories to exclude at which batch size. ``shares`` are of decode steps, and need not sum to 1.

    Tokens of a mixed batch are the mean over its requests, so a good category hides a bad one: the bad one's requests
    slow everyone's steps and gain nothing. Raises ImpossibleInput for no category, or a share that is missing or not
    positive.
    """
    if not categories:
        raise ImpossibleInput("at least one category is needed")
    for name in categories:
        if not shares.get(name, 0.0) > 0.0:
            raise ImpossibleInput(f"category {name} needs a share above 0")
    share = np.array([shares[name] for name in categories])
    batch = np.asarray(batch_sizes, float)
    alone = np.array([speedups(costs, curve, batch, k, workload) for curve in categories.values()])
    taus = np.array([curve.tau(k) for curve in categories.values()])
    found = []
    for column, batch_size in enumerate(batch.tolist()):
        gains = alone[:, column]
        pays = gains > 1.0
        worst = sorted((float(gain), name) for gain, name in zip(gains, categories, strict=True) if not gain > 1.0)
        found.append(
            Exclusion(
                batch_size,
                dict(zip(categories, gains.tolist(), strict=True)),
                tuple(name for _, name in worst),
                _mixed(costs, taus, share, k, batch_size, workload),
                _mixed(costs, taus[pays], share[pays], k, batch_size, workload) if pays.any() else None,
            )
        )
    return tuple(found)


def _mixed(
    costs: Costs, taus: NDArray[np.float64], share: NDArray[np.float64], k: int, batch_size: float, workload: Workload
) -> float:
    return _gain(costs, float(np.average(taus, weights=share)), k, batch_size, workload)


def _gain(costs: Costs, tau: float, k: int, batch_size: float, workload: Workload) -> float:
    """Speedup at a ``tau`` that is given rather than read off a curve."""
    flat = AcceptanceCurve(0.0, tuple((tau - 1.0) / k for _ in range(k))) if k else geometric(0.0)
    return float(speedups(costs, flat, batch_size, k, workload))


def best_speculators(curves: Sequence[Curve]) -> tuple[BestSpeculator, ...]:
    """Of several speculators' curves over the same batch sizes, the one that pays most at each, or none.

    Raises ImpossibleInput if the curves have rows at different batch sizes.
    """
    if not curves:
        raise ImpossibleInput("at least one curve is needed")
    batches = [tuple(row.batch_size for row in curve.rows) for curve in curves]
    if len(set(batches)) > 1:
        raise ImpossibleInput("curves can only be compared at the same batch sizes")
    found = []
    for index, batch_size in enumerate(batches[0]):
        best = max(curves, key=lambda curve: curve.rows[index].speedup)
        gain = best.rows[index].speedup
        found.append(BestSpeculator(batch_size, best.name if gain > 1.0 else None, gain))
    return tuple(found)


def heterogeneous(costs: Costs, alphas: Sequence[float], k: int, workload: Workload) -> Heterogeneous:
    """A batch with one request of each of ``alphas`` (0..1). For a distribution, give a sample of it or its quantiles.

    Raises ImpossibleInput for no request or an alpha outside 0..1.
    """
    if not alphas:
        raise ImpossibleInput("a batch has at least one request")
    ragged = float(np.mean([geometric(alpha).tau(k) for alpha in alphas]))
    padded = padded_mean_acceptance_length(alphas, k)
    batch = len(alphas)
    return Heterogeneous(
        batch_size=batch,
        ragged_tau=ragged,
        padded_tau=padded,
        ragged_speedup=_gain(costs, ragged, k, batch, workload),
        padded_speedup=_gain(costs, padded, k, batch, workload),
        ragged_wasted=1.0 - (ragged - 1.0) / k if k else None,
        padded_wasted=1.0 - (padded - 1.0) / k if k else None,
    )
