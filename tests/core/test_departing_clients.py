"""What a client that left had booked is given back once its engine has stopped, and once only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleets import dispatcher_of, report, shape, speculative, standard
from slipstream.core.dispatch import Dispatcher, Placement
from slipstream.core.errors import EngineGarbage, PlacementError
from slipstream.core.fleet import Fleet
from slipstream.core.node import NodeSpec
from slipstream.core.node_state import NodeState
from slipstream.core.outcome import Ending, Outcome

ABORT_LAG_S, GAUGE_LAG_S = 0.5, 0.1
GONE = Outcome(Ending.CLIENT_GONE)


def lagging(*specs: NodeSpec) -> Dispatcher:
    """A fleet of engines that are slow to notice; all nodes have reported at time 0."""
    fleet = Fleet(specs, 0.0, gauge_lag_s=lambda _: GAUGE_LAG_S, abort_lag_s=lambda _: ABORT_LAG_S)
    for spec in specs:
        fleet.report(spec.name, 0.0, 0.0, report())
    return dispatcher_of(fleet)


def state_of(dispatcher: Dispatcher, name: str = "s") -> NodeState:
    state = dispatcher.fleet.node(name)
    assert state is not None
    return state


def test_a_client_that_left_is_settled_at_once_and_its_sequences_stay_booked() -> None:
    dispatcher = lagging(speculative("s"))
    placement = dispatcher.place(shape(sequences=3), "r", 0.1)
    dispatcher.settle(placement, GONE, 0.2)
    state = state_of(dispatcher)
    assert dispatcher.endings["code", Ending.CLIENT_GONE] == 1
    assert (state.own, state.occupancy, state.speculative_capacity) == (3, 3, 5)
    with pytest.raises(RuntimeError, match="settled twice"):
        dispatcher.settle(placement, GONE, 0.3)


def test_an_engine_that_kept_us_waiting_for_too_long_may_work_on_as_well() -> None:
    dispatcher = lagging(speculative("s"))
    dispatcher.settle(dispatcher.place(shape(), "r", 0.1), Outcome(Ending.TIMED_OUT), 0.2)
    assert state_of(dispatcher).own == 1
    dispatcher.fleet.expire(0.7)
    assert state_of(dispatcher).own == 0


@pytest.mark.parametrize("ending", [Ending.COMPLETED, Ending.UPSTREAM_LOST, Ending.REFUSED, Ending.FULL])
def test_an_engine_that_has_ended_it_itself_is_done(ending: Ending) -> None:
    dispatcher = lagging(speculative("s"))
    dispatcher.settle(dispatcher.place(shape(), "r", 0.1), Outcome(ending), 0.2)
    assert state_of(dispatcher).own == 0


def test_they_come_back_when_the_abort_lag_has_passed() -> None:
    dispatcher = lagging(speculative("s"))
    dispatcher.settle(dispatcher.place(shape(), "r", 0.1), GONE, 0.2)
    dispatcher.fleet.expire(0.69)
    assert state_of(dispatcher).own == 1
    dispatcher.fleet.expire(0.7)
    assert state_of(dispatcher).own == 0
    dispatcher.fleet.expire(5.0)
    assert state_of(dispatcher).own == 0


def test_any_poll_of_any_node_lets_them_come_back() -> None:
    dispatcher = lagging(speculative("s"), standard("t"), standard("u"))
    dispatcher.settle(dispatcher.place(shape(), "r", 0.1), GONE, 0.2)
    dispatcher.report("t", 0.6, 0.7, report(speculating=False))
    assert state_of(dispatcher).own == 0
    dispatcher.settle(dispatcher.place(shape(), "r", 0.8), GONE, 0.8)
    dispatcher.report_failed("u", 1.3, EngineGarbage("no"))
    assert state_of(dispatcher).own == 0


def test_a_report_asked_for_after_that_confirms_and_an_earlier_one_does_not() -> None:
    dispatcher = lagging(speculative("s"))
    dispatcher.settle(dispatcher.place(shape(), "r", 0.1), GONE, 0.2)
    dispatcher.report("s", 0.25, 0.3, report(running=0))  # the gauge may be from before
    assert state_of(dispatcher).own == 1
    dispatcher.report("s", 0.35, 0.4, report(running=1))  # still at it
    assert state_of(dispatcher).own == 1
    dispatcher.report("s", 0.45, 0.5, report(running=0))
    assert state_of(dispatcher).own == 0


def test_what_outlasts_the_abort_lag_is_foreign_from_then_on() -> None:
    dispatcher = lagging(speculative("s", ceiling=2))
    for request in "ab":
        dispatcher.settle(dispatcher.place(shape(), request, 0.1), GONE, 0.2)
    dispatcher.report("s", 0.45, 0.5, report(running=1))  # one has stopped, the other goes on
    state = state_of(dispatcher)
    assert (state.own, state.foreign) == (1, 0)
    dispatcher.fleet.expire(0.7)
    assert (state.own, state.foreign, state.occupancy) == (0, 1, 1)
    events = state.saturation_events
    for asked_at in (0.9, 1.0, 1.1):
        assert state.occupancy == 1
        dispatcher.report("s", asked_at, asked_at + 0.01, report(running=0))
    dispatcher.report("s", 1.2, 1.21, report(running=0))
    assert (state.occupancy, state.saturation_events) == (0, events)


def test_what_no_later_report_has_shown_is_over_with_the_abort_lag() -> None:
    dispatcher = lagging(speculative("s"))
    dispatcher.settle(dispatcher.place(shape(), "r", 0.1), GONE, 0.2)
    dispatcher.report("s", 0.25, 0.3, report(running=1))  # may be from before it left
    dispatcher.fleet.expire(0.7)
    assert state_of(dispatcher).occupancy == 0


def test_a_full_node_is_open_again_with_them() -> None:
    dispatcher = lagging(speculative("s", ceiling=1))
    dispatcher.settle(dispatcher.place(shape(), "r", 0.1), GONE, 0.2)
    assert state_of(dispatcher).saturated
    dispatcher.fleet.expire(0.7)
    assert not state_of(dispatcher).saturated


def test_a_node_that_left_the_fleet_gets_them_back_too() -> None:
    dispatcher = lagging(speculative("s"), standard("t"))
    placement = dispatcher.place(shape(), "r", 0.1)
    dispatcher.settle(placement, GONE, 0.2)
    dispatcher.remove("s")
    dispatcher.fleet.add(speculative("s"), 0.3)
    dispatcher.fleet.expire(0.8)
    assert (placement.state.own, state_of(dispatcher).own) == (0, 0)


def test_an_engine_without_a_lag_is_done_at_once() -> None:
    fleet = Fleet([speculative("s")], 0.0)
    fleet.report("s", 0.0, 0.0, report())
    dispatcher = dispatcher_of(fleet)
    dispatcher.settle(dispatcher.place(shape(), "r", 0.1), GONE, 0.2)
    assert state_of(dispatcher).own == 0


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["place", "leave", "end", "poll", "expire", "remove"]), st.integers(0, 9), st.floats(0, 0.4)
    ),
    max_size=80,
)


@given(STEPS)
def test_the_ledger_returns_to_zero_whatever_happens(steps: list[tuple[str, int, float]]) -> None:
    dispatcher = lagging(speculative("s"), standard("t"))
    now, running = 0.0, list[Placement]()
    seen = {id(state): state for state in dispatcher.fleet.nodes()}
    for kind, number, pause in steps:
        now += pause
        if kind == "place":
            try:
                running.append(dispatcher.place(shape(sequences=1 + number % 3), "r", now))
            except PlacementError:
                continue
        elif kind in ("leave", "end") and running:
            ending = Ending.CLIENT_GONE if kind == "leave" else Ending.COMPLETED
            dispatcher.settle(running.pop(number % len(running)), Outcome(ending), now)
        elif kind == "poll":
            dispatcher.report("s", now - 0.01, now, report(running=number))
        elif kind == "expire":
            dispatcher.fleet.expire(now)
        elif kind == "remove":
            dispatcher.remove("s")
            dispatcher.fleet.add(speculative("s"), now)
            dispatcher.fleet.report("s", now, now, report())
        seen |= {id(state): state for state in dispatcher.fleet.nodes()}
        held = sum(placement.shape.sequences for placement in running)
        assert sum(state.own - state.departures.sequences for state in seen.values()) == held
    for placement in running:
        dispatcher.settle(placement, GONE, now)
    dispatcher.fleet.expire(now + ABORT_LAG_S)
    assert [state.own for state in seen.values() if state.own] == []
