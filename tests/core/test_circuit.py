"""When a node's circuit opens, and how it closes again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.core.circuit import FAILURES, LONGEST_BACK_OFF_S, Circuit, CircuitState, verdict
from slipstream.core.outcome import Ending, Outcome

WORKED = Outcome(Ending.COMPLETED, 200)
FAILED = Outcome(Ending.REFUSED, 500)


def opened(at: float = 0.0) -> Circuit:
    circuit = Circuit()
    circuit.open(at)
    return circuit


@pytest.mark.parametrize("status", [500, 502, 504])
def test_a_servers_own_error_is_a_failure(status: int) -> None:
    assert verdict(Outcome(Ending.REFUSED, status)) is False


@pytest.mark.parametrize("status", [400, 401, 404, 408, 413, 422, 499, 501])
def test_what_is_the_clients_fault_is_an_answer(status: int) -> None:
    assert verdict(Outcome(Ending.REFUSED, status)) is True


@pytest.mark.parametrize("status", [429, 503])
def test_a_full_node_has_neither_failed_nor_worked(status: int) -> None:
    assert verdict(Outcome(Ending.FULL, status)) is None


def test_broken_connections_are_failures_and_clients_that_leave_are_nothing() -> None:
    assert verdict(Outcome(Ending.UNREACHABLE)) is False
    assert verdict(Outcome(Ending.UPSTREAM_LOST, 200)) is False
    assert verdict(Outcome(Ending.CLIENT_GONE)) is None
    assert verdict(Outcome(Ending.TIMED_OUT)) is None


def test_that_the_gateway_itself_could_not_connect_is_not_held_against_the_node() -> None:
    assert verdict(Outcome(Ending.NOT_SENT)) is None


def test_two_failures_are_not_enough_and_three_are() -> None:
    circuit = Circuit()
    assert [circuit.count(0.1 * n, failed=True) for n in range(3)] == [False, False, True]


def test_successes_before_the_first_failure_hide_nothing() -> None:
    circuit = Circuit()
    for _ in range(1000):
        circuit.count(0.0, failed=False)
    assert [circuit.count(0.1, failed=True) for _ in range(3)] == [False, False, True]


def test_a_node_that_mostly_works_stays_in() -> None:
    circuit = Circuit()
    for n in range(300):
        assert not circuit.count(n * 0.01, failed=n % 3 == 0)


def test_failures_far_apart_are_not_counted_together() -> None:
    circuit = Circuit()
    assert not any(circuit.count(40.0 * n, failed=True) for n in range(10))


@given(st.lists(st.tuples(st.booleans(), st.floats(0.0, 20.0))))
def test_it_never_opens_on_a_success_or_on_fewer_than_three_failures(results: list[tuple[bool, float]]) -> None:
    circuit = Circuit()
    now, failures = 0.0, 0
    for failed, elapsed in results:
        now += elapsed
        failures += failed
        if circuit.count(now, failed=failed):
            assert failed
            assert failures >= FAILURES
            break


def test_one_success_on_trial_closes_it() -> None:
    circuit = opened()
    circuit.half_open()
    circuit.trial = "a request"
    circuit.tried(WORKED, 1.5)
    assert (circuit.state, circuit.retry_at, circuit.watching) == (CircuitState.CLOSED, 1.0, False)


@pytest.mark.parametrize("outcome", [FAILED, Outcome(Ending.UNREACHABLE), Outcome(Ending.TIMED_OUT)])
def test_a_trial_that_fails_or_gets_no_answer_doubles_the_back_off(outcome: Outcome) -> None:
    circuit = opened()
    waited = []
    for _ in range(8):
        now = circuit.retry_at
        circuit.half_open()
        circuit.trial = object()
        circuit.tried(outcome, now)
        waited.append(circuit.retry_at - now)
    assert waited == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0]
    assert circuit.ejections == 1


@pytest.mark.parametrize("outcome", [Outcome(Ending.CLIENT_GONE), Outcome(Ending.FULL, 503)])
def test_a_trial_that_says_nothing_is_followed_by_another(outcome: Outcome) -> None:
    circuit = opened()
    circuit.half_open()
    circuit.trial = object()
    circuit.tried(outcome, 1.0)
    assert (circuit.state, circuit.trial) == (CircuitState.HALF_OPEN, None)


def test_results_of_requests_sent_before_it_opened_change_nothing() -> None:
    circuit = opened()
    assert not any(circuit.count(0.1, failed=True) for _ in range(5))
    assert circuit.retry_at == 1.0


def test_a_node_that_fails_again_soon_after_waits_longer_and_after_a_calm_minute_not() -> None:
    circuit = opened(0.0)
    circuit.close(1.0)
    circuit.open(2.0)
    assert circuit.retry_at == 4.0
    circuit.close(4.0)
    circuit.open(64.0)
    assert circuit.retry_at == 65.0
    assert circuit.ejections == 3


@given(st.lists(st.booleans(), max_size=40))
def test_the_back_off_is_bounded_whatever_the_trials_say(worked: list[bool]) -> None:
    circuit = opened()
    for one in worked:
        if circuit.state is CircuitState.CLOSED:
            circuit.open(circuit.retry_at)
        now = circuit.retry_at
        circuit.half_open()
        circuit.tried(WORKED if one else FAILED, now)
        assert circuit.retry_at - now <= LONGEST_BACK_OFF_S
