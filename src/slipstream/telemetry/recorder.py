"""Recordings of traffic and decisions, made as requests end. Compiled, since every request has a line.

docs/reference/decisions-jsonl.md is the format; `recording` reads it.
"""

from __future__ import annotations

from typing import Final

from slipstream.core.history import Attempt, History
from slipstream.core.outcome import Outcome
from slipstream.core.request import RequestShape
from slipstream.telemetry.access_log import MODEL_CHARACTERS, PATH_CHARACTERS, beginning_of
from slipstream.telemetry.json_text import (
    POINT_THREE,
    THREE,
    Fragments,
    Latest,
    encoded,
    micros,
    milliseconds,
    whole,
)
from slipstream.telemetry.recording import FORMAT

__all__ = ["Recorder"]

PREVIOUS_CHARACTERS: Final = 128
"""Of the id of a response that a request refers to, so much is kept."""

# Of all requests there are few different combinations of these.
_REQUEST: Final = ("key", "method", "path", "status", "error")
_SHAPE: Final = (
    "model",
    "category",
    "traffic_class",
    "sequences",
    "streamed",
    "features",
    "pinned_pool",
    "decodes",
    "key_id",
    "pinned_by",
)
_ATTEMPT: Final = ("node", "pool", "reason", "ceiling", "limit", "ending", "status")

_BEGINNING: Final = b'{"format":%d,"id":' % FORMAT
_NO_SHAPE: Final = b',"shape":null,"attempts":['
_NO_AFFINITY: Final = b',"previous_response":null,"session":null,"cache_keys":[]},"attempts":['
_NO_SAMPLE: Final = b',"drafted":null,"accepted":null,"verify_steps":null'
_NO_TIMES: Final = b',"ttft_ms":null,"tpot_ms":null,"e2e_ms":null'
_NO_FIGURES: Final = b',"prompt_tokens":null,"output_tokens":null' + _NO_SAMPLE + _NO_TIMES


