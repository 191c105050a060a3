"""Nodes whose requests fail, as the dispatcher sees them: taken out, tried again, and never too many at once."""

from __future__ import annotations

import pytest

from fleets import dispatcher_of, fleet_of, report, shape, speculative, standard
from slipstream.core.circuit import CircuitState
from slipstream.core.dispatch import Dispatcher, Placement
from slipstream.core.errors import EngineUnreachable
from slipstream.core.fleet import Fleet
from slipstream.core.node import NodeSpec
from slipstream.core.node_state import NodeState
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.reason import Reason
from slipstream.core.request import Pool

WORKED, FAILED = Outcome(Ending.COMPLETED, 200), Outcome(Ending.REFUSED, 500)


def state_of(dispatcher: Dispatcher, name: str) -> NodeState:
    state = dispatcher.fleet.node(name)
    assert state is not None
    return state


def place(dispatcher: Dispatcher, now: float, only: str | None = None) -> Placement:
    """A request; on one node, whatever others there are."""
    others = frozenset(node.name for node in dispatcher.fleet.nodes() if only is not None and node.name != only)
    return dispatcher.place(shape("chat"), "r", now, others)


def fail(dispatcher: Dispatcher, name: str, now: float = 0.1, outcome: Outcome = FAILED, times: int = 3) -> None:
    """So many requests at once fail on one node."""
    for placement in [place(dispatcher, now, name) for _ in range(times)]:
        dispatcher.settle(placement, outcome, now)


def two_standard() -> Dispatcher:
    return dispatcher_of(fleet_of(standard("a"), standard("b")))


def test_three_failures_take_a_node_out_and_its_pool_goes_on() -> None:
    dispatcher = two_standard()
    fail(dispatcher, "a")
    state = state_of(dispatcher, "a")
    assert (state.state, state.closed, state.usable, state.circuit.ejections) == ("ejected", Reason.UNHEALTHY, False, 1)
    assert {place(dispatcher, 0.2).node.name for _ in range(10)} == {"b"}


def test_an_ejected_node_is_explained_as_unhealthy_at_that_time_and_open_later() -> None:
    dispatcher = two_standard()
    fail(dispatcher, "a")
    while_out = place(dispatcher, 0.2)
    dispatcher.settle(place(dispatcher, 1.2, "a"), WORKED, 1.3)  # the trial
    after = place(dispatcher, 1.4)
    reasons = []
    for placement in (while_out, after):
        found = dispatcher.candidates(placement)
        assert found is not None
        reasons.append({one.node: one.reason for one in found if not one.chosen})
    assert reasons[0] == {"a": Reason.UNHEALTHY}
    assert set(reasons[1].values()) == {None}


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(Ending.REFUSED, 400),
        Outcome(Ending.FULL, 429),
        Outcome(Ending.FULL, 503),
        Outcome(Ending.CLIENT_GONE),
        Outcome(Ending.TIMED_OUT),
    ],
)
def test_no_amount_of_other_endings_takes_a_node_out(outcome: Outcome) -> None:
    dispatcher = two_standard()
    for n in range(30):
        now = 6.0 * n  # longer than a node that refuses is left alone
        dispatcher.report("a", now, now, report(speculating=None))
        fail(dispatcher, "a", now, outcome, times=1)
    assert state_of(dispatcher, "a").circuit.state is CircuitState.CLOSED


@pytest.mark.parametrize(("nodes", "most"), [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2)])
def test_at_most_half_of_a_pool_is_out_at_once(nodes: int, most: int) -> None:
    dispatcher = dispatcher_of(fleet_of(*(standard(f"n{n}") for n in range(nodes)), speculative("s")))
    for n in range(nodes):
        fail(dispatcher, f"n{n}", times=6)
    ejected = [node.name for node in dispatcher.fleet.nodes() if node.state == "ejected"]
    assert len(ejected) == most
    assert place(dispatcher, 0.2).decision.pool is Pool.STANDARD


def test_nodes_that_are_down_or_serve_another_model_do_not_count_as_left() -> None:
    other = NodeSpec("other", "http://other:1", Pool.STANDARD, models=("another",))
    dispatcher = dispatcher_of(fleet_of(standard("a"), standard("b"), other))
    for _ in range(2):
        dispatcher.report_failed("b", 0.1, EngineUnreachable("refused"))
    fail(dispatcher, "a", 0.2)
    assert state_of(dispatcher, "a").state == "ready"


def test_after_its_back_off_one_request_at_a_time_is_its_trial() -> None:
    dispatcher = two_standard()
    fail(dispatcher, "a", 0.1)
    trial = place(dispatcher, 1.2, "a")
    assert {place(dispatcher, 1.3).node.name for _ in range(10)} == {"b"}
    dispatcher.settle(trial, WORKED, 1.4)
    dispatcher.report("a", 1.4, 1.4, report(speculating=None))
    assert state_of(dispatcher, "a").state == "ready"
    assert "a" in {place(dispatcher, 1.5).node.name for _ in range(4)}


@pytest.mark.parametrize("outcome", [WORKED, FAILED, Outcome(Ending.CLIENT_GONE)])
def test_of_a_node_that_left_during_its_trial_nothing_is_held_on_to(outcome: Outcome) -> None:
    dispatcher = two_standard()
    fail(dispatcher, "a", 0.1)
    trial = place(dispatcher, 1.2, "a")
    assert trial.state.circuit.trial is trial
    dispatcher.remove("a")
    dispatcher.settle(trial, outcome, 1.4)
    assert trial.state.circuit.trial is None


