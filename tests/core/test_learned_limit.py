"""What a node's refusals and its own queue teach of how many sequences it takes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleets import dispatcher_of, fleet_of, report, shape, standard
from slipstream.core.dispatch import Dispatcher, Placement
from slipstream.core.errors import AllFull, EngineUnreachable
from slipstream.core.learned_limit import LearnedLimit
from slipstream.core.node import NodeReport
from slipstream.core.node_state import NodeState
from slipstream.core.outcome import Ending, Outcome

WORKED = Outcome(Ending.COMPLETED, 200)
REFUSED = Outcome(Ending.FULL, 429)


def one_node() -> Dispatcher:
    return dispatcher_of(fleet_of(standard("a")))


def state_of(dispatcher: Dispatcher, name: str = "a") -> NodeState:
    state = dispatcher.fleet.node(name)
    assert state is not None
    return state


def place(dispatcher: Dispatcher, now: float) -> Placement:
    return dispatcher.place(shape("chat"), "r", now)


def settle(dispatcher: Dispatcher, placement: Placement, outcome: Outcome, now: float) -> None:
    dispatcher.settle(placement, outcome, now)


def full(dispatcher: Dispatcher, now: float) -> bool:
    try:
        settle(dispatcher, place(dispatcher, now), Outcome(Ending.NOT_SENT), now)
    except AllFull:
        return True
    return False


def taught(dispatcher: Dispatcher, slots: int, sent: int, now: float = 1.0) -> list[Placement]:
    """So many requests at once to a node that takes fewer; returns those that run."""
    placed = [place(dispatcher, now) for _ in range(sent)]
    for placement in placed[slots:]:
        settle(dispatcher, placement, REFUSED, now + 0.01)
    return placed[:slots]


def polled(dispatcher: Dispatcher, now: float, running: int = 0, waiting: int = 0, name: str = "a") -> None:
    dispatcher.report(name, now, now, NodeReport(running=running, waiting=waiting, models=("m",)))


def test_a_burst_that_is_refused_teaches_exactly_what_a_node_takes() -> None:
    dispatcher = one_node()
    running = taught(dispatcher, slots=8, sent=60)
    polled(dispatcher, 1.1, running=8)
    assert state_of(dispatcher).limit == 8
    assert full(dispatcher, 1.2)
    settle(dispatcher, running.pop(), WORKED, 1.3)
    place(dispatcher, 1.4)
    assert full(dispatcher, 1.4)


def test_it_is_given_one_more_as_it_takes_as_much_for_long_enough() -> None:
    dispatcher = one_node()
    running = taught(dispatcher, slots=4, sent=10)
    now = 1.1
    for _ in range(20):
        polled(dispatcher, now, running=4)
        settle(dispatcher, running.pop(0), WORKED, now)
        placement = place(dispatcher, now)
        dispatcher.took(placement, now)
        running.append(placement)
        now += 0.1
    assert state_of(dispatcher).limit == 4  # that took two seconds
    settle(dispatcher, running.pop(0), WORKED, 7.0)
    placement = place(dispatcher, 7.0)
    dispatcher.took(placement, 7.0)
    assert state_of(dispatcher).limit == 5
    further = place(dispatcher, 7.1)
    settle(dispatcher, further, REFUSED, 7.2)
    assert state_of(dispatcher).limit == 4


def test_more_than_its_configured_limit_is_never_learned() -> None:
    dispatcher = dispatcher_of(fleet_of(standard("a", limit=2)))
    (running,) = taught(dispatcher, slots=1, sent=2)
    assert state_of(dispatcher).limit == 1
    for now in range(10, 20):
        polled(dispatcher, now, running=1)
        settle(dispatcher, running, WORKED, now)
        running = place(dispatcher, now)
        dispatcher.took(running, now)
    assert state_of(dispatcher).limit == 2


def test_a_retry_after_is_kept_to_though_the_node_reports_and_no_longer_than_half_a_minute() -> None:
    for asked, kept in ((7, 7.0), (3600, 30.0)):
        dispatcher = one_node()
        settle(dispatcher, place(dispatcher, 1.0), Outcome(Ending.FULL, 503, retry_after_s=asked), 1.0)
        for now in (1.1, 1.0 + kept - 0.1):
            polled(dispatcher, now)
            assert full(dispatcher, now)
        polled(dispatcher, 1.0 + kept)
        place(dispatcher, 1.0 + kept)
        assert full(dispatcher, 1.0 + kept)  # one trial at a time


def test_a_request_that_ends_shows_room_before_a_retry_after_is_over() -> None:
    dispatcher = one_node()
    running, refused = place(dispatcher, 1.0), place(dispatcher, 1.0)
    settle(dispatcher, refused, Outcome(Ending.FULL, 429, retry_after_s=7), 1.1)
    polled(dispatcher, 1.2)
    assert full(dispatcher, 1.2)
    settle(dispatcher, running, WORKED, 1.3)
    assert not full(dispatcher, 1.3)


def test_a_node_that_refuses_with_nothing_to_do_is_asked_less_and_less_and_one_answer_ends_that() -> None:
    dispatcher = one_node()
    tries: list[float] = []
    now = 1.0
    while now < 16.0:
        polled(dispatcher, now)
        try:
            placement = place(dispatcher, now)
        except AllFull:
            pass
        else:
            assert full(dispatcher, now) or not tries
            settle(dispatcher, placement, REFUSED, now)
            tries.append(now)
        now += 0.05
    assert len(tries) <= 9
    assert max(later - earlier for earlier, later in pairwise(tries)) < 5.2
    polled(dispatcher, 30.0)
    dispatcher.took(place(dispatcher, 30.0), 30.1)
    for _ in range(20):
        place(dispatcher, 30.2)


def test_a_burst_of_refusals_counts_as_one() -> None:
    dispatcher = one_node()
    taught(dispatcher, slots=0, sent=100)
    polled(dispatcher, 1.1)
    assert not full(dispatcher, 1.1)


def test_a_node_that_was_away_is_taken_as_new() -> None:
    dispatcher = one_node()
    for placement in taught(dispatcher, slots=3, sent=10):
        settle(dispatcher, placement, Outcome(Ending.UPSTREAM_LOST), 1.2)
    for now in (1.3, 1.4):
        dispatcher.report_failed("a", now, EngineUnreachable("gone"))
    polled(dispatcher, 2.0)
    assert state_of(dispatcher).limit == 256


def test_a_report_of_more_than_was_learned_raises_it() -> None:
    dispatcher = one_node()
    settle(dispatcher, place(dispatcher, 1.0), REFUSED, 1.0)
    polled(dispatcher, 2.0, running=12)
    assert state_of(dispatcher).limit == 12


def test_a_node_that_queues_inside_is_used_after_one_with_room() -> None:
    dispatcher = dispatcher_of(fleet_of(standard("a"), standard("b", limit=8)))
    placed = [place(dispatcher, 0.1) for _ in range(20)]
    own = sum(placement.node.name == "a" for placement in placed)
    dispatcher.report("b", 0.2, 0.2, report(speculating=None))
    polled(dispatcher, 0.2, running=8, waiting=own - 8)
    while state_of(dispatcher, "b").own < 8:
        assert place(dispatcher, 0.3).node.name == "b"
    assert place(dispatcher, 0.3).node.name == "a"  # nobody has room, and it has not said that it takes no more


def test_a_node_that_runs_more_than_it_queued_at_is_taken_for_larger() -> None:
    dispatcher = one_node()
    polled(dispatcher, 0.1, running=3, waiting=1)
    assert state_of(dispatcher).full_at == 3
    polled(dispatcher, 0.2, running=5)
    assert state_of(dispatcher).full_at == 6
    polled(dispatcher, 0.3, running=2)
    assert state_of(dispatcher).full_at == 6


def test_what_a_node_queues_says_nothing_of_one_whose_limit_is_known() -> None:
    dispatcher = dispatcher_of(fleet_of(standard("a", limit=20)))
    polled(dispatcher, 0.1, running=3, waiting=4)
    assert state_of(dispatcher).full_at == 20


STEPS = st.lists(
    st.tuples(st.sampled_from(["refused", "took", "reported"]), st.integers(0, 40), st.floats(0.0, 20.0)), max_size=40
)


@given(STEPS, st.one_of(st.none(), st.integers(0, 10_000)))
def test_a_learned_limit_always_lets_one_through_and_its_pause_ends(
    steps: list[tuple[str, int, float]], retry_after_s: int | None
) -> None:
    learned, now = LearnedLimit(), 0.0
    for step, count, later in steps:
        now += later
        if step == "refused":
            learned.refused(count, now, retry_after_s, now)
        elif step == "took":
            learned.took(count, now, now)
        else:
            learned.reported(NodeReport(running=count, waiting=count % 3), now, known=False)
        assert learned.limit is None or learned.limit >= 1
        assert learned.queues_from is None or learned.queues_from >= 1
        assert learned.retry_at <= now + 30.0


@pytest.mark.parametrize("sequences", [0, 5])
def test_an_answer_to_what_was_sent_before_a_refusal_shows_nothing(sequences: int) -> None:
    learned = LearnedLimit()
    learned.refused(sequences, 1.0, None, 1.0)
    assert not learned.took(sequences, 0.9, 20.0)
    assert learned.limit == max(1, sequences)