class Recorder:
    """Makes the line of each request that has ended.

    ``began_at`` is where the recording's own time begins, on the clock of the histories.
    """

    __slots__ = ("_arrival", "_asked", "_attempts", "_began_at", "_time", "_version")

    def __init__(self, began_at: float) -> None:
        self._began_at = began_at
        self._time = Latest()
        self._arrival = Latest()
        self._version = Latest()
        self._asked = Fragments()
        self._attempts = Fragments()

    def line(self, history: History, ended_at: float) -> bytes:
        """What is recorded of a request that ended at this time of day, in seconds since 1970."""
        received_at = history.received_at
        took = history.ended_at - received_at
        at, lasted = micros(ended_at - took), micros(took)
        arrival = micros(received_at - self._began_at)
        attempts = history.attempts
        if len(attempts) == 1:
            placed = self._attempt(attempts[0], received_at)
        else:
            placed = b",".join([self._attempt(attempt, received_at) for attempt in attempts])
        shape = history.shape
        return b'%b%b,"time":%b%b%b,"arrival_s":%b%b%b,"duration_s":%b%b%b%b%b%b]}\n' % (
            _BEGINNING,
            encoded(history.request_id),
            self._time.text(at // 1_000_000),
            POINT_THREE[at // 1000 % 1000],
            THREE[at % 1000],
            self._arrival.text(arrival // 1_000_000),
            POINT_THREE[arrival // 1000 % 1000],
            THREE[arrival % 1000],
            whole(lasted // 1_000_000),
            POINT_THREE[lasted // 1000 % 1000],
            THREE[lasted % 1000],
            self._unread(history) if shape is None else self._read(history, shape),
            b"" if shape is None else _particular(shape),
            placed,
        )

    def _unread(self, history: History) -> bytes:
        """What was asked for, as far as a request says that was not read."""
        path = beginning_of(history.path, PATH_CHARACTERS)
        source: tuple[object, ...] = (history.key_id, history.method, path, history.status, history.error)
        known = self._asked.get(source)
        return self._asked.learn(source, _members(b",", _REQUEST, source) + _NO_SHAPE) if known is None else known

    def _read(self, history: History, shape: RequestShape) -> bytes:
        """What was asked for, as far as many requests ask for the same: up to what is each one's own in a shape."""
        source: tuple[object, ...] = (
            history.key_id,
            history.method,
            beginning_of(history.path, PATH_CHARACTERS),
            history.status,
            history.error,
            beginning_of(shape.model, MODEL_CHARACTERS),
            shape.category,
            shape.traffic_class,
            shape.sequences,
            shape.streamed,
            shape.features,
            shape.pinned_pool,
            shape.decodes,
            shape.key_id,
            shape.pinned_by,
        )
        known = self._asked.get(source)
        if known is None:
            request = _members(b",", _REQUEST, source[: len(_REQUEST)])
            known = self._asked.learn(source, request + _members(b',"shape":{', _SHAPE, source[len(_REQUEST) :]))
        return known

    def _attempt(self, attempt: Attempt, received_at: float) -> bytes:
        placement = attempt.placement
        decision, outcome = placement.decision, placement.outcome
        at = micros(decision.at - received_at)
        ending = status = None
        if outcome is not None:
            ending, status = outcome.ending, outcome.status
        source: tuple[object, ...] = (
            decision.node,
            decision.pool,
            decision.reason,
            attempt.ceiling,
            attempt.limit,
            ending,
            status,
        )
        known = self._attempts.get(source)
        if known is None:
            known = self._attempts.learn(source, _members(b"{", _ATTEMPT, source))
        return b'%b,"at_s":%b%b%b,"fleet_version":%b,"draw":%b,"occupancy":%b%b}' % (
            known,
            whole(at // 1_000_000),
            POINT_THREE[at // 1000 % 1000],
            THREE[at % 1000],
            self._version.text(decision.fleet_version),
            encoded(decision.draw),
            whole(attempt.occupancy),
            _NO_FIGURES if outcome is None else _figures(outcome),
        )


def _members(before: bytes, names: tuple[str, ...], values: tuple[object, ...]) -> bytes:
    """The members of an object, behind ``before``."""
    return before + encoded(dict(zip(names, values, strict=True)))[1:-1]


def _particular(shape: RequestShape) -> bytes:
    """What is each request's own in a shape, and the shape's end."""
    return b',"output_limit":%b,"prompt_characters":%b%b' % (
        whole(shape.output_limit),
        whole(shape.prompt_characters),
        _affinity(shape),
    )


def _affinity(shape: RequestShape) -> bytes:
    """What finds the node that has the request's beginning in its cache, and the end of the shape."""
    previous, session, keys = shape.previous_response, shape.session, shape.cache_keys
    if previous is None and session is None and not keys:
        return _NO_AFFINITY
    return b',"previous_response":%b,"session":%b,"cache_keys":%b},"attempts":[' % (
        b"null" if previous is None else encoded(beginning_of(previous, PREVIOUS_CHARACTERS)),
        whole(session),
        encoded(keys),
    )


def _figures(outcome: Outcome) -> bytes:
    latency, sample = outcome.latency, outcome.sample
    speculation, times = _NO_SAMPLE, _NO_TIMES
    if sample is not None:
        speculation = b',"drafted":%b,"accepted":%b,"verify_steps":%b' % (
            whole(sample.drafted),
            whole(sample.accepted),
            whole(sample.verify_steps),
        )
    if latency is not None:
        times = b',"ttft_ms":%b,"tpot_ms":%b,"e2e_ms":%b' % (
            milliseconds(latency.ttft_s),
            milliseconds(latency.tpot_s),
            milliseconds(latency.e2e_s),
        )
    return b',"prompt_tokens":%b,"output_tokens":%b%b%b' % (
        whole(outcome.prompt_tokens),
        whole(outcome.output_tokens),
        speculation,
        times,
    )
