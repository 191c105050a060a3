"""What the data plane needs from the rest of Slipstream. `service` hands these in; tests hand in small stand-ins."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from slipstream.core.dispatch import Placement
from slipstream.core.errors import SlipstreamError
from slipstream.core.history import History
from slipstream.core.keys import KeyPolicy
from slipstream.core.node import Instrument
from slipstream.core.outcome import Outcome, ResponseStatistics
from slipstream.core.request import RequestShape, TrafficClass
from slipstream.engines.added_field import AddedField
from slipstream.gateway.headers import RequestHead
from slipstream.gateway.keys import KeyRing

__all__ = [
    "AddedFields",
    "Dispatcher",
    "FleetView",
    "Observer",
    "Ports",
    "ReadStatistics",
    "Reader",
    "Trace",
    "Tracer",
]


class Dispatcher(Protocol):
    """Decides and keeps the books: what the data plane uses of `core.dispatch.Dispatcher`."""

    def place(
        self,
        shape: RequestShape,
        request_id: str,
        now: float,
        avoid: Collection[str] = (),
        may_wait: bool = False,  # noqa: FBT001, FBT002 - called per request
        before: int = 0,
        queued_s: float | None = None,
    ) -> Placement:
        """Book the request on a node not named in ``avoid``; one that ``may_wait`` will be placed again after AllFull.
        ``before`` counts its attempts before it last waited, ``queued_s`` the seconds for which it waited in all,
        ``None`` = it did not.

        Raises UnknownModel, ResponseNotFound, AllFull or NothingUsable.
        """

    def settle(self, placement: Placement, outcome: Outcome, now: float) -> None:
        """Release the booking and credit what was learnt."""

    def took(self, placement: Placement, now: float) -> None:
        """A placement's node that has refused requests answers this one."""

    def answering(self, placement: Placement, now: float) -> None:
        """A placement that is its node's trial has been answered for a while."""

    def remember_response(self, placement: Placement, response_id: str, now: float) -> None:
        """Requests that refer to this answer of the placement must go to its node."""


class FleetView(Protocol):
    """What `/v1/models` and `/ready` say of the fleet."""

    def models(self) -> Sequence[str]:
        """Names of all models that a node of the fleet serves, in the order to list them."""

    def usable_nodes(self) -> int:
        """How many nodes could take a request now, were they empty."""


class Observer(Protocol):
    """Counts and logs what happens. Its methods run on the request's path: they are quick and raise nothing."""

    def finished(self, placement: Placement, outcome: Outcome, now: float) -> None:
        """A placement was settled. A request retried on another node has one placement an attempt."""

    def rejected(self, error: SlipstreamError, path: str, now: float) -> None:
        """The gateway itself answered with an error. ``path`` is what the client sent: unbounded, so no label."""

    def decided(self, seconds: float) -> None:
        """One call of ``Dispatcher.place`` took so long, whether it placed or raised."""

    def waited(self, traffic_class: TrafficClass, seconds: float, *, served: bool) -> None:
        """A request waited so long in all for a node with room; ``served``: until one took it, and not in vain."""


class Trace(Protocol):
    """A traced request. ``lines`` are the header lines that its nodes get in place of the client's."""

    @property
    def lines(self) -> bytes: ...

    def end(self, history: History) -> None:
        """The request has ended."""


class Tracer(Protocol):
    """Follows some requests from process to process. Quick, and raises nothing."""

    def begin(self, lines: bytes, waited_s: float) -> Trace | None:
        """The trace of a request that arrived ``waited_s`` seconds ago, ``None`` when it is not traced. ``lines`` are
        the client's header lines that are passed on.
        """


Answered = Callable[[History], None]
"""Told once of every request that has ended, whoever answered it. Quick, and raises nothing."""

Reader = Callable[[str, bytes, RequestHead, "KeyPolicy | None"], RequestShape]
"""Path, body, head and the policy of its API key (``None`` without) to the shape of a request to a path of a known
dialect. Raises a RequestError. Must be safe to call off the loop's thread."""

ReadStatistics = Callable[["str | None", tuple[bytes, ...]], ResponseStatistics]
"""Engine name (``None`` when unknown) and JSON payloads of an answer, in order: the body, or a stream's last events."""


AddedFields = Callable[["str | None", Instrument], "tuple[AddedField, ...]"]
"""Engine name (``None`` when unknown) and what its answers should say, to the fields that make them say it."""


def no_added_fields(_engine: str | None, _instrument: Instrument) -> tuple[AddedField, ...]:
    """Nothing is asked beyond what clients ask."""
    return ()


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything the data plane is wired to.

    ``keys`` are those of the clients that are let in, ``None`` = everyone is. ``answered`` and ``tracer`` are ``None``
    when nobody wants to know.
    ``clock`` is monotonic, in seconds, on the time base of the loop's own clock (whose resolution, a millisecond on
    uvloop, is too coarse for latencies). ``default_category`` is that of requests that are passed through unread.
    """

    dispatcher: Dispatcher
    fleet: FleetView
    reader: Reader
    read_statistics: ReadStatistics
    observer: Observer
    default_category: str = "chat"
    added_fields: AddedFields = no_added_fields
    keys: KeyRing | None = None
    answered: Answered | None = None
    tracer: Tracer | None = None
    clock: Callable[[], float] = monotonic
