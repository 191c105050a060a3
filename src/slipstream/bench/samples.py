"""The requests of a measurement as columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slipstream.bench.measurement import Measurement
from slipstream.core.goodput import Target, meets

__all__ = ["Samples", "joined", "samples_of"]

Column = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """One row a request that ended, in the order in which they were to be sent. NaN = unknown.

    ``counted``: was no warm-up. ``finished``: its answer came whole; ``good``: and met all its targets. ``begin_s`` is
    when it was to be sent and ``end_s`` when its answer ended, in seconds since the first was to be sent; ``late_s``
    how much later it was sent. Latencies are of those finished. ``gaps_s`` are the seconds between chunks, and
    ``gap_row`` the row that each belongs to. ``errors``: how often which, of those that count. ``windows_s`` are the
    seconds over which those that count were to be sent: several where measurements were joined.
    """

    counted: Flags
    finished: Flags
    good: Flags
    begin_s: Column
    end_s: Column
    late_s: Column
    ttft_s: Column
    tpot_s: Column
    e2e_s: Column
    prompt_tokens: Column
    output_tokens: Column
    gaps_s: Column
    gap_row: NDArray[np.int64]
    category: tuple[str, ...]
    reason: tuple[str | None, ...]
    errors: Counter[str]
    windows_s: tuple[tuple[float, float], ...]

    def __len__(self) -> int:
        return len(self.begin_s)

    @property
    def window_s(self) -> float:
        """How long all windows are together."""
        return sum(end - begin for begin, end in self.windows_s)


def samples_of(measurement: Measurement, target: Target) -> Samples:
    """Columns of a measurement, held against a target."""
    results = measurement.results
    start_at = measurement.start_at
    whole = [result.latency if result.error is None else None for result in results]
    good = [
        latency is not None and meets(target, latency, result.output_tokens)
        for latency, result in zip(whole, results, strict=True)
    ]
    counted = [result.position >= measurement.warm_up for result in results]
    gaps = [np.asarray(result.chunk_gaps, np.float64) for result in results]
    return Samples(
        counted=np.array(counted, np.bool_),
        finished=np.array([latency is not None for latency in whole], np.bool_),
        good=np.array(good, np.bool_),
        begin_s=_column([result.intended_at - start_at for result in results]),
        end_s=_column([result.ended_at - start_at for result in results]),
        late_s=_column([result.sent_at - result.intended_at for result in results]),
        ttft_s=_column([None if latency is None else latency.ttft_s for latency in whole]),
        tpot_s=_column([None if latency is None else latency.tpot_s for latency in whole]),
        e2e_s=_column([None if latency is None else latency.e2e_s for latency in whole]),
        prompt_tokens=_column([result.prompt_tokens for result in results]),
        output_tokens=_column([result.output_tokens for result in results]),
        gaps_s=np.concatenate(gaps) if gaps else np.empty(0),
        gap_row=np.repeat(np.arange(len(results)), [len(one) for one in gaps]),
        category=tuple(result.request.label for result in results),
        reason=tuple(result.reason for result in results),
        errors=Counter(
            result.error for result, own in zip(results, counted, strict=True) if own and result.error is not None
        ),
        windows_s=((measurement.begin_s, measurement.end_s),),
    )


def joined(parts: Sequence[Samples]) -> Samples:
    """Several measurements one after another, as if each had begun when the one before had ended."""
    offsets = np.cumsum([0.0, *(max([0.0, *part.end_s.tolist()]) for part in parts)])
    rows = np.cumsum([0, *(len(part) for part in parts)])

    def column(name: str) -> Column:
        return np.concatenate([getattr(part, name) for part in parts])

    def flags(name: str) -> Flags:
        return np.concatenate([getattr(part, name) for part in parts])

    return Samples(
        counted=flags("counted"),
        finished=flags("finished"),
        good=flags("good"),
        begin_s=np.concatenate([part.begin_s + offset for part, offset in zip(parts, offsets, strict=False)]),
        end_s=np.concatenate([part.end_s + offset for part, offset in zip(parts, offsets, strict=False)]),
        late_s=column("late_s"),
        ttft_s=column("ttft_s"),
        tpot_s=column("tpot_s"),
        e2e_s=column("e2e_s"),
        prompt_tokens=column("prompt_tokens"),
        output_tokens=column("output_tokens"),
        gaps_s=column("gaps_s"),
        gap_row=np.concatenate([part.gap_row + row for part, row in zip(parts, rows, strict=False)]),
        category=tuple(name for part in parts for name in part.category),
        reason=tuple(reason for part in parts for reason in part.reason),
        errors=sum((part.errors for part in parts), Counter()),
        windows_s=tuple(
            (begin + offset, end + offset)
            for part, offset in zip(parts, offsets, strict=False)
            for begin, end in part.windows_s
        ),
    )


def _column(values: Sequence[float | None]) -> Column:
    return np.array([np.nan if value is None else value for value in values], np.float64)
