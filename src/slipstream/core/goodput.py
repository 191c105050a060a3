"""What counts as served in time: one definition for simulator and bench."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.core.latency import Latency

__all__ = ["Target", "meets"]


@dataclass(frozen=True, slots=True)
class Target:
    """Latencies that a request of a class must not exceed, all of those given; ``None`` = that one does not count."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None


def meets(target: Target, latency: Latency, output_tokens: int | None) -> bool:
    """Whether a finished request met its targets. What is unknown is not met, but an answer of one token, which has no
    TPOT, passes that target by definition.
    """
    tpot_s = latency.tpot_s
    if tpot_s is None and output_tokens is not None and output_tokens < 2:
        tpot_s = 0.0
    return (
        _within(latency.ttft_s, target.ttft_s)
        and _within(tpot_s, target.tpot_s)
        and _within(latency.e2e_s, target.e2e_s)
    )


def _within(seconds: float | None, limit_s: float | None) -> bool:
    return limit_s is None or (seconds is not None and seconds <= limit_s)
