"""Loads written down by hand: results of requests, as if a server had been asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.bench.measurement import Measurement
from slipstream.core.latency import latency_of
from slipstream.load import LoadResult, PlannedRequest
from tiny_scenarios import plan_of

__all__ = ["REQUEST", "load_of", "result_of"]

REQUEST = PlannedRequest("m", (), 16, "chat")


def result_of(
    position: int,
    at_s: float,
    *,
    ttft_s: float = 0.1,
    e2e_s: float = 1.1,
    tokens: int | None = 11,
    late_s: float = 0.0,
    label: str = "chat",
    **told: Any,
) -> LoadResult:
    """A request that was to be sent at a time, 100 s on the driver's clock after that of the plan."""
    begin = 100.0 + at_s
    failed = told.get("error") is not None
    return LoadResult(
        PlannedRequest("m", (), 16, label),
        0,
        latency=None if failed else latency_of(begin, begin + ttft_s, begin + e2e_s, tokens),
        output_tokens=tokens,
        prompt_tokens=8,
        position=position,
        intended_at=begin,
        sent_at=begin + late_s,
        ended_at=begin + e2e_s,
        **told,
    )


def load_of(results: Sequence[LoadResult], *, warm_up: int = 0, end_s: float | None = None) -> Measurement:
    """Of requests that were to be sent at their times, in their order."""
    at_s = np.array([result.intended_at - 100.0 for result in results])
    return Measurement(
        plan=plan_of(at_s.tolist()),
        results=results,
        warm_up=warm_up,
        concurrency=None,
        start_at=100.0,
        begin_s=float(at_s[warm_up]),
        end_s=float(at_s[-1]) + 1.0 if end_s is None else end_s,
        wall_s=0.0,
        interrupted=False,
        in_flight=0,
        running=(),
    )
