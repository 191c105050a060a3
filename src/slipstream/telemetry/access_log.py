"""The access log: one JSON object a request, whoever answered it. Compiled, since every request has a line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from slipstream.core.acceptance import mean_acceptance_length_from_counts
from slipstream.core.history import History
from slipstream.telemetry.access_line import AccessLine

__all__ = ["MODEL_CHARACTERS", "PATH_CHARACTERS", "AccessLog", "Lines", "milliseconds"]

MODEL_CHARACTERS = 128
PATH_CHARACTERS = 256
"""Of the client's own words, the log keeps this much."""


class Lines(Protocol):
    """Where lines go."""

    def write(self, line: bytes) -> None: ...


class AccessLog:
    """Writes a line for each request that has ended. ``wall_clock`` is the time of day, in seconds since 1970."""

    __slots__ = ("_encode", "_lines", "_wall_clock")

    def __init__(self, lines: Lines, wall_clock: Callable[[], float]) -> None:
        self._lines = lines
        self._wall_clock = wall_clock
        self._encode = msgspec.json.Encoder().encode

    def answered(self, history: History) -> None:
        """A request has ended."""
        received = datetime.fromtimestamp(self._wall_clock() - history.ended_at + history.received_at, UTC)
        self._lines.write(self._encode(_line(history, received)) + b"\n")


def milliseconds(seconds: float | None) -> float | None:
    """To the microsecond, so that the text is short."""
    return None if seconds is None else int(seconds * 1e6 + 0.5) / 1e3


def _rounded(tau: float | None) -> float | None:
    """To four digits after the point, so that the text is short."""
    return None if tau is None else int(tau * 1e4 + 0.5) / 1e4


def _line(history: History, received: datetime) -> AccessLine:
    """The values by position: keywords would cost as much as everything else."""
    shape = history.shape
    attempts = history.attempts
    model = category = traffic_class = streamed = node = pool = reason = None
    ending = prompt_tokens = output_tokens = drafted = accepted = tau = ttft_s = tpot_s = None
    if shape is not None:
        model, category = shape.model[:MODEL_CHARACTERS] or None, shape.category
        traffic_class, streamed = shape.traffic_class, shape.streamed
    if attempts:
        placement = attempts[-1].placement
        decision = placement.decision
        node, pool, reason = decision.node, decision.pool, decision.reason
        outcome = placement.outcome
        if outcome is not None:
            ending, prompt_tokens, output_tokens = outcome.ending, outcome.prompt_tokens, outcome.output_tokens
            latency, sample = outcome.latency, outcome.sample
            if latency is not None:
                ttft_s, tpot_s = latency.ttft_s, latency.tpot_s
            if sample is not None:
                drafted, accepted = sample.drafted, sample.accepted
                if sample.verify_steps is not None:
                    tau = _rounded(mean_acceptance_length_from_counts(accepted, sample.verify_steps))
    return AccessLine(
        received,
        history.request_id,
        history.key_id,
        history.method,
        history.path[:PATH_CHARACTERS],
        history.status,
        history.error,
        model,
        category,
        traffic_class,
        streamed,
        node,
        pool,
        reason,
        len(attempts),
        ending,
        prompt_tokens,
        output_tokens,
        drafted,
        accepted,
        tau,
        milliseconds(ttft_s),
        milliseconds(tpot_s),
        milliseconds(history.ended_at - history.received_at),
        milliseconds(history.queued_s),
    )
