"""Clients leave at once, their engines' work some time after."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.core.departures import Departure, Departures


def departures(*waiting: tuple[int, float, float, int]) -> Departures:
    made = Departures()
    for sequences, left_at, due, admitted in waiting:
        made.add(Departure(sequences, "chat", left_at, due, admitted))
    return made


def taken(found: list[Departure]) -> list[float]:
    return [departure.left_at for departure in found]


def test_they_are_due_in_their_order_and_taken_once() -> None:
    waiting = departures((2, 1.0, 1.5, 5), (1, 1.2, 1.7, 6))
    assert waiting.sequences == 3
    assert taken(waiting.take_due(1.4)) == []
    assert taken(waiting.take_due(1.5)) == [1.0]
    assert waiting.sequences == 1
    assert taken(waiting.take_due(9.0)) == [1.2]
    assert waiting.sequences == 0
    assert taken(waiting.take_due(9.0)) == []


@pytest.mark.parametrize(
    ("seen_at", "reported", "booked", "admitted", "left"),
    [
        (1.1, 0, 1, 5, [1.0]),  # the node is idle
        (0.9, 0, 1, 5, []),  # asked before the client left
        (1.1, 1, 1, 5, []),  # still there
        (1.1, 3, 4, 5, [1.0]),  # three others, and no more than those
        (1.1, 4, 4, 5, []),
        (1.1, 5, 4, 5, []),  # other clients' sequences hide it
        (1.1, 2, 4, 7, []),  # two of the three others are new, and may not be in the report yet
        (1.1, 1, 4, 7, [1.0]),
        (1.1, 0, 4, 9, [1.0]),
    ],
)
def test_a_report_that_counts_no_more_than_the_others_confirms(
    seen_at: float, reported: int, booked: int, admitted: int, left: list[float]
) -> None:
    assert taken(departures((1, 1.0, 2.0, 5)).take_confirmed(seen_at, reported, booked, admitted)) == left


def test_a_report_confirms_as_many_as_are_missing_from_it() -> None:
    waiting = departures((1, 1.0, 2.0, 5), (2, 1.1, 2.1, 5), (1, 1.2, 2.2, 5))
    assert taken(waiting.take_confirmed(1.3, 4, 5, 5)) == [1.0]
    assert taken(waiting.take_confirmed(1.3, 2, 4, 5)) == [1.1]
    assert waiting.sequences == 1


EVENTS = st.lists(
    st.tuples(st.sampled_from(["admit", "leave", "end", "stop", "poll"]), st.integers(1, 3), st.floats(0.01, 1.0)),
    max_size=60,
)


@given(EVENTS, st.floats(0.1, 3.0), st.integers(0, 4))
def test_nothing_is_given_up_that_the_engine_still_works_on(
    events: list[tuple[str, int, float]], lag: float, foreign: int
) -> None:
    """An engine whose reports are right: what is booked is never less than what it works on for us."""
    waiting, now, admitted = Departures(), 0.0, 0
    live: list[int] = []
    leaving: list[int] = []  # what the engine works on for clients that left
    for kind, sequences, pause in events:
        now += pause
        if kind == "admit":
            live.append(sequences)
            admitted += sequences
        elif kind == "leave" and live:
            gone = live.pop(0)
            leaving.append(gone)
            waiting.add(Departure(gone, "chat", now, now + 1000.0, admitted))
        elif kind == "end" and live:
            live.pop()
        elif kind == "stop" and leaving:
            leaving.pop()
        elif kind == "poll":
            reported = sum(live) + sum(leaving) + foreign
            waiting.take_confirmed(now, reported, sum(live) + waiting.sequences, admitted)
        assert waiting.sequences >= sum(leaving)
    waiting.take_due(now + 2000.0)
    assert waiting.sequences == 0
