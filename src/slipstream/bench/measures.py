"""What a load was worth: goodput, attainment and latencies, with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from slipstream.bench.resampling import Blocks, Distribution, Figure, blocks_of, distribution, given_blocks
from slipstream.bench.samples import Samples
from slipstream.core.interval import interval_of, interval_of_share

__all__ = ["LATE_S", "Measures", "Requests", "attainment_of", "measures_of", "tokens_per_s_of"]

LATE_S = 0.010
"""A generator whose p99 of lateness is above has fallen behind: what it measures is itself."""
SLICES = 20
"""Of a window, each an observation of throughput."""


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests of one kind that count. ``offered`` = ``finished`` + ``failed``. ``goodput``: requests a second of the
    window that met all their targets; ``attainment``: their share of those offered, finished or not. Latencies, in
    seconds, are of those finished, and count from when a request was to be sent.
    """

    offered: int
    finished: int
    failed: int
    goodput: Figure
    attainment: Figure
    ttft: Distribution
    tpot: Distribution
    itl: Distribution
    e2e: Distribution


@dataclass(frozen=True, slots=True)
class Measures:
    """A load on one server. ``tokens_per_s``: output tokens that came in the window, whoever's, each request's spread
    evenly from its first to its end; ``requests_per_s``: answers that ended in it. ``late_p50_s`` and
    ``late_p99_s``: how much later than intended requests were sent; ``fell_behind``: so late that the figures say more
    of the generator. Tokens are means of those that say them.
    """

    requests: Requests
    categories: Mapping[str, Requests]
    window_s: float
    tokens_per_s: Figure
    requests_per_s: Figure
    prompt_tokens: float | None
    output_tokens: float | None
    late_p50_s: float
    late_p99_s: float
    fell_behind: bool


def measures_of(samples: Samples) -> Measures:
    """Of the requests that count; by category, too, where there are several."""
    blocks = _blocks(samples)
    names = sorted({name for name, own in zip(samples.category, samples.counted, strict=True) if own})
    category = np.array(samples.category)
    late = samples.late_s[samples.counted]
    late_p50, late_p99 = np.percentile(late, (50.0, 99.0)).tolist() if late.size else (0.0, 0.0)
    return Measures(
        requests=_requests(samples, samples.counted, blocks),
        categories={
            name: _requests(samples, samples.counted & (category == name), blocks)
            for name in (names if len(names) > 1 else ())
        },
        window_s=samples.window_s,
        tokens_per_s=tokens_per_s_of(samples),
        requests_per_s=_rate(samples, _ends_within),
        prompt_tokens=_mean(samples.prompt_tokens[samples.counted]),
        output_tokens=_mean(samples.output_tokens[samples.counted]),
        late_p50_s=late_p50,
        late_p99_s=late_p99,
        fell_behind=late_p99 > LATE_S,
    )


def _requests(samples: Samples, mine: NDArray[np.bool_], blocks: Blocks) -> Requests:
    """Of the rows ``mine``, resampled by ``blocks``."""
    rows = np.flatnonzero(mine)
    finished = int(samples.finished[mine].sum())
    own_gaps = mine[samples.gap_row]
    attainment = attainment_of(samples.good[mine], blocks.of_row[rows])
    return Requests(
        offered=len(rows),
        finished=finished,
        failed=len(rows) - finished,
        goodput=_times(attainment, len(rows) / samples.window_s if samples.window_s > 0.0 else None),
        attainment=attainment,
        ttft=distribution(samples.ttft_s[mine], rows, blocks),
        tpot=distribution(samples.tpot_s[mine], rows, blocks),
        itl=distribution(samples.gaps_s[own_gaps], samples.gap_row[own_gaps], blocks),
        e2e=distribution(samples.e2e_s[mine], rows, blocks),
    )


def attainment_of(good: NDArray[np.bool_], block: NDArray[np.int64]) -> Figure:
    """The share that is good. Where blocks differ more than chance makes them, requests count as fewer observations:
    the design effect (L. Kish, Survey Sampling, 1965) divides their number in Wilson's interval.
    """
    count = len(good)
    if not count:
        return Figure()
    share = float(good.mean())
    sizes = np.bincount(block)
    sizes, hits = sizes[sizes > 0], np.bincount(block, weights=good)[sizes > 0]
    effect = 1.0
    if len(sizes) > 1 and 0.0 < share < 1.0:
        # The variance of a ratio estimator over blocks, against that of as many independent requests.
        by_block = len(sizes) / (len(sizes) - 1) * float(((hits - share * sizes) ** 2).sum()) / count**2
        effect = max(1.0, by_block / (share * (1.0 - share) / count))
    return Figure(share, interval_of_share(share, count / effect))


def _blocks(samples: Samples) -> Blocks:
    """Blocks of the rows that count; those of the warm-up lie in the first one and are never asked for."""
    counted = blocks_of(int(samples.counted.sum()))
    of_row = np.zeros(len(samples), np.int64)
    of_row[samples.counted] = counted.of_row
    return given_blocks(of_row, counted.count)


def _times(share: Figure, factor: float | None) -> Figure:
    if share.value is None or factor is None:
        return Figure()
    ends = share.interval
    return Figure(share.value * factor, None if ends is None else (ends[0] * factor, ends[1] * factor))


def _mean(values: NDArray[np.float64]) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


def tokens_per_s_of(samples: Samples) -> Figure:
    """As of `Measures`; unknown when no answer says its tokens."""
    return _rate(samples, _tokens_within)


def _rate(samples: Samples, within: Callable[[Samples, float, float], float | None]) -> Figure:
    """A second of the windows; each slice of them is an observation."""
    if not samples.window_s > 0.0:
        return Figure()
    each = max(2, SLICES // len(samples.windows_s))
    total, rates = 0.0, []
    for begin, end in samples.windows_s:
        edges = np.linspace(begin, end, each + 1).tolist()
        for lower, upper in pairwise(edges):
            found = within(samples, lower, upper)
            if found is None:
                return Figure()
            total += found
            rates.append(found / (upper - lower) if upper > lower else 0.0)
    return Figure(total / samples.window_s, interval_of(rates))


def _tokens_within(samples: Samples, begin: float, end: float) -> float | None:
    """``None`` when no answer says its tokens. Those of a failed one are not known."""
    known = ~np.isnan(samples.output_tokens) & samples.finished & (samples.output_tokens > 0.0)
    if not known.any():
        return None
    first = (samples.begin_s + samples.ttft_s)[known]
    last = samples.end_s[known]
    tokens = samples.output_tokens[known]
    took = np.maximum(last - first, 0.0)
    inside = np.clip(np.minimum(last, end) - np.maximum(first, begin), 0.0, None)
    share = np.where(took > 0.0, inside / np.where(took > 0.0, took, 1.0), (last >= begin) & (last < end))
    return float(((first >= begin) & (first < end)).sum() + ((tokens - 1.0) * share).sum())


def _ends_within(samples: Samples, begin: float, end: float) -> float:
    ended = samples.end_s[samples.finished]
    return float(((ended >= begin) & (ended < end)).sum())
