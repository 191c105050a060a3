"""What became of a request."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.core.latency import Latency
from slipstream.load.request import PlannedRequest

__all__ = ["LoadResult"]


@dataclass(frozen=True, slots=True)
class LoadResult:
    """One request as its client saw it. ``None`` = unknown or not said.

    ``concurrency`` is how many clients were at work in its level. ``status`` is the answer's, ``None`` when none came.
    ``error`` is a sentence for a person, ``None`` when the answer came whole. ``node``, ``pool``, ``category`` and
    ``reason`` are what the gateway said in its headers. ``latency`` is of whole answers only. Tokens are those of the
    answer's usage.
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
    prompt_tokens: int | None = None
    output_tokens: int | None = None
