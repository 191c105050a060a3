"""Overrides at work: where requests go while they are in force, and after."""

from __future__ import annotations

import pytest

from fleets import dispatcher_of, fleet_of, report, shape, speculative, standard
from slipstream.core.dispatch import Dispatcher
from slipstream.core.errors import NothingUsable
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.overrides import FLEET, Override, OverrideKind
from slipstream.core.policy import ThresholdSettings
from slipstream.core.reason import Reason
from slipstream.core.request import PinSource, Pool

OFF = Override(OverrideKind.SPECULATION, FLEET)
STANDARD, SPECULATIVE = Pool.STANDARD, Pool.SPECULATIVE


@pytest.fixture
def dispatcher() -> Dispatcher:
    return dispatcher_of(fleet_of(speculative("s"), standard("t")))


def went(dispatcher: Dispatcher, category: str = "code", now: float = 0.5, **fields: object) -> tuple[str, Reason]:
    placement = dispatcher.place(shape(category, **fields), "r", now)
    dispatcher.settle(placement, Outcome(Ending.COMPLETED, 200), now)
    return placement.node.name, placement.decision.reason


def state(dispatcher: Dispatcher, name: str) -> str:
    node = dispatcher.fleet.node(name)
    assert node is not None
    return node.state


def ceiling(dispatcher: Dispatcher, name: str) -> int:
    node = dispatcher.fleet.node(name)
    assert node is not None
    return node.ceiling


def test_a_pinned_category_goes_to_its_pool_until_it_is_cleared(dispatcher: Dispatcher) -> None:
    dispatcher.override(Override(OverrideKind.PIN_CATEGORY, "code", STANDARD), 0.1)
    assert went(dispatcher) == ("t", Reason.PINNED)
    assert went(dispatcher, "edit") == ("s", Reason.SPECULATIVE)
    dispatcher.clear_override(OverrideKind.PIN_CATEGORY, "code", 0.2)
    assert went(dispatcher) == ("s", Reason.SPECULATIVE)


def test_a_key_is_pinned_by_its_id_and_against_what_is_configured(dispatcher: Dispatcher) -> None:
    dispatcher.override(Override(OverrideKind.PIN_KEY, "team", SPECULATIVE), 0.1)
    assert went(dispatcher, "chat", key_id="team", pinned_pool=STANDARD) == ("s", Reason.PINNED)
    assert went(dispatcher, "chat", key_id="other", pinned_pool=STANDARD) == ("t", Reason.PINNED)


def test_with_speculation_off_everything_goes_to_the_standard_pool(dispatcher: Dispatcher) -> None:
    dispatcher.override(OFF, 0.1)
    assert went(dispatcher) == ("t", Reason.PINNED)
    assert went(dispatcher, pinned_pool=SPECULATIVE) == ("t", Reason.PINNED)
    placement = dispatcher.place(shape("code"), "r", 0.5)
    found = dispatcher.candidates(placement)
    assert found is not None
    assert {one.node: one.reason for one in found} == {"s": Reason.PINNED, "t": Reason.PINNED}
    dispatcher.clear_override(OFF.kind, OFF.subject, 0.6)
    assert went(dispatcher, now=0.7) == ("s", Reason.SPECULATIVE)


def test_with_speculation_off_a_fleet_without_standard_nodes_still_serves() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s")))
    dispatcher.override(OFF, 0.1)
    assert went(dispatcher) == ("s", Reason.FALLBACK)


def test_where_routing_only_observes_overrides_steer_and_what_is_configured_does_not() -> None:
    fleet = fleet_of(speculative("s"), standard("t"))
    fleet.admit("t", 50, "code", 0.0)
    dispatcher = dispatcher_of(fleet, ThresholdSettings(observe=True))
    configured = went(dispatcher, pinned_pool=STANDARD, pinned_by=PinSource.CONFIGURATION)
    assert configured == ("s", Reason.OBSERVE)
    dispatcher.override(Override(OverrideKind.PIN_CATEGORY, "chat", STANDARD), 0.1)
    assert went(dispatcher, "chat") == ("t", Reason.PINNED)
    assert went(dispatcher) == ("s", Reason.OBSERVE)
    dispatcher.override(OFF, 0.1)
    assert {went(dispatcher) for _ in range(20)} == {("t", Reason.PINNED)}
    placement = next(dispatcher.placements())
    assert placement.shape.pinned_by is PinSource.OVERRIDE
    assert placement.decision.intended is None
    dispatcher.clear_override(OverrideKind.SPECULATION, FLEET, 0.2)
    assert went(dispatcher) == ("s", Reason.OBSERVE)


