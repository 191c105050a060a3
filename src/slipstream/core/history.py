"""A whole request, ended: what it asked for, the nodes it was given to, and what its client got."""

from __future__ import annotations

from slipstream.core.compilation import mypyc_attr
from slipstream.core.dispatch import Placement
from slipstream.core.request import RequestShape

__all__ = ["Attempt", "History"]


@mypyc_attr(acyclic=True)
class Attempt:
    """One placement, and how full its node was just before.

    ``occupancy`` counts the sequences that the node worked on, without this request's; ``ceiling`` and ``limit`` are
    the node's at that moment, in sequences.
    """

    __slots__ = ("ceiling", "limit", "occupancy", "placement")

    def __init__(self, placement: Placement) -> None:
        """Of a placement that was made just now."""
        state = placement.state
        self.placement = placement
        self.occupancy = max(0, state.occupancy - placement.shape.sequences)
        self.ceiling = state.ceiling
        self.limit = state.limit


@mypyc_attr(acyclic=True)
class History:
    """What became of one request. Every placement in it is settled.

    ``method`` and ``path`` (without the query) are the client's own words: unbounded, and empty when they could not be
    read. ``key_id`` names the API key, never is it; ``None`` without keys. ``received_at`` and ``ended_at`` are seconds
    on the gateway's monotonic clock. ``shape`` is ``None`` when the request concerned no node, or was turned down
    before it was read. ``attempts`` is empty when no node was found. ``status`` is what the client was answered,
    ``None`` when it left before. ``error`` is the code of the gateway's own error, ``None`` without one. ``queued_s``
    is for how long it waited for a node, in all; ``None`` = it did not.

    A class and no tuple: every request of a gateway that writes an access log builds one, and this costs least.
    """

    __slots__ = (
        "attempts",
        "ended_at",
        "error",
        "key_id",
        "method",
        "path",
        "queued_s",
        "received_at",
        "request_id",
        "shape",
        "status",
    )

    def __init__(
        self,
        request_id: str,
        method: str,
        path: str,
        key_id: str | None,
        received_at: float,
        ended_at: float,
        shape: RequestShape | None,
        attempts: tuple[Attempt, ...],
        status: int | None,
        error: str | None,
        queued_s: float | None = None,
    ) -> None:
        self.request_id = request_id
        self.method = method
        self.path = path
        self.key_id = key_id
        self.received_at = received_at
        self.ended_at = ended_at
        self.shape = shape
        self.attempts = attempts
        self.status = status
        self.error = error
        self.queued_s = queued_s
