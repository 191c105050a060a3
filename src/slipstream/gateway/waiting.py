"""Requests for which no node has room now: they wait here, and are placed one by one as room comes free."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from slipstream.core.errors import NothingUsable, SlipstreamError
from slipstream.core.request import RequestShape, TrafficClass
from slipstream.core.request_queue import BEAT_S, RequestQueue, Resumable, Ticket, go_first, serve

__all__ = ["Waiter", "Waiting"]


class Waiter(Resumable, Protocol):
    """A request that waits."""

    def give_up(self) -> None:
        """It has waited as long as it may: a last try, or an answer that says no."""

    def fail(self, error: SlipstreamError) -> None:
        """Answer with an error."""


class Waiting:
    """The queue at work on the event loop. ``clock`` is in seconds, the one by which tickets are dated."""

    def __init__(self, queue: RequestQueue[Waiter], clock: Callable[[], float]) -> None:
        self._queue = queue
        self._clock = clock
        self._beat: asyncio.TimerHandle | None = None
        self._serving: asyncio.Handle | None = None
        self._closed = False

    def configure(self, size: int, timeout_s: float) -> None:
        """So many may wait, and so long, from now on."""
        self._queue.configure(size, timeout_s)

    @property
    def open(self) -> bool:
        """Whether any request may wait."""
        return self._queue.size > 0 and not self._closed

    @property
    def lengths(self) -> dict[TrafficClass, int]:
        """How many wait, by class."""
        return self._queue.lengths

    def join(
        self, waiter: Waiter, shape: RequestShape, now: float, since: float, *, again: bool
    ) -> Ticket[Waiter] | None:
        """Let a request that came at ``since`` wait; ``None`` when it may not. ``again``: it has waited before.

        A request that only one node can serve waits beside its model's lane: others need not wait for that node.
        """
        if self._closed:
            return None
        lane = shape.model if shape.previous_response is None else f"\0{shape.previous_response}"
        ticket = self._queue.join(waiter, lane, shape.traffic_class, now, since, again=again)
        if ticket is not None and self._beat is None:
            self._beat = asyncio.get_running_loop().call_later(BEAT_S, self._on_beat)
        return ticket

    def go_first(self, shape: RequestShape) -> None:
        """A request has arrived: whoever waits before it gets the first try at what room there may be."""
        if shape.previous_response is None:
            go_first(self._queue, shape.model, shape.traffic_class)

    def leave(self, ticket: Ticket[Waiter]) -> None:
        """The request's client is gone."""
        self._queue.leave(ticket)

    def freed(self) -> None:
        """A node has ended a request, so there may be room. Who is next is tried when the loop has a moment."""
        if self._serving is None and self._queue.count:
            self._serving = asyncio.get_running_loop().call_soon(self._serve)

    def close(self) -> None:
        """Send everyone away and let nobody wait any more."""
        self._closed = True
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None
        for ticket in self._queue.clear():
            ticket.owner.fail(NothingUsable("The gateway is closing; the request had not been given to a node."))

    def _on_beat(self) -> None:
        loop = asyncio.get_running_loop()
        for ticket in self._queue.expire(self._clock()):
            loop.call_soon(ticket.owner.give_up)  # each by itself: a fault that one brings out is none of the others'
        self.freed()
        self._beat = loop.call_later(BEAT_S, self._on_beat) if self._queue.count else None

    def _serve(self) -> None:
        self._serving = None
        serve(self._queue)
