"""The steady part of requests that decode together: from the last first token to the first end, no prompt beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from slipstream.core.acceptance.sample import SpeculationSample
from slipstream.engines.catalogue import read_statistics
from slipstream.load import LoadResult

__all__ = ["Decoded", "steady_part"]

WITHIN_STEP: Final = 0.25
"""Chunks that are nearer than this share of a mean step came from one step."""
FEWEST_STEPS: Final = 2
MOST_CUT_OFF: Final = 16
"""Accepted tokens of a last step that may have been more than the answer had room for, where K is not known."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """One request over the steady part: ``tokens`` in ``steps`` during ``elapsed_s``; the tokens are those of all its
    chunks, by their share. ``cached_tokens`` is its mean context then. ``sample`` is of the whole request, ``None``
    where the engine does not say.
    """

    category: str
    elapsed_s: float
    tokens: float
    steps: float
    cached_tokens: float
    sample: SpeculationSample | None


def steady_part(
    results: Sequence[LoadResult], engine: str | None, *, drafts: bool, k: int | None
) -> tuple[Decoded, ...]:
    """Of requests that were sent together and all came whole, with counted tokens; empty when they did not decode all
    at once for at least two steps.

    ``drafts``: whether the node speculates; one that does not takes a step a token.
    """
    arrivals = [_arrivals(result) for result in results]
    if not arrivals or min(map(len, arrivals)) < 3:
        return ()
    begin, end = max(float(times[0]) for times in arrivals), min(float(times[-1]) for times in arrivals)
    found = [
        _decoded(result, times, begin, end, _sample(result, engine) if drafts else None, drafts=drafts, k=k)
        for result, times in zip(results, arrivals, strict=True)
    ]
    whole = tuple(one for one in found if one is not None)
    return whole if len(whole) == len(found) else ()


def _decoded(
    result: LoadResult,
    times: NDArray[np.float64],
    begin: float,
    end: float,
    sample: SpeculationSample | None,
    *,
    drafts: bool,
    k: int | None,
) -> Decoded | None:
    tokens = result.output_tokens or 0
    fewest = tokens - 1 - (sample.accepted if sample is not None else 0)
    at_most = len(times) - 1 if drafts and sample is None else fewest
    step_s = float(times[-1] - times[0]) / max(1, at_most)
    first_chunks = np.concatenate(([0], 1 + np.flatnonzero(np.diff(times) > WITHIN_STEP * step_s)))
    starts = times[first_chunks]
    # The last step of an answer may have had more tokens than there was room for, so that none counts it.
    inside = np.flatnonzero((starts[:-1] >= begin) & (starts[:-1] <= end))
    if inside.size <= FEWEST_STEPS:
        return None
    low, high = int(inside[0]), int(inside[-1])
    chunks = int(first_chunks[high + 1] - first_chunks[low + 1])
    told = chunks * (tokens - 1) / (len(times) - 1)
    steps = float(high - low)
    if not drafts:
        steps = told
    elif sample is not None:
        # Chunks of several steps may have come together, because an engine or this client was busy: counts know better.
        seen, most = len(starts) - 1, fewest + (MOST_CUT_OFF if k is None else k)
        if not fewest <= seen <= most:
            steps = told * min(max(seen, fewest), most) / (tokens - 1)
    emitted = 1.0 + (tokens - 1) * float(first_chunks[low] + chunks / 2.0) / (len(times) - 1)
    return Decoded(
        result.request.label,
        _lasts_s(starts[low : high + 1]),
        told,
        steps,
        (result.prompt_tokens or 0) + emitted,
        sample,
    )


def _lasts_s(starts: NDArray[np.float64]) -> float:
    """From the first to the last of steps, by a straight line through them all: one that is seen late, at either end,
    would else count for the whole.
    """
    places = np.arange(len(starts)) - (len(starts) - 1) / 2.0
    return float(places @ (starts - starts[0]) / (places @ places) * (len(starts) - 1))


def _arrivals(result: LoadResult) -> NDArray[np.float64]:
    """When each chunk with content came; none of a request that failed, or whose tokens are not known."""
    latency = result.latency
    if latency is None or latency.ttft_s is None or result.output_tokens is None:
        return np.empty(0)
    gaps = np.asarray(result.chunk_gaps, np.float64)
    return np.asarray(result.intended_at + latency.ttft_s + np.concatenate(([0.0], np.cumsum(gaps))))


def _sample(result: LoadResult, engine: str | None) -> SpeculationSample | None:
    return read_statistics(engine, tuple(result.closing)).sample
