"""Speculative against standard, as the demo's clients saw them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median
from typing import Any

from slipstream.core.request import Pool
from slipstream.load import LoadResult

__all__ = ["PoolLatency", "Ranked", "by_category_and_pool", "compare", "latency_rows", "ranked"]

CLEAR = 1.96
"""Standard errors by which ranks must differ to be called different: one in twenty chance pairs would."""


@dataclass(frozen=True, slots=True)
class PoolLatency:
    """Whole streamed answers of one category from one pool. Times are medians in ms; ``None`` = none was measured."""

    requests: int
    ttft_ms: float | None
    tpot_ms: float | None


@dataclass(frozen=True, slots=True)
class Ranked:
    """A rank comparison of two groups over strata.

    ``pairs`` is how many pairs of one speculative and one standard request were compared; ``faster_share`` the share
    of them in which the speculative one was faster, ties counting half, ``None`` without pairs. ``z`` is the distance
    from one half in standard errors; ``None`` where it can not be told.
    """

    pairs: int
    faster_share: float | None
    z: float | None

    @property
    def verdict(self) -> str:
        """``faster``, ``slower`` or ``no clear difference``, of the speculative pool."""
        if self.z is None or abs(self.z) < CLEAR:
            return "no clear difference"
        return "faster" if self.z > 0 else "slower"


Stratum = tuple[Sequence[float], Sequence[float]]
"""Times of speculative and of standard requests that can be compared: smaller is better."""


def ranked(strata: Iterable[Stratum]) -> Ranked:
    """Mann and Whitney's U summed over strata, each with its own mean m·n/2 and tie-corrected variance.

    Only requests of one stratum are compared with one another, so a mix of categories or of loads that differs between
    the pools can not look like an effect (B. van Elteren, 1960, with equal weights).
    """
    pairs, wins, variance = 0, 0.0, 0.0
    for speculative, standard in strata:
        m, n = len(speculative), len(standard)
        if not m or not n:
            continue
        pairs += m * n
        wins += sum((mine < other) + 0.5 * (mine == other) for mine in speculative for other in standard)
        times = [*speculative, *standard]
        ties = sum(count**3 - count for count in (times.count(time) for time in set(times)))
        total = m + n
        variance += m * n / 12 * ((total + 1) - ties / (total * (total - 1)))
    if not pairs:
        return Ranked(0, None, None)
    return Ranked(pairs, wins / pairs, (wins - pairs / 2) / sqrt(variance) if variance > 0 else None)


def compare(results: Iterable[LoadResult]) -> tuple[Ranked, Ranked]:
    """TTFT and TPOT of the two pools, each request compared with those of its own category and concurrency."""
    ttft: dict[tuple[str, int], tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    tpot: dict[tuple[str, int], tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for result in results:
        if result.latency is None or result.category is None:
            continue
        stratum = result.category, result.concurrency
        side = 0 if result.pool == Pool.SPECULATIVE else 1
        if result.latency.ttft_s is not None:
            ttft[stratum][side].append(result.latency.ttft_s)
        if result.latency.tpot_s is not None:
            tpot[stratum][side].append(result.latency.tpot_s)
    return ranked(ttft.values()), ranked(tpot.values())


def by_category_and_pool(results: Iterable[LoadResult]) -> dict[str, dict[str, PoolLatency]]:
    """Medians of each category and pool that gave whole answers."""
    grouped: dict[str, dict[str, list[LoadResult]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        if result.latency is not None and result.category is not None and result.pool is not None:
            grouped[result.category][result.pool].append(result)
    return {
        category: {pool: _pool_latency(grouped[category][pool]) for pool in sorted(grouped[category])}
        for category in sorted(grouped)
    }


def latency_rows(results: Iterable[LoadResult]) -> list[dict[str, Any]]:
    """The same for JSON: one row a category and pool."""
    return [
        {
            "category": category,
            "pool": pool,
            "requests": latency.requests,
            "ttft_ms": latency.ttft_ms,
            "tpot_ms": latency.tpot_ms,
        }
        for category, pools in by_category_and_pool(results).items()
        for pool, latency in pools.items()
    ]


def _pool_latency(results: Sequence[LoadResult]) -> PoolLatency:
    latencies = [result.latency for result in results if result.latency is not None]
    return PoolLatency(
        len(latencies),
        _median_ms([latency.ttft_s for latency in latencies]),
        _median_ms([latency.tpot_s for latency in latencies]),
    )


def _median_ms(seconds: Iterable[float | None]) -> float | None:
    known = [value for value in seconds if value is not None]
    return median(known) * 1e3 if known else None
