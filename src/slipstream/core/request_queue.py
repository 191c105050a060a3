"""Requests that wait because every node is full: first in, first out, and those that a person waits for before jobs."""

from __future__ import annotations

from typing import Final, Generic, Protocol, TypeVar

from slipstream.core.request import TrafficClass

__all__ = ["BEAT_S", "RequestQueue", "Resumable", "Ticket", "go_first", "serve"]

BEAT_S: Final = 0.05
"""While anyone waits, so often is looked for room that came without a word (a report, a node that is back), and for
those who have waited long enough.
"""

Owner = TypeVar("Owner")


class Resumable(Protocol):
    """A request that waits, as far as serving it goes."""

    def resume(self) -> bool | None:
        """Try to go on; ``False`` when there is still no room, ``None`` when it ended otherwise."""


Waiter = TypeVar("Waiter", bound=Resumable)


class Ticket(Generic[Owner]):
    """One request's place. ``since`` is when it came, also where it waits after a node refused it."""

    __slots__ = ("lane", "owner", "since", "traffic_class")

    def __init__(self, owner: Owner, lane: str, traffic_class: TrafficClass, since: float) -> None:
        self.owner = owner
        self.lane = lane
        self.traffic_class = traffic_class
        self.since = since


class RequestQueue(Generic[Owner]):
    """A bounded queue with one lane for each model, so that a full model holds up no other.

    ``size`` is the most that wait at once, 0 for none; ``timeout_s`` the longest that one waits. Bulk requests fill at
    most half of the places: a job that sends more than that is refused, a person is not. Within a lane every
    interactive request goes before every bulk one, so under lasting overload by interactive traffic a bulk request
    waits until its time is up, and no longer.
    """

    __slots__ = ("_lanes", "_timeout_s", "count", "lengths", "size")

    def __init__(self, size: int, timeout_s: float) -> None:
        self.size = size
        self._timeout_s = timeout_s
        # By lane, interactive and bulk: dicts as ordered sets, from which anyone leaves at once and without trace.
        self._lanes: dict[str, tuple[dict[Ticket[Owner], None], dict[Ticket[Owner], None]]] = {}
        self.lengths: dict[TrafficClass, int] = dict.fromkeys(TrafficClass, 0)
        """How many wait, by class."""
        self.count = 0
        """How many wait."""

    def configure(self, size: int, timeout_s: float) -> None:
        """Other bounds. Who waits keeps the place, also where there are fewer now."""
        self.size = size
        self._timeout_s = timeout_s

    def join(
        self,
        owner: Owner,
        lane: str,
        traffic_class: TrafficClass,
        now: float,
        since: float | None = None,
        *,
        again: bool = False,
    ) -> Ticket[Owner] | None:
        """A place in its class before all who came after ``since`` (``None`` = now); ``None`` when there is none left,
        or ``since`` is too long ago. ``again``: it had one, and was tried in vain, so that it has one in any case.
        """
        if since is None:
            since = now
        if now - since >= self._timeout_s:
            return None
        if not again:
            if self.count >= self.size:
                return None
            if traffic_class is TrafficClass.BULK and self.lengths[traffic_class] >= (self.size + 1) // 2:
                return None
        ticket = Ticket(owner, lane, traffic_class, since)
        rows = self._lanes.get(lane)
        if rows is None:
            rows = self._lanes[lane] = ({}, {})
        _put(rows[traffic_class is TrafficClass.BULK], ticket)
        self.lengths[traffic_class] += 1
        self.count += 1
        return ticket

    def leave(self, ticket: Ticket[Owner]) -> bool:
        """Give up a place, for whatever reason; whether it was still held."""
        rows = self._lanes.get(ticket.lane)
        if rows is None:
            return False
        row = rows[ticket.traffic_class is TrafficClass.BULK]
        if ticket not in row:
            return False
        del row[ticket]
        self.lengths[ticket.traffic_class] -= 1
        self.count -= 1
        if not rows[0] and not rows[1]:
            del self._lanes[ticket.lane]
        return True

    def lanes(self) -> tuple[str, ...]:
        """The lanes in which anyone waits."""
        return tuple(self._lanes)

    def head(self, lane: str) -> Ticket[Owner] | None:
        """Whose turn it is in a lane; ``None`` when nobody waits there."""
        for row in self._lanes.get(lane, ()):
            for ticket in row:
                return ticket
        return None

    def expire(self, now: float) -> list[Ticket[Owner]]:
        """Take out those who have waited as long as they may, and return them."""
        late = [
            ticket
            for rows in self._lanes.values()
            for row in rows
            for ticket in row
            if now - ticket.since >= self._timeout_s
        ]
        for ticket in late:
            self.leave(ticket)
        return late

    def clear(self) -> list[Ticket[Owner]]:
        """Take out everyone, and return them."""
        everyone = [ticket for rows in self._lanes.values() for row in rows for ticket in row]
        for ticket in everyone:
            self.leave(ticket)
        return everyone


def serve(queue: RequestQueue[Waiter]) -> None:
    """There may be room: try who is next in each lane."""
    for lane in queue.lanes():
        _serve_lane(queue, lane, TrafficClass.BULK)


def go_first(queue: RequestQueue[Waiter], lane: str, newcomer: TrafficClass) -> None:
    """A request has arrived: whoever waits before it gets the first try at what room there may be."""
    if queue.count:
        _serve_lane(queue, lane, newcomer)


def _serve_lane(queue: RequestQueue[Waiter], lane: str, ahead_of: TrafficClass) -> None:
    """Try who is next, if that is before a newcomer of this class, and whoever follows only if that went on."""
    for _ in range(queue.count):
        ticket = queue.head(lane)
        if ticket is None or (ticket.traffic_class is TrafficClass.BULK and ahead_of is TrafficClass.INTERACTIVE):
            return
        went_on = ticket.owner.resume()
        if went_on is False:
            return
        queue.leave(ticket)


def _put(row: dict[Ticket[Owner], None], ticket: Ticket[Owner]) -> None:
    """Into its place by time: behind those who came before it or with it."""
    later = []
    for other in reversed(row):
        if other.since <= ticket.since:
            break
        later.append(other)
    row[ticket] = None
    for other in reversed(later):
        del row[other]
        row[other] = None