def test_a_failed_trial_doubles_the_wait_and_one_that_says_nothing_is_repeated() -> None:
    dispatcher = two_standard()
    fail(dispatcher, "a", 0.1)
    gone = place(dispatcher, 1.2, "a")
    dispatcher.settle(gone, Outcome(Ending.CLIENT_GONE), 1.3)
    dispatcher.settle(place(dispatcher, 1.4, "a"), FAILED, 1.5)
    assert {place(dispatcher, 3.4).node.name for _ in range(3)} == {"b"}
    assert place(dispatcher, 3.6, "a").node.name == "a"
    assert state_of(dispatcher, "a").circuit.ejections == 1


def test_what_was_sent_before_it_was_ejected_is_no_trial() -> None:
    dispatcher = two_standard()
    early = place(dispatcher, 0.0, "a")
    fail(dispatcher, "a", 0.1)
    dispatcher.settle(early, WORKED, 0.2)
    assert state_of(dispatcher, "a").state == "ejected"


def test_a_node_that_was_away_for_its_poller_too_is_back_with_its_first_report() -> None:
    dispatcher = two_standard()
    fail(dispatcher, "a", 0.1, Outcome(Ending.UNREACHABLE))
    for now in (0.2, 0.3):
        dispatcher.report_failed("a", now, EngineUnreachable("refused"))
    assert state_of(dispatcher, "a").state == "unhealthy"
    dispatcher.report("a", 0.4, 0.4, report(speculating=None))
    assert state_of(dispatcher, "a").state == "ready"


def test_a_node_whose_metrics_always_answered_waits_for_its_back_off() -> None:
    dispatcher = two_standard()
    for now in (0.1, 0.2, 0.3):
        fail(dispatcher, "a", now, Outcome(Ending.UNREACHABLE), times=1)
        dispatcher.report("a", now, now, report(speculating=None))
    assert state_of(dispatcher, "a").state == "ejected"


def test_a_node_that_left_the_fleet_is_not_judged() -> None:
    dispatcher = two_standard()
    placements = [place(dispatcher, 0.1, "a") for _ in range(3)]
    dispatcher.remove("a")
    dispatcher.add(standard("a"), 0.2)
    for placement in placements:
        dispatcher.settle(placement, FAILED, 0.3)
    assert state_of(dispatcher, "a").circuit.ejections == 0


def test_every_change_of_a_circuit_is_told() -> None:
    heard: list[tuple[str, CircuitState]] = []
    specs = [standard("a"), standard("b")]
    fleet = Fleet(specs, 0.0, circuit_changed=lambda node: heard.append((node.name, node.circuit.state)))
    for spec in specs:
        fleet.report(spec.name, 0.0, 0.0, report(speculating=None))
    dispatcher = dispatcher_of(fleet)
    fail(dispatcher, "a", 0.1)
    dispatcher.settle(place(dispatcher, 1.2, "a"), WORKED, 1.3)
    assert heard == [("a", CircuitState.OPEN), ("a", CircuitState.HALF_OPEN), ("a", CircuitState.CLOSED)]


def test_a_trial_that_was_overtaken_by_the_nodes_restart_is_an_ordinary_request() -> None:
    dispatcher = two_standard()
    fail(dispatcher, "a", 0.1)
    trial = place(dispatcher, 1.2, "a")
    for now in (1.3, 1.4):
        dispatcher.report_failed("a", now, EngineUnreachable("refused"))
    dispatcher.report("a", 1.5, 1.5, report(speculating=None))
    dispatcher.settle(trial, FAILED, 1.6)
    assert state_of(dispatcher, "a").state == "ready"


def test_a_trial_that_is_a_long_stream_need_not_end_for_its_node_to_be_used_again() -> None:
    dispatcher = two_standard()
    fail(dispatcher, "a")
    trial = place(dispatcher, 1.2, "a")
    assert trial.node.name == "a"
    assert place(dispatcher, 1.3).node.name == "b"
    dispatcher.answering(trial, 7.0)
    state = state_of(dispatcher, "a")
    assert (state.circuit.state, state.usable) == (CircuitState.CLOSED, True)
    assert place(dispatcher, 7.1, "a").node.name == "a"
    dispatcher.settle(trial, Outcome(Ending.UPSTREAM_LOST, 200), 8.0)  # a failure like any other, then
    assert state.circuit.state is CircuitState.CLOSED


def test_only_the_trial_speaks_for_its_node_and_only_while_it_is_in_the_fleet() -> None:
    dispatcher = two_standard()
    before = place(dispatcher, 0.1, "a")
    fail(dispatcher, "a")
    trial = place(dispatcher, 1.2, "a")
    dispatcher.answering(before, 2.0)
    assert state_of(dispatcher, "a").circuit.state is CircuitState.HALF_OPEN
    dispatcher.remove("a")
    dispatcher.add(standard("a"), 2.1)
    dispatcher.answering(trial, 3.0)
    assert trial.state.circuit.state is CircuitState.HALF_OPEN


def test_a_node_may_be_tried_again_though_no_request_comes() -> None:
    dispatcher = two_standard()
    fail(dispatcher, "a")
    dispatcher.fleet.drain("b", 0.2)
    assert dispatcher.fleet.usable_nodes() == 0  # whoever asks whether the gateway is ready sends it nothing, then
    for name in ("a", "b"):
        dispatcher.report(name, 1.2, 1.3, report(speculating=False))
    assert dispatcher.fleet.usable_nodes() == 1
    assert place(dispatcher, 1.4).node.name == "a"
