"""Writes recordings of traffic and decisions as requests end. Compiled, since every request has a line.

docs/reference/decisions-jsonl.md is the format; `recording` reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from slipstream.core.history import Attempt, History
from slipstream.core.outcome import Outcome
from slipstream.core.request import RequestShape
from slipstream.telemetry.access_log import MODEL_CHARACTERS, PATH_CHARACTERS, Lines
from slipstream.telemetry.json_text import Strings, exact, microseconds, milliseconds, once, truth, whole
from slipstream.telemetry.recording import FORMAT

__all__ = ["Recorder"]

PREVIOUS_CHARACTERS: Final = 128
"""Of the id of a response that a request refers to, so much is kept."""

_BEGINNING: Final = f'{{"format":{FORMAT},"id":'
_NO_SAMPLE: Final = '"drafted":null,"accepted":null,"verify_steps":null'
_NO_LATENCY: Final = '"ttft_ms":null,"tpot_ms":null,"e2e_ms":null'
_NO_OUTCOME: Final = f'"ending":null,"status":null,"prompt_tokens":null,"output_tokens":null,{_NO_SAMPLE},{_NO_LATENCY}'


class Recorder:
    """Writes a line for each request that has ended.

    ``began_at`` is where the recording's own time begins, on the clock of the histories. ``wall_clock`` is the time of
    day, in seconds since 1970.
    """

    __slots__ = ("_began_at", "_lines", "_strings", "_wall_clock")

    def __init__(self, lines: Lines, began_at: float, wall_clock: Callable[[], float]) -> None:
        self._lines = lines
        self._began_at = began_at
        self._wall_clock = wall_clock
        self._strings = Strings()

    def answered(self, history: History) -> None:
        """A request has ended."""
        strings = self._strings
        received_at = history.received_at
        took = history.ended_at - received_at
        shape, attempts = history.shape, history.attempts
        line = (
            f"{_BEGINNING}{once(history.request_id)},"
            f'"time":{microseconds(self._wall_clock() - took)},'
            f'"arrival_s":{microseconds(received_at - self._began_at)},'
            f'"duration_s":{microseconds(took)},'
            f'"key":{strings.text(history.key_id)},'
            f'"method":{strings.text(history.method)},'
            f'"path":{strings.text(history.path[:PATH_CHARACTERS])},'
            f'"shape":{"null" if shape is None else self._shape(shape)},'
            f'"attempts":[{self._attempts(attempts, received_at)}],'
            f'"status":{whole(history.status)},'
            f'"error":{strings.text(history.error)}}}\n'
        )
        self._lines.write(line.encode())

    def _shape(self, shape: RequestShape) -> str:
        strings = self._strings
        traffic_class: str = shape.traffic_class
        previous = shape.previous_response
        features, keys = shape.features, shape.cache_keys
        return (
            f'{{"model":{strings.text(shape.model[:MODEL_CHARACTERS])},'
            f'"category":{strings.text(shape.category)},'
            f'"traffic_class":"{traffic_class}",'
            f'"sequences":{whole(shape.sequences)},'
            f'"output_limit":{whole(shape.output_limit)},'
            f'"streamed":{truth(shape.streamed)},'
            f'"prompt_characters":{whole(shape.prompt_characters)},'
            f'"features":[{",".join([strings.text(feature) for feature in features]) if features else ""}],'
            f'"pinned_pool":{strings.text(shape.pinned_pool)},'
            f'"previous_response":{"null" if previous is None else once(previous[:PREVIOUS_CHARACTERS])},'
            f'"decodes":{truth(shape.decodes)},'
            f'"session":{whole(shape.session)},'
            f'"cache_keys":[{",".join([str(key) for key in keys]) if keys else ""}],'
            f'"key_id":{strings.text(shape.key_id)},'
            f'"pinned_by":{strings.text(shape.pinned_by)}}}'
        )

    def _attempts(self, attempts: tuple[Attempt, ...], received_at: float) -> str:
        if len(attempts) == 1:
            return self._attempt(attempts[0], received_at)
        return ",".join([self._attempt(attempt, received_at) for attempt in attempts])

    def _attempt(self, attempt: Attempt, received_at: float) -> str:
        placement = attempt.placement
        decision, outcome = placement.decision, placement.outcome
        pool: str = decision.pool
        reason: str = decision.reason
        return (
            f'{{"at_s":{microseconds(decision.at - received_at)},'
            f'"node":{self._strings.text(decision.node)},'
            f'"pool":"{pool}",'
            f'"reason":"{reason}",'
            f'"fleet_version":{whole(decision.fleet_version)},'
            f'"draw":{exact(decision.draw)},'
            f'"occupancy":{whole(attempt.occupancy)},'
            f'"ceiling":{whole(attempt.ceiling)},'
            f'"limit":{whole(attempt.limit)},'
            f"{_NO_OUTCOME if outcome is None else _outcome(outcome)}}}"
        )


def _outcome(outcome: Outcome) -> str:
    ending: str = outcome.ending
    latency, sample = outcome.latency, outcome.sample
    speculation, times = _NO_SAMPLE, _NO_LATENCY
    if sample is not None:
        speculation = (
            f'"drafted":{whole(sample.drafted)},'
            f'"accepted":{whole(sample.accepted)},'
            f'"verify_steps":{whole(sample.verify_steps)}'
        )
    if latency is not None:
        times = (
            f'"ttft_ms":{milliseconds(latency.ttft_s)},'
            f'"tpot_ms":{milliseconds(latency.tpot_s)},'
            f'"e2e_ms":{milliseconds(latency.e2e_s)}'
        )
    return (
        f'"ending":"{ending}",'
        f'"status":{whole(outcome.status)},'
        f'"prompt_tokens":{whole(outcome.prompt_tokens)},'
        f'"output_tokens":{whole(outcome.output_tokens)},'
        f"{speculation},"
        f"{times}"
    )
