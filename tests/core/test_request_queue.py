"""Who waits, who is next, and who may no longer wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.core.request import TrafficClass
from slipstream.core.request_queue import RequestQueue, Ticket

INTERACTIVE, BULK = TrafficClass


def queue(size: int = 8, timeout_s: float = 10.0) -> RequestQueue[str]:
    return RequestQueue(size, timeout_s)


def joined(
    waiting: RequestQueue[str], owner: str, traffic_class: TrafficClass = INTERACTIVE, lane: str = "m", now: float = 0.0
) -> Ticket[str]:
    ticket = waiting.join(owner, lane, traffic_class, now)
    assert ticket is not None
    return ticket


def served(waiting: RequestQueue[str], lane: str = "m") -> list[str]:
    order = []
    while (ticket := waiting.head(lane)) is not None:
        order.append(ticket.owner)
        waiting.leave(ticket)
    return order


def test_first_in_first_out_within_a_class_and_interactive_first() -> None:
    waiting = queue()
    for owner, traffic_class in (("b1", BULK), ("i1", INTERACTIVE), ("b2", BULK), ("i2", INTERACTIVE)):
        joined(waiting, owner, traffic_class)
    assert waiting.lengths == {INTERACTIVE: 2, BULK: 2}
    assert served(waiting) == ["i1", "i2", "b1", "b2"]
    assert (waiting.count, waiting.lanes()) == (0, ())


def test_a_full_model_holds_up_no_other() -> None:
    waiting = queue()
    joined(waiting, "a", lane="one")
    joined(waiting, "b", lane="two")
    assert waiting.lanes() == ("one", "two")
    assert served(waiting, "two") == ["b"]
    assert waiting.head("three") is None


def test_no_more_wait_than_there_are_places() -> None:
    waiting = queue(size=2)
    first = joined(waiting, "a")
    joined(waiting, "b", lane="other")
    assert waiting.join("c", "m", INTERACTIVE, 0.0) is None
    assert waiting.leave(first)
    joined(waiting, "c")


def test_bulk_requests_fill_at_most_half_of_the_places() -> None:
    waiting = queue(size=4)
    joined(waiting, "b1", BULK)
    joined(waiting, "b2", BULK)
    assert waiting.join("b3", "m", BULK, 0.0) is None
    joined(waiting, "i1")
    joined(waiting, "i2")
    assert waiting.join("i3", "m", INTERACTIVE, 0.0) is None


def test_a_size_of_zero_lets_nobody_wait() -> None:
    assert queue(size=0).join("a", "m", INTERACTIVE, 0.0) is None


def test_leaving_twice_or_after_expiry_changes_nothing() -> None:
    waiting = queue()
    ticket, other = joined(waiting, "a"), joined(waiting, "b")
    assert waiting.leave(ticket)
    assert not waiting.leave(ticket)
    assert waiting.lengths[INTERACTIVE] == 1
    assert waiting.leave(other)
    assert not waiting.leave(other)


def test_nobody_waits_longer_than_the_timeout() -> None:
    waiting = queue(timeout_s=10.0)
    joined(waiting, "early", now=0.0)
    joined(waiting, "late", BULK, now=4.0)
    assert waiting.expire(9.9) == []
    assert [ticket.owner for ticket in waiting.expire(10.0)] == ["early"]
    assert [ticket.owner for ticket in waiting.expire(14.0)] == ["late"]
    assert waiting.count == 0


def test_waiting_again_after_a_refusal_does_not_begin_anew() -> None:
    waiting = queue(timeout_s=10.0)
    again = waiting.join("a", "m", INTERACTIVE, 6.0, since=1.0)
    assert again is not None
    assert [ticket.owner for ticket in waiting.expire(11.0)] == ["a"]
    assert waiting.join("a", "m", INTERACTIVE, 11.0, since=1.0) is None


def test_who_was_tried_in_vain_is_before_all_who_came_later_and_not_before_others() -> None:
    waiting = queue()
    for owner, now in (("first", 1.0), ("third", 3.0), ("fourth", 4.0)):
        joined(waiting, owner, now=now)
    assert waiting.join("second", "m", INTERACTIVE, 5.0, since=2.0, again=True)
    assert waiting.join("also-third", "m", INTERACTIVE, 5.0, since=3.0, again=True)
    assert served(waiting) == ["first", "second", "third", "also-third", "fourth"]


def test_a_place_that_was_held_is_not_lost_to_a_newcomer_meanwhile() -> None:
    waiting = queue(size=1)
    tried = joined(waiting, "tried", BULK)
    waiting.leave(tried)
    joined(waiting, "newcomer", BULK, now=1.0)
    assert waiting.join("late", "m", BULK, 2.0) is None
    assert waiting.join("tried", "m", BULK, 2.0, since=0.0, again=True)
    assert served(waiting) == ["tried", "newcomer"]


def test_at_the_end_everyone_is_sent_away() -> None:
    waiting = queue()
    joined(waiting, "a", lane="one")
    joined(waiting, "b", BULK, lane="two")
    assert {ticket.owner for ticket in waiting.clear()} == {"a", "b"}
    assert (waiting.count, waiting.lanes()) == (0, ())


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["join", "leave", "serve", "expire"]),
        st.sampled_from(list(TrafficClass)),
        st.sampled_from("xy"),
        st.integers(0, 30),
    ),
    max_size=80,
)


@pytest.mark.parametrize("size", [1, 4])
@given(STEPS)
def test_a_queue_is_what_a_sorted_list_would_be(size: int, steps: list[tuple[str, TrafficClass, str, int]]) -> None:
    waiting: RequestQueue[int] = RequestQueue(size, 10.0)
    model: list[Ticket[int]] = []
    now = 0.0
    for number, (step, traffic_class, lane, which) in enumerate(steps):
        now += 1.0
        if step == "join":
            bulk = sum(ticket.traffic_class is BULK for ticket in model)
            ticket = waiting.join(number, lane, traffic_class, now)
            fits = len(model) < size and (traffic_class is INTERACTIVE or bulk < (size + 1) // 2)
            assert (ticket is not None) == fits
            if ticket is not None:
                model.append(ticket)
        elif step == "leave" and model:
            ticket = model.pop(which % len(model))
            assert waiting.leave(ticket)
        elif step == "serve":
            rows = [ticket for ticket in model if ticket.lane == lane]
            expected = min(rows, key=lambda ticket: (ticket.traffic_class is BULK, ticket.since), default=None)
            head = waiting.head(lane)
            assert head is expected
            if head is not None:
                waiting.leave(head)
                model.remove(head)
        else:
            late = [ticket for ticket in model if now - ticket.since >= 10.0]
            assert set(waiting.expire(now)) == set(late)
            model = [ticket for ticket in model if ticket not in late]
        assert waiting.count == len(model)
        assert set(waiting.lanes()) == {ticket.lane for ticket in model}
