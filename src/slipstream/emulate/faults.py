"""What can be made to go wrong at an emulated node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from slipstream.emulate.engine import Load

__all__ = [
    "Die",
    "Fault",
    "FaultError",
    "Faults",
    "FreezeMetrics",
    "GarbageMetrics",
    "LieInMetrics",
    "Refuse",
    "ResetCounters",
    "SlowDrain",
    "Split",
    "Stall",
    "Status",
    "read_fault",
]

Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class FaultError(ValueError):
    """What was sent describes no fault; the message says why."""


class _Kind(msgspec.Struct, tag_field="kind", forbid_unknown_fields=True):
    pass


class Refuse(_Kind, tag="refuse"):
    """Don't listen for so long. Idle connections are closed, running answers go on."""

    seconds: Seconds


class Stall(_Kind, tag="stall"):
    """Send nothing after so many events, 0 = not even the head. ``seconds`` ``None`` = until faults are cleared."""

    after_events: Count = 0
    seconds: Seconds | None = None
    requests: Positive | None = 1


class Die(_Kind, tag="die"):
    """Close the connection after so many events, as a process that ends does; ``reset``: as a host that restarts."""

    after_events: Count = 0
    reset: bool = False
    requests: Positive | None = 1


class Status(_Kind, tag="status"):
    """Answer with a status. ``body`` is JSON, or a text that is sent as it is. ``path`` ``None`` = all but pages."""

    status: Annotated[int, msgspec.Meta(ge=200, le=599)]
    body: Any = ""
    headers: Mapping[str, str] = {}
    path: str | None = None
    requests: Positive | None = 1


class Split(_Kind, tag="split"):
    """Write in pieces of so many bytes, ``gap_ms`` apart. ``None`` = each write in two, inside a character if any."""

    bytes: Positive | None = None
    gap_ms: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    requests: Positive | None = None


class LieInMetrics(_Kind, tag="lie_in_metrics"):
    """Pages say that so many sequences run or wait; ``factor`` multiplies both. What is left out stays true."""

    running: Count | None = None
    waiting: Count | None = None
    factor: Annotated[float, msgspec.Meta(ge=0)] = 1.0


class FreezeMetrics(_Kind, tag="freeze_metrics"):
    """Pages with load stay as they are now."""


class GarbageMetrics(_Kind, tag="garbage_metrics"):
    """Pages with load are this text instead."""

    body: str = "<html><body>It works!</body></html>"


class ResetCounters(_Kind, tag="reset_counters"):
    """Counters begin at 0 again, once, as after a restart."""


class SlowDrain(_Kind, tag="slow_drain"):
    """Keep the slot of a request for so long after its client has gone."""

    seconds: Seconds


Fault = (
    Refuse | Stall | Die | Status | Split | LieInMetrics | FreezeMetrics | GarbageMetrics | ResetCounters | SlowDrain
)

_decoder: msgspec.json.Decoder[Fault] = msgspec.json.Decoder(Fault)
_F = TypeVar("_F", Stall, Die, Split, LieInMetrics, GarbageMetrics, SlowDrain)


def read_fault(body: bytes) -> Fault:
    """A fault from its JSON. Raises `FaultError`."""
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise FaultError(f"no fault: {error}") from None


class Faults:
    """Those that are in force, oldest first."""

    def __init__(self) -> None:
        self._active: list[Fault] = []

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._active)

    def add(self, fault: Fault) -> None:
        self._active.append(fault)

    def clear(self) -> None:
        self._active.clear()

    def find(self, kind: type[_F]) -> _F | None:
        """The newest of a kind."""
        return next((fault for fault in reversed(self._active) if isinstance(fault, kind)), None)

    def take(self, kind: type[_F]) -> _F | None:
        """The oldest of a kind, for one request; one that was meant for so many requests then has one less."""
        fault = next((fault for fault in self._active if isinstance(fault, kind)), None)
        if fault is not None:
            self._spend(fault)
        return fault

    def take_status(self, path: str, *, completion: bool) -> Status | None:
        """The oldest status for a path."""
        for fault in self._active:
            if isinstance(fault, Status) and (fault.path == path or (fault.path is None and completion)):
                self._spend(fault)
                return fault
        return None

    def told(self, load: Load) -> Load:
        """The load as pages tell it."""
        lie = self.find(LieInMetrics)
        if lie is None:
            return load
        running = round(load.running * lie.factor) if lie.running is None else lie.running
        waiting = round(load.waiting * lie.factor) if lie.waiting is None else lie.waiting
        return load._replace(running=running, waiting=waiting)

    def _spend(self, fault: Any) -> None:
        left = getattr(fault, "requests", None)
        if left is None:
            return
        position = next(index for index, one in enumerate(self._active) if one is fault)
        if left == 1:
            del self._active[position]
        else:
            self._active[position] = msgspec.structs.replace(fault, requests=left - 1)
