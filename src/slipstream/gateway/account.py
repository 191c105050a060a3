"""What is noted of a request for those who are told once it has ended: access log, recordings, traces."""

from __future__ import annotations

from slipstream.core.dispatch import Placement
from slipstream.core.errors import SlipstreamError
from slipstream.core.history import Attempt, History
from slipstream.core.request import RequestShape
from slipstream.gateway.headers import RequestHead
from slipstream.gateway.ports import Ports, Trace
from slipstream.gateway.problems import row_of

__all__ = ["Account", "tell_unread"]


class Account:
    """One request's. Whoever ends the request closes it, exactly once, when every placement is settled."""

    __slots__ = (
        "_attempts",
        "_head",
        "_method",
        "_path",
        "_ports",
        "_received_at",
        "_request_id",
        "_shape",
        "_trace",
        "queued_s",
    )

    def __init__(
        self, ports: Ports, request_id: str, method: str, path: str, head: RequestHead, received_at: float
    ) -> None:
        self._ports = ports
        self._request_id = request_id
        self._method = method
        self._path = path
        self._head = head
        self._received_at = received_at
        self._shape: RequestShape | None = None
        self._attempts: tuple[Attempt, ...] = ()
        self._trace: Trace | None = None
        self.queued_s: float | None = None
        """For how many seconds it waited for a node, ``None`` = it did not."""

    def read(self, shape: RequestShape) -> None:
        """The request is about to be placed."""
        self._shape = shape
        tracer = self._ports.tracer
        if tracer is not None:
            self._trace = tracer.begin(self._head.lines, self._ports.clock() - self._received_at)

    def placed(self, placement: Placement) -> None:
        """The request was placed just now."""
        self._attempts += (Attempt(placement),)

    @property
    def lines(self) -> bytes:
        """The header lines that a node gets: a traced request goes on as a child of our own span."""
        return self._head.lines if self._trace is None else self._trace.lines

    def close(self, status: int | None, error: SlipstreamError | None = None) -> None:
        """The request has ended. ``status`` is what its client was answered, ``None`` when it left before."""
        ports = self._ports
        key = self._head.key
        history = History(
            self._request_id,
            self._method,
            self._path,
            None if key is None else key.policy.key_id,
            self._received_at,
            ports.clock(),
            self._shape,
            self._attempts,
            status,
            None if error is None else row_of(error).code,
            self.queued_s,
        )
        if self._trace is not None:
            self._trace.end(history)
        if ports.answered is not None:
            ports.answered(history)


def tell_unread(ports: Ports, error: SlipstreamError) -> None:
    """What could not be read as a request was answered with an error."""
    if ports.answered is not None:
        now, row = ports.clock(), row_of(error)
        ports.answered(History("", "", "", None, now, now, None, (), row.status, row.code))
