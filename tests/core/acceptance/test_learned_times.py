"""Time per token by mean occupancy, of what runs on a node."""

from __future__ import annotations

import pytest

from fleets import dispatcher_of, fleet_of, shape, speculative
from slipstream.core.acceptance import AcceptanceBook, AcceptancePrior, Identity, LearnedTime
from slipstream.core.dispatch import Dispatcher
from slipstream.core.latency import Latency
from slipstream.core.node import SpeculativeCounters
from slipstream.core.outcome import Ending, Outcome


def book() -> AcceptanceBook:
    return AcceptanceBook(AcceptancePrior())


def teach(known: AcceptanceBook, occupancy: float, tpot_s: float, requests: int = 10, now: float = 0.0) -> None:
    for _ in range(requests):
        known.timed("s", 1, tpot_s, now, occupancy)


def finish(dispatcher: Dispatcher, began: object, now: float, tpot_s: float = 0.02) -> None:
    outcome = Outcome(Ending.COMPLETED, 200, Latency(0.1, tpot_s, now), 10, 50)
    dispatcher.settle(began, outcome, now)  # type: ignore[arg-type]  # a placement


def test_each_range_of_occupancy_has_its_own_times() -> None:
    known = book()
    teach(known, 1.2, 0.010)
    teach(known, 6.6, 0.030)
    first, second = known.learned_times("s")
    assert (first.least, first.most, first.requests) == (1, 1, 10)
    assert (second.least, second.most) == (5, 8)
    assert first.tpot_s == pytest.approx(0.010, rel=0.02)
    assert second.interval == pytest.approx((0.030, 0.030), rel=0.03)
    assert known.learned_times("another") == []


def test_a_request_counts_for_the_mean_occupancy_while_it_was_there() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s", limit=64, ceiling=64)))
    first = dispatcher.place(shape(), "a", 1.0)
    others = [dispatcher.place(shape(), f"b{n}", 2.0) for n in range(11)]
    finish(dispatcher, first, 3.0)  # alone for a second, one of twelve for another
    (learned,) = dispatcher.evidence.book.learned_times("s")
    assert (learned.least, learned.most) == (5, 8)
    for other in others:
        finish(dispatcher, other, 3.0)
    assert [one.least for one in dispatcher.evidence.book.learned_times("s")] == [5, 9]
    (placed,) = [one for one in dispatcher.evidence.book.occupancy_figures(["s"], 3.0) if one.least == 1]
    assert placed.timed == 1  # by the occupancy at its placement it belongs elsewhere


@pytest.mark.parametrize("sequences", [1, 3])
def test_a_request_of_several_sequences_has_no_time_per_token_of_one(sequences: int) -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s")))
    finish(dispatcher, dispatcher.place(shape(sequences=sequences), "a", 1.0), 2.0)
    assert len(dispatcher.evidence.book.learned_times("s")) == (sequences == 1)


def test_what_was_learned_of_something_else_is_forgotten() -> None:
    known = book()
    known.identify("s", Identity("vllm", "1", "draft-k4"), 0.0)
    teach(known, 2.0, 0.010)
    known.identify("s", Identity("vllm", "1", "draft-k4"), 1.0)
    assert known.learned_times("s") != []
    known.identify("s", Identity("vllm", "2", "draft-k4"), 2.0)
    assert known.learned_times("s") == []


def test_a_restart_is_seen_though_the_fresh_counters_stand_at_zero() -> None:
    known = book()
    for now, count in enumerate((10, 20)):
        known.observe("s", SpeculativeCounters(count, count, count), float(now))
    teach(known, 2.0, 0.010)
    assert known.observe("s", SpeculativeCounters(0, 0, 0), 2.0) is None
    delta = known.observe("s", SpeculativeCounters(30, 30, 30), 3.0)
    assert delta is not None
    assert delta.restarted
    assert known.learned_times("s") == []
    after = known.observe("s", SpeculativeCounters(40, 40, 40), 4.0)
    assert after is not None
    assert not after.restarted


def test_it_forgets_and_outlives_its_clock() -> None:
    known = book()
    teach(known, 2.0, 0.010, requests=100)
    year = 365 * 86_400.0
    teach(known, 2.0, 0.040, now=year)
    (learned,) = known.learned_times("s")
    assert isinstance(learned, LearnedTime)
    assert learned.tpot_s == pytest.approx(0.040, rel=0.02)
    assert learned.effective == pytest.approx(10.0)
