"""Recordings of traffic and decisions, one JSON object a request: what is in a line, and how it is read back.

docs/reference/decisions-jsonl.md is the format. No text of a request is in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from slipstream.core.errors import SlipstreamError
from slipstream.core.outcome import Ending
from slipstream.core.policy import Reason
from slipstream.core.request import PinSource, Pool, RequestShape, TrafficClass

__all__ = [
    "FORMAT",
    "RecordedAttempt",
    "RecordedRequest",
    "RecordedShape",
    "RecordingUnreadable",
    "read_recording",
]

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
