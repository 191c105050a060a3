"""Recordings of traffic and decisions, one JSON object a request: written as requests end, read back for replay.

docs/reference/decisions-jsonl.md is the format. No text of a request is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from slipstream.core.errors import SlipstreamError
from slipstream.core.history import Attempt, History
from slipstream.core.outcome import Ending
from slipstream.core.policy import Reason
from slipstream.core.request import Pool, RequestShape
from slipstream.telemetry.access_log import MODEL_CHARACTERS, PATH_CHARACTERS, Lines, milliseconds

__all__ = ["FORMAT", "RecordedAttempt", "RecordedRequest", "Recorder", "RecordingUnreadable", "read_recording"]

FORMAT = 1
"""The version of the format. It goes up when a key changes its meaning or goes away; keys that are added leave it."""


class RecordingUnreadable(SlipstreamError):
    """A recording can not be read, or not as one."""


class RecordedAttempt(msgspec.Struct, gc=False, frozen=True):
    """One placement. ``at_s`` is seconds after the request's arrival; the rest as in `Decision`, `Attempt`, `Outcome`.

    ``ended_at_s`` is not recorded: a request's last attempt ends with it, an earlier one just before the next begins.
    """

    at_s: float
    node: str
    pool: Pool
    reason: Reason
    fleet_version: int
    draw: float
    occupancy: int
    ceiling: int
    limit: int
    ending: Ending | None = None
    status: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    verify_steps: int | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None


class RecordedRequest(msgspec.Struct, gc=False, frozen=True):
    """One request.

    ``time`` is its arrival in seconds since 1970, ``arrival_s`` the same in seconds since the recording began, on a
    clock that never jumps (it begins again at 0 when the gateway starts). ``duration_s`` is how long it took. ``shape``
    is ``None`` when it concerned no node or could not be read; ``attempts`` is empty when no node was found, and
    ``error`` then says why. ``status`` and ``error`` are what the client got, as in `History`.
    """

    format: int
    id: str
    time: float
    arrival_s: float
    duration_s: float
    key: str | None
    method: str
    path: str
    shape: RequestShape | None
    attempts: tuple[RecordedAttempt, ...]
    status: int | None
    error: str | None


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
        line = {
            "format": FORMAT,
            "id": history.request_id,
            "time": _microseconds(self._wall_clock() - took),
            "arrival_s": _microseconds(received_at - self._began_at),
            "duration_s": _microseconds(took),
            "key": history.key_id,
            "method": history.method,
            "path": history.path[:PATH_CHARACTERS],
            "shape": None if shape is None else _shape_fields(shape),
            "attempts": [_attempt(attempt, received_at) for attempt in history.attempts],
            "status": history.status,
            "error": history.error,
        }
        self._lines.write(self._encode(line) + b"\n")


def read_recording(path: str | Path) -> Iterator[RecordedRequest]:
    """The requests of a recording, in the order in which they ended.

    A last line that is cut, as a crash leaves it, is passed over. Raises `RecordingUnreadable`, saying where, for any
    other line that is none, for a later version of the format, and for a file that can not be read.
    """
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield _request(msgspec.json.decode(line))
                except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                    if line.endswith(b"\n"):
                        raise RecordingUnreadable(f"{path}:{number}: no line of a recording: {error}") from None
    except OSError as error:
        raise RecordingUnreadable(f"{path}: {error.strerror or error}") from None


def _request(fields: Any) -> RecordedRequest:
    """A decoded line. Raises ``ValueError`` (as which msgspec's own errors count too) when it is none."""
    if not isinstance(fields, dict) or not isinstance(written := fields.get("format"), int):
        raise ValueError('an object with "format" was expected')
    if written > FORMAT:
        raise ValueError(f"format {written} is of a later version of Slipstream; this one reads up to {FORMAT}")
    shape = fields.get("shape")
    if isinstance(shape, dict):  # keys that a later version added are passed over
        known = {name: shape[name] for name in RequestShape._fields if name in shape}
        fields |= {
            "shape": [*{**dict.fromkeys(RequestShape._fields), **RequestShape._field_defaults, **known}.values()]
        }
    return msgspec.convert(fields, RecordedRequest)


def _shape_fields(shape: RequestShape) -> dict[str, Any]:
    fields = shape._asdict()
    fields["model"] = shape.model[:MODEL_CHARACTERS]
    return fields


def _attempt(attempt: Attempt, received_at: float) -> RecordedAttempt:
    placement = attempt.placement
    node, pool, reason, version, draw, at = placement.decision
    outcome = placement.outcome
    place = (
        _microseconds(at - received_at),
        node,
        pool,
        reason,
        version,
        draw,
        attempt.occupancy,
        attempt.ceiling,
        attempt.limit,
    )
    if outcome is None:
        return RecordedAttempt(*place)
    ending, status, latency, prompt_tokens, output_tokens, sample = outcome
    return RecordedAttempt(
        *place,
        ending,
        status,
        prompt_tokens,
        output_tokens,
        None if sample is None else sample.drafted,
        None if sample is None else sample.accepted,
        None if sample is None else sample.verify_steps,
        None if latency is None else milliseconds(latency.ttft_s),
        None if latency is None else milliseconds(latency.tpot_s),
        None if latency is None else milliseconds(latency.e2e_s),
    )


def _microseconds(seconds: float) -> float:
    """Seconds, to the microsecond, so that the text is short."""
    return int(seconds * 1e6 + 0.5) / 1e6
