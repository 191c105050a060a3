"""Writes recordings of traffic and decisions as requests end. Compiled, since every request has a line."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from slipstream.core.history import Attempt, History
from slipstream.core.request import RequestShape
from slipstream.telemetry.access_log import MODEL_CHARACTERS, PATH_CHARACTERS, Lines, milliseconds
from slipstream.telemetry.recording import FORMAT, RecordedAttempt, RecordedRequest, RecordedShape

__all__ = ["Recorder"]

PREVIOUS_CHARACTERS = 128
"""Of the id of a response that a request refers to, so much is kept."""


class Recorder:
    """Writes a line for each request that has ended.

    ``began_at`` is where the recording's own time begins, on the clock of the histories. ``wall_clock`` is the time of
    day, in seconds since 1970.
    """

    __slots__ = ("_began_at", "_encode", "_lines", "_wall_clock")

    def __init__(self, lines: Lines, began_at: float, wall_clock: Callable[[], float]) -> None:
        self._lines = lines
        self._began_at = began_at
        self._wall_clock = wall_clock
        self._encode = msgspec.json.Encoder().encode

    def answered(self, history: History) -> None:
        """A request has ended."""
        received_at = history.received_at
        took = history.ended_at - received_at
        shape = history.shape
        line = RecordedRequest(
            FORMAT,
            history.request_id,
            _microseconds(self._wall_clock() - took),
            _microseconds(received_at - self._began_at),
            _microseconds(took),
            history.key_id,
            history.method,
            history.path[:PATH_CHARACTERS],
            None if shape is None else _shape(shape),
            tuple([_attempt(attempt, received_at) for attempt in history.attempts]),
            history.status,
            history.error,
        )
        self._lines.write(self._encode(line) + b"\n")


def _shape(shape: RequestShape) -> RecordedShape:
    return RecordedShape(
        shape.model[:MODEL_CHARACTERS],
        shape.category,
        shape.traffic_class,
        shape.sequences,
        shape.output_limit,
        shape.streamed,
        shape.prompt_characters,
        shape.features,
        shape.pinned_pool,
        None if shape.previous_response is None else shape.previous_response[:PREVIOUS_CHARACTERS],
        shape.decodes,
        shape.session,
        shape.cache_keys,
        shape.key_id,
        shape.pinned_by,
    )


def _attempt(attempt: Attempt, received_at: float) -> RecordedAttempt:
    """The values by position: keywords would cost as much as everything else."""
    placement = attempt.placement
    decision, outcome = placement.decision, placement.outcome
    ending = status = prompt_tokens = output_tokens = drafted = accepted = verify_steps = None
    ttft_s = tpot_s = e2e_s = None
    if outcome is not None:
        ending, status = outcome.ending, outcome.status
        prompt_tokens, output_tokens = outcome.prompt_tokens, outcome.output_tokens
        latency, sample = outcome.latency, outcome.sample
        if sample is not None:
            drafted, accepted, verify_steps = sample.drafted, sample.accepted, sample.verify_steps
        if latency is not None:
            ttft_s, tpot_s, e2e_s = latency.ttft_s, latency.tpot_s, latency.e2e_s
    return RecordedAttempt(
        _microseconds(decision.at - received_at),
        decision.node,
        decision.pool,
        decision.reason,
        decision.fleet_version,
        decision.draw,
        attempt.occupancy,
        attempt.ceiling,
        attempt.limit,
        ending,
        status,
        prompt_tokens,
        output_tokens,
        drafted,
        accepted,
        verify_steps,
        milliseconds(ttft_s),
        milliseconds(tpot_s),
        milliseconds(e2e_s),
    )


def _microseconds(seconds: float) -> float:
    """Seconds, to the microsecond, so that the text is short."""
    return int(seconds * 1e6 + 0.5) / 1e6
