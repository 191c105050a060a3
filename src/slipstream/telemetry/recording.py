"""Recordings of traffic and decisions, one JSON object a request: written as requests end, read back for replay.

docs/reference/decisions-jsonl.md is the format. No text of a request is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from slipstream.core.errors import SlipstreamError
from slipstream.core.history import Attempt, History
from slipstream.core.outcome import Ending
from slipstream.core.policy import Reason
from slipstream.core.request import PinSource, Pool, RequestShape, TrafficClass
from slipstream.telemetry.access_log import MODEL_CHARACTERS, PATH_CHARACTERS, Lines, milliseconds

__all__ = [
    "FORMAT",
    "RecordedAttempt",
    "RecordedRequest",
    "RecordedShape",
    "Recorder",
    "RecordingUnreadable",
    "read_recording",
]

FORMAT = 1
"""The version of the format. It goes up when a key changes its meaning or goes away; keys that are added leave it."""


PREVIOUS_CHARACTERS = 128
"""Of the id of a response that a request refers to, so much is kept."""


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


class RecordedShape(msgspec.Struct, gc=False, frozen=True):
    """A `RequestShape`, field for field."""

    model: str
    category: str
    traffic_class: TrafficClass = TrafficClass.INTERACTIVE
    sequences: int = 1
    output_limit: int | None = None
    streamed: bool = False
    prompt_characters: int | None = None
    features: frozenset[str] = frozenset()
    pinned_pool: Pool | None = None
    previous_response: str | None = None
    decodes: bool = True
    session: int | None = None
    cache_keys: tuple[int, ...] = ()
    key_id: str | None = None
    pinned_by: PinSource | None = None

    def shape(self) -> RequestShape:
        """What routing saw of the request."""
        return RequestShape(*(getattr(self, field) for field in self.__struct_fields__))


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
    shape: RecordedShape | None
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


def read_recording(path: str | Path) -> Iterator[RecordedRequest]:
    """The requests of a recording, in the order in which they ended.

    A last line that is cut, as a crash leaves it, is passed over. Raises `RecordingUnreadable`, saying where, for any
    other line that is none, for a later version of the format, and for a file that can not be read.
    """
    decode = msgspec.json.Decoder(RecordedRequest).decode
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    request = decode(line)
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                    if line.endswith(b"\n"):
                        raise RecordingUnreadable(f"{path}:{number}: no line of a recording: {error}") from None
                    return
                if request.format > FORMAT:
                    raise RecordingUnreadable(f"{path}:{number}: format {request.format} is of a later Slipstream")
                yield request
    except OSError as error:
        raise RecordingUnreadable(f"{path}: {error.strerror or error}") from None


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
