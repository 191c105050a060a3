"""What became of a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.core.latency import Latency
from slipstream.load.request import PlannedRequest

__all__ = ["LoadResult"]


@dataclass(frozen=True, slots=True)
class LoadResult:
    """One request as its client saw it. ``None`` = unknown or not said.

    ``position`` is the request's place among those to be sent, from 0 on. ``concurrency`` is how many clients were at
    work in its level; 0 where requests go out at their times, however many are under way. Times are of the driver's
    clock: ``intended_at`` is when it was to be sent, which its latency counts from, ``sent_at`` when it was, and
    ``ended_at`` when its answer ended or failed.

    ``status`` is the answer's, ``None`` when none came. ``error`` is a sentence for a person, ``None`` when the answer
    came whole. ``node``, ``pool``, ``category`` and ``reason`` are what the gateway said in its headers. ``latency`` is
    of whole answers only. ``chunk_gaps`` are seconds between chunks with content. Tokens are those of its usage.
    ``closing`` are the last two events of a stream, as they came.
    """

    request: PlannedRequest
    concurrency: int
    status: int | None = None
    error: str | None = None
    node: str | None = None
    pool: str | None = None
    category: str | None = None
    reason: str | None = None
    request_id: str | None = None
    latency: Latency | None = None
    chunk_gaps: Sequence[float] = ()
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    closing: Sequence[bytes] = ()
    position: int = 0
    intended_at: float = 0.0
    sent_at: float = 0.0
    ended_at: float = 0.0
