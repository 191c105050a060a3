"""The access log: one JSON object a request, whoever answered it. Compiled, since every request has a line.

docs/reference/access-log.md says what each key means. Unknown is null.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Protocol

from slipstream.core.acceptance import mean_acceptance_length_from_counts
from slipstream.core.history import Attempt, History
from slipstream.core.outcome import Outcome
from slipstream.core.request import RequestShape
from slipstream.telemetry.json_text import Strings, four_digits, milliseconds, once, six_digits, truth, whole

__all__ = ["MODEL_CHARACTERS", "PATH_CHARACTERS", "AccessLog", "Lines"]

MODEL_CHARACTERS: Final = 128
PATH_CHARACTERS: Final = 256
"""Of the client's own words, the log keeps this much."""

_NO_SHAPE: Final = '"model":null,"category":null,"traffic_class":null,"streamed":null'
_NO_NODE: Final = '"node":null,"pool":null,"reason":null,"attempts":0'
_NO_LATENCY: Final = '"ttft_ms":null,"tpot_ms":null'
_NO_SAMPLE: Final = '"drafted":null,"accepted":null,"tau":null'
_NO_OUTCOME: Final = f'"ending":null,"prompt_tokens":null,"output_tokens":null,{_NO_SAMPLE},{_NO_LATENCY}'


class Lines(Protocol):
    """Where lines go."""

    def write(self, line: bytes) -> None: ...


class AccessLog:
    """Writes a line for each request that has ended. ``wall_clock`` is the time of day, in seconds since 1970."""

    __slots__ = ("_lines", "_second", "_second_text", "_strings", "_wall_clock")

    def __init__(self, lines: Lines, wall_clock: Callable[[], float]) -> None:
        self._lines = lines
        self._wall_clock = wall_clock
        self._strings = Strings()
        self._second = -1
        self._second_text = ""

    def answered(self, history: History) -> None:
        """A request has ended."""
        strings = self._strings
        took = history.ended_at - history.received_at
        shape, attempts = history.shape, history.attempts
        outcome = attempts[-1].placement.outcome if attempts else None
        line = (
            f'{{"time":"{self._time(self._wall_clock() - took)}",'
            f'"id":{once(history.request_id)},'
            f'"key":{strings.text(history.key_id)},'
            f'"method":{strings.text(history.method)},'
            f'"path":{strings.text(history.path[:PATH_CHARACTERS])},'
            f'"status":{whole(history.status)},'
            f'"error":{strings.text(history.error)},'
            f"{_NO_SHAPE if shape is None else self._shape(shape)},"
            f"{self._placed(attempts) if attempts else _NO_NODE},"
            f"{_NO_OUTCOME if outcome is None else _outcome(outcome)},"
            f'"e2e_ms":{milliseconds(took)},'
            f'"queued_ms":{milliseconds(history.queued_s)}}}\n'
        )
        self._lines.write(line.encode())

    def _time(self, at: float) -> str:
        """RFC 3339, to the microsecond."""
        micros = int(at * 1e6 + 0.5)
        second = micros // 1_000_000
        if second != self._second:
            self._second = second
            self._second_text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        below = micros % 1_000_000
        return f"{self._second_text}.{six_digits(below)}Z" if below else f"{self._second_text}Z"

    def _shape(self, shape: RequestShape) -> str:
        strings = self._strings
        traffic_class: str = shape.traffic_class
        return (
            f'"model":{strings.text(shape.model[:MODEL_CHARACTERS] or None)},'
            f'"category":{strings.text(shape.category)},'
            f'"traffic_class":"{traffic_class}",'
            f'"streamed":{truth(shape.streamed)}'
        )

    def _placed(self, attempts: tuple[Attempt, ...]) -> str:
        decision = attempts[-1].placement.decision
        pool: str = decision.pool
        reason: str = decision.reason
        return (
            f'"node":{self._strings.text(decision.node)},'
            f'"pool":"{pool}",'
            f'"reason":"{reason}",'
            f'"attempts":{whole(len(attempts))}'
        )


def _outcome(outcome: Outcome) -> str:
    ending: str = outcome.ending
    latency, sample = outcome.latency, outcome.sample
    speculation, times = _NO_SAMPLE, _NO_LATENCY
    if sample is not None:
        steps = sample.verify_steps
        tau = None if steps is None else mean_acceptance_length_from_counts(sample.accepted, steps)
        speculation = f'"drafted":{whole(sample.drafted)},"accepted":{whole(sample.accepted)},"tau":{four_digits(tau)}'
    if latency is not None:
        times = f'"ttft_ms":{milliseconds(latency.ttft_s)},"tpot_ms":{milliseconds(latency.tpot_s)}'
    return (
        f'"ending":"{ending}",'
        f'"prompt_tokens":{whole(outcome.prompt_tokens)},'
        f'"output_tokens":{whole(outcome.output_tokens)},'
        f"{speculation},"
        f"{times}"
    )