def test_a_drained_node_gets_nothing_new_and_keeps_what_it_has(dispatcher: Dispatcher) -> None:
    running = dispatcher.place(shape("code"), "r", 0.1)
    dispatcher.override(Override(OverrideKind.DRAIN, "s"), 0.2)
    assert (state(dispatcher, "s"), running.state.own) == ("draining", 1)
    assert went(dispatcher) == ("t", Reason.DRAINING)
    dispatcher.settle(running, Outcome(Ending.COMPLETED, 200), 0.3)
    assert running.state.own == 0
    dispatcher.clear_override(OverrideKind.DRAIN, "s", 0.4)
    assert went(dispatcher) == ("s", Reason.SPECULATIVE)


def test_a_drained_node_that_is_also_to_leave_is_not_resumed_with_the_override(dispatcher: Dispatcher) -> None:
    dispatcher.override(Override(OverrideKind.DRAIN, "s"), 0.1)
    dispatcher.fleet.drain("s", 0.2)
    dispatcher.clear_override(OverrideKind.DRAIN, "s", 0.3)
    assert state(dispatcher, "s") == "draining"
    dispatcher.fleet.drain("s", 0.4, draining=False)
    assert state(dispatcher, "s") == "ready"


def test_all_drained_is_said_to_be_drained(dispatcher: Dispatcher) -> None:
    for name in ("s", "t"):
        dispatcher.override(Override(OverrideKind.DRAIN, name), 0.1)
    with pytest.raises(NothingUsable, match="is being drained"):
        dispatcher.place(shape("code"), "r", 0.2)


def test_a_ceiling_holds_at_once_for_a_busy_node_and_never_above_its_limit() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s", limit=10), standard("t")))
    for _ in range(8):
        dispatcher.place(shape("code"), "r", 0.1)
    assert went(dispatcher) == ("t", Reason.SATURATED)
    dispatcher.override(Override(OverrideKind.NODE_CEILING, "s", 12), 0.2)
    assert ceiling(dispatcher, "s") == 10
    assert went(dispatcher) == ("s", Reason.SPECULATIVE)
    dispatcher.override(Override(OverrideKind.NODE_CEILING, "s", 2), 0.3)
    assert state(dispatcher, "s") == "saturated"
    dispatcher.report("s", 0.4, 0.4, report(8))
    assert ceiling(dispatcher, "s") == 2
    dispatcher.clear_override(OverrideKind.NODE_CEILING, "s", 0.5)
    assert ceiling(dispatcher, "s") == 8


def test_a_pools_ceiling_holds_for_nodes_that_join_later(dispatcher: Dispatcher) -> None:
    dispatcher.override(Override(OverrideKind.POOL_CEILING, SPECULATIVE, 3), 0.1)
    dispatcher.override(Override(OverrideKind.DRAIN, "late"), 0.1)
    dispatcher.add(speculative("late"), 0.2)
    dispatcher.report("late", 0.3, 0.3, report())
    assert (ceiling(dispatcher, "late"), state(dispatcher, "late")) == (3, "draining")


def test_what_has_an_end_ends_with_a_request_or_a_report_after_it(dispatcher: Dispatcher) -> None:
    dispatcher.override(Override(OverrideKind.DRAIN, "s", expires_at=0.4), 0.1)
    assert went(dispatcher, now=0.3) == ("t", Reason.DRAINING)
    assert went(dispatcher, now=0.4) == ("s", Reason.SPECULATIVE)
    dispatcher.override(Override(OverrideKind.DRAIN, "s", expires_at=0.6), 0.5)
    dispatcher.report("t", 0.7, 0.7, report(speculating=None))
    assert state(dispatcher, "s") == "ready"
    assert not dispatcher.overrides.active


def test_overrides_outlast_a_change_of_the_configuration(dispatcher: Dispatcher) -> None:
    dispatcher.override(Override(OverrideKind.NODE_CEILING, "s", 5), 0.1)
    dispatcher.fleet.reconfigure(speculative("s", ceiling=20), 0.2)
    assert ceiling(dispatcher, "s") == 5
    dispatcher.policy.configure(ThresholdSettings(), dispatcher.fleet.advance())
    dispatcher.remove("s")
    dispatcher.add(speculative("s", ceiling=20), 0.3)
    assert ceiling(dispatcher, "s") == 5


def test_a_past_decision_shows_the_ceiling_of_then(dispatcher: Dispatcher) -> None:
    dispatcher.override(Override(OverrideKind.NODE_CEILING, "s", 1), 0.1)
    dispatcher.place(shape("code"), "first", 0.2)
    second = dispatcher.place(shape("code"), "second", 0.2)
    dispatcher.clear_override(OverrideKind.NODE_CEILING, "s", 0.3)
    found = dispatcher.candidates(second)
    assert found is not None
    assert {one.node: one.reason for one in found}["s"] is Reason.SATURATED
