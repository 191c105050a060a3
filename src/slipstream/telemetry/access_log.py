"""The access log: one JSON object a request, whoever answered it. Compiled, since every request has a line.

docs/reference/access-log.md says what each key means. Unknown is null.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from slipstream.core.acceptance import mean_acceptance_length_from_counts
from slipstream.core.history import History
from slipstream.core.outcome import Outcome
from slipstream.telemetry.json_text import (
    POINT_THREE,
    THREE,
    Fragments,
    encoded,
    four_digits,
    micros,
    milliseconds,
    whole,
)

__all__ = ["MODEL_CHARACTERS", "PATH_CHARACTERS", "AccessLog", "beginning_of"]

MODEL_CHARACTERS: Final = 128
PATH_CHARACTERS: Final = 256
"""Of the client's own words, the log keeps this much."""

_REPEATING: Final = (
    "key",
    "method",
    "path",
    "status",
    "error",
    "model",
    "category",
    "traffic_class",
    "streamed",
    "node",
    "pool",
    "reason",
    "attempts",
    "ending",
)
"""Of all requests there are few different combinations of these."""

_NO_SAMPLE: Final = b',"drafted":null,"accepted":null,"tau":null'
_NO_TIMES: Final = b',"ttft_ms":null,"tpot_ms":null'
_NO_FIGURES: Final = b',"prompt_tokens":null,"output_tokens":null' + _NO_SAMPLE + _NO_TIMES


class AccessLog:
    """Makes the line of each request that has ended."""

    __slots__ = ("_fragments", "_second", "_second_text")

    def __init__(self) -> None:
        self._fragments = Fragments()
        self._second = -1
        self._second_text = b""

    def line(self, history: History, ended_at: float) -> bytes:
        """What is told of a request that ended at this time of day, in seconds since 1970."""
        took = history.ended_at - history.received_at
        at, lasted = micros(ended_at - took), micros(took)
        second = at // 1_000_000
        if second != self._second:
            self._second = second
            self._second_text = f'{{"time":"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}'.encode()
        attempts = history.attempts
        outcome = attempts[-1].placement.outcome if attempts else None
        return b'%b%b%bZ","id":%b,%b%b,"e2e_ms":%b%b,"queued_ms":%b}\n' % (
            self._second_text,
            POINT_THREE[at // 1000 % 1000],
            THREE[at % 1000],
            encoded(history.request_id),
            self._repeating(history, outcome),
            _NO_FIGURES if outcome is None else _figures(outcome),
            whole(lasted // 1000),
            POINT_THREE[lasted % 1000],
            milliseconds(history.queued_s),
        )

    def _repeating(self, history: History, outcome: Outcome | None) -> bytes:
        shape, attempts = history.shape, history.attempts
        model = category = traffic_class = streamed = node = pool = reason = None
        if shape is not None:
            model, category = beginning_of(shape.model, MODEL_CHARACTERS) or None, shape.category
            traffic_class, streamed = shape.traffic_class, shape.streamed
        if attempts:
            decision = attempts[-1].placement.decision
            node, pool, reason = decision.node, decision.pool, decision.reason
        source: tuple[object, ...] = (
            history.key_id,
            history.method,
            beginning_of(history.path, PATH_CHARACTERS),
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
            None if outcome is None else outcome.ending,
        )
        known = self._fragments.get(source)
        if known is None:
            known = self._fragments.learn(source, encoded(dict(zip(_REPEATING, source, strict=True)))[1:-1])
        return known


def beginning_of(words: str, characters: int) -> str:
    """As much of a client's words as is kept."""
    return words if len(words) <= characters else words[:characters]


def _figures(outcome: Outcome) -> bytes:
    latency, sample = outcome.latency, outcome.sample
    speculation, times = _NO_SAMPLE, _NO_TIMES
    if sample is not None:
        steps = sample.verify_steps
        tau = None if steps is None else mean_acceptance_length_from_counts(sample.accepted, steps)
        speculation = b',"drafted":%b,"accepted":%b,"tau":%b' % (
            whole(sample.drafted),
            whole(sample.accepted),
            four_digits(tau),
        )
    if latency is not None and latency.ttft_s is not None:  # without that there is no time per token either
        times = b',"ttft_ms":%b,"tpot_ms":%b' % (milliseconds(latency.ttft_s), milliseconds(latency.tpot_s))
    return b',"prompt_tokens":%b,"output_tokens":%b%b%b' % (
        whole(outcome.prompt_tokens),
        whole(outcome.output_tokens),
        speculation,
        times,
    )
