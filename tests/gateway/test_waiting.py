"""The queue at work: who is tried when, and that nobody is forgotten."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from gateway_rig import eventually
from slipstream.core.errors import NothingUsable, SlipstreamError
from slipstream.core.request import RequestShape, TrafficClass
from slipstream.core.request_queue import RequestQueue, Ticket
from slipstream.gateway.waiting import Waiter, Waiting

INTERACTIVE, BULK = TrafficClass


@dataclass
class Room:
    """A fleet with so many places left, and a clock that stands still until it is moved."""

    places: int = 0
    now: float = 100.0
    tried: list[str] = field(default_factory=list)
    placed: list[str] = field(default_factory=list)
    gave_up: list[str] = field(default_factory=list)
    failed: list[tuple[str, SlipstreamError]] = field(default_factory=list)

    def clock(self) -> float:
        return self.now


class Someone:
    def __init__(self, room: Room, name: str) -> None:
        self.room = room
        self.name = name

    def resume(self) -> bool | None:
        self.room.tried.append(self.name)
        if self.room.places == 0:
            return False
        self.room.places -= 1
        self.room.placed.append(self.name)
        return True

    def give_up(self) -> None:
        self.room.gave_up.append(self.name)

    def fail(self, error: SlipstreamError) -> None:
        self.room.failed.append((self.name, error))


class Hopeless(Someone):
    def resume(self) -> bool | None:
        self.room.tried.append(self.name)
        return None


class Faulty(Someone):
    def give_up(self) -> None:
        raise RuntimeError(f"a fault that {self.name} brought out")


def waiting_in(room: Room, size: int = 8) -> Waiting:
    return Waiting(RequestQueue(size, 10.0), room.clock)


def join(
    waiting: Waiting, room: Room, name: str, traffic_class: TrafficClass = INTERACTIVE, **shape: str
) -> Ticket[Waiter] | None:
    wanted = RequestShape(shape.get("model", "m"), "chat", traffic_class, previous_response=shape.get("response"))
    return waiting.join(Someone(room, name), wanted, room.now, room.now, again=False)


async def test_when_a_place_comes_free_the_next_is_tried_and_nobody_behind_it() -> None:
    room = Room()
    waiting = waiting_in(room)
    for name, traffic_class in (("job", BULK), ("a", INTERACTIVE), ("b", INTERACTIVE)):
        assert join(waiting, room, name, traffic_class)
    room.places = 1
    waiting.freed()
    waiting.freed()
    await asyncio.sleep(0)
    assert room.placed == ["a"]
    assert room.tried == ["a", "b"]
    assert waiting.lengths == {INTERACTIVE: 1, BULK: 1}
    room.places = 5
    waiting.freed()
    await asyncio.sleep(0)
    assert room.placed == ["a", "b", "job"]
    waiting.close()


async def test_room_that_comes_without_a_word_is_found() -> None:
    room = Room()
    waiting = waiting_in(room)
    join(waiting, room, "a")
    room.places = 1
    await eventually(lambda: room.placed == ["a"])
    room.places = 1
    join(waiting, room, "b")  # the beat has stopped meanwhile, and begins again
    await eventually(lambda: room.placed == ["a", "b"])


async def test_who_has_waited_as_long_as_allowed_is_let_go() -> None:
    room = Room()
    waiting = waiting_in(room)
    join(waiting, room, "a")
    room.now += 4.0
    join(waiting, room, "job", BULK)
    room.now += 6.0
    await eventually(lambda: room.gave_up == ["a"])
    room.places = 1
    await eventually(lambda: room.placed == ["job"])


async def test_a_client_that_left_is_not_tried() -> None:
    room = Room()
    waiting = waiting_in(room)
    ticket = join(waiting, room, "gone")
    join(waiting, room, "a")
    assert ticket is not None
    waiting.leave(ticket)
    room.places = 2
    await eventually(lambda: room.placed == ["a"])
    assert "gone" not in room.tried


async def test_each_model_has_its_own_turn_and_a_bound_request_holds_up_nobody() -> None:
    room = Room(places=0)
    waiting = waiting_in(room)
    join(waiting, room, "one", model="m1")
    join(waiting, room, "bound", model="m1", response="resp_1")
    join(waiting, room, "two", model="m2")
    waiting.freed()
    await asyncio.sleep(0)
    assert sorted(room.tried) == ["bound", "one", "two"]
    waiting.close()


async def test_a_newcomer_is_tried_after_those_who_wait_before_it() -> None:
    room = Room()
    waiting = waiting_in(room)
    join(waiting, room, "job", BULK)
    room.places = 1
    waiting.go_first(RequestShape("m", "chat", INTERACTIVE))
    assert room.tried == []
    join(waiting, room, "a")
    waiting.go_first(RequestShape("m", "chat", INTERACTIVE))
    assert (room.placed, room.tried) == (["a"], ["a"])
    room.places = 1
    waiting.go_first(RequestShape("other", "chat", BULK))
    waiting.go_first(RequestShape("m", "chat", BULK, previous_response="resp_1"))
    assert room.placed == ["a"]
    waiting.go_first(RequestShape("m", "chat", BULK))
    assert room.placed == ["a", "job"]
    waiting.close()


async def test_who_ended_otherwise_makes_way() -> None:
    room = Room()
    waiting = waiting_in(room)
    wanted = RequestShape("m", "chat")
    assert waiting.join(Hopeless(room, "hopeless"), wanted, room.now, room.now, again=False)
    join(waiting, room, "a")
    room.places = 1
    waiting.freed()
    await asyncio.sleep(0)
    assert room.tried == ["hopeless", "a"]


async def test_without_a_place_in_the_queue_nobody_waits() -> None:
    room = Room()
    waiting = waiting_in(room, size=1)
    assert join(waiting, room, "a")
    assert join(waiting, room, "b") is None
    waiting.close()


async def test_at_the_end_all_who_wait_are_told_and_nobody_waits_any_more() -> None:
    room = Room()
    waiting = waiting_in(room)
    join(waiting, room, "a")
    join(waiting, room, "b", BULK)
    waiting.close()
    assert [name for name, _ in room.failed] == ["a", "b"]
    assert all(isinstance(error, NothingUsable) for _, error in room.failed)
    assert join(waiting, room, "c") is None
    assert waiting.lengths == {INTERACTIVE: 0, BULK: 0}


async def test_a_fault_that_one_request_brings_out_leaves_nobody_else_waiting_for_ever() -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(str(context["exception"])))
    room = Room()
    waiting = waiting_in(room)
    assert waiting.join(Faulty(room, "evil"), RequestShape("m", "chat"), room.now, room.now, again=False)
    join(waiting, room, "as late")
    room.now += 6
    join(waiting, room, "a")
    room.now += 6
    await eventually(lambda: bool(told))
    await eventually(lambda: room.gave_up == ["as late"])
    room.places = 1
    await eventually(lambda: room.placed == ["a"])
    asyncio.get_running_loop().set_exception_handler(None)
    assert told == ["a fault that evil brought out"]
