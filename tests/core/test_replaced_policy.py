"""Another policy takes over while requests run; and nodes in turn, which is one of them."""

from __future__ import annotations

import pytest

from fleets import dispatcher_of, fleet_of, shape, speculative, standard
from slipstream.core.acceptance import AcceptancePrior
from slipstream.core.dispatch import Dispatcher
from slipstream.core.errors import AllFull
from slipstream.core.forecast import Forecast
from slipstream.core.goodput import Target
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.policy import (
    PolicyKind,
    PredictivePolicy,
    ProbingSettings,
    Reason,
    RoundRobin,
    Steering,
    ThresholdPolicy,
    ThresholdSettings,
    policy_of,
)
from slipstream.core.request import PinSource, Pool, RequestShape, TrafficClass

SETTINGS = ThresholdSettings(affinity_slack=None)
DONE = Outcome(Ending.COMPLETED)
FLAT = Forecast((0.0, 1.0), ((0.01, 0.01),) * 64, (0,) * 64, 0.0, (0.0, 0.0), None)
PREDICTIVE = Steering(PolicyKind.PREDICTIVE, {TrafficClass.INTERACTIVE: Target(tpot_s=0.03)}, lambda _node: FLAT)
IN_TURN = Steering(PolicyKind.ROUND_ROBIN)


def steer(dispatcher: Dispatcher, steering: Steering, settings: ThresholdSettings = SETTINGS) -> None:
    policy = policy_of(steering, settings, dispatcher.evidence, dispatcher.fleet)
    dispatcher.configure(
        settings, AcceptancePrior(), half_life=600.0, stale_after_s=1e9, hysteresis=0, now=0.1, policy=policy
    )


def went(dispatcher: Dispatcher, count: int = 1, wanted: RequestShape | None = None) -> list[str]:
    return [dispatcher.place(wanted or shape(), "r", 0.1).decision.node for _ in range(count)]


def test_each_kind_has_its_policy() -> None:
    dispatcher = dispatcher_of(fleet_of(standard("t")))
    made = [
        policy_of(one, SETTINGS, dispatcher.evidence, dispatcher.fleet) for one in (Steering(), PREDICTIVE, IN_TURN)
    ]
    assert [type(one) for one in made] == [ThresholdPolicy, PredictivePolicy, RoundRobin]
    (node,) = dispatcher.fleet.nodes()
    assert [one.kind_for(node) for one in made] == list(PolicyKind)
    assert [one.learned_ceiling("t") for one in made] == [None] * 3


def test_requests_that_an_earlier_policy_placed_end_with_it() -> None:
    dispatcher = dispatcher_of(fleet_of(standard("t0"), standard("t1")), SETTINGS)
    early = [dispatcher.place(shape(), "r", 0.1) for _ in range(4)]
    steer(dispatcher, PREDICTIVE)
    late = dispatcher.place(shape(), "r", 0.1)
    steer(dispatcher, Steering())
    for placement in (*early, late):
        dispatcher.settle(placement, DONE, 0.2)
    assert [node.own for node in dispatcher.fleet.nodes()] == [0, 0]


def test_decisions_are_explained_by_the_policy_that_made_them() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")), SETTINGS)
    by_rule = dispatcher.place(shape("chat"), "r", 0.1)
    steer(dispatcher, IN_TURN)
    in_turn = dispatcher.place(shape("chat"), "r", 0.1)
    steer(dispatcher, PREDICTIVE)

    def reasons(one: object) -> dict[str, Reason | None]:
        return {candidate.node: candidate.reason for candidate in dispatcher.candidates(one) or ()}  # type: ignore[arg-type]  # both are placements

    assert reasons(by_rule) == {"s": Reason.BELOW_FLOOR, "t": Reason.BELOW_FLOOR}
    assert reasons(in_turn) == {"s": Reason.IN_TURN, "t": None}


def test_a_probe_in_flight_is_known_to_the_policy_that_takes_over() -> None:
    settings = ThresholdSettings(affinity_slack=None, probing=ProbingSettings(share=1.0))
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")), settings)
    probe = dispatcher.place(shape("chat"), "r", 0.1)
    assert probe.decision.reason is Reason.PROBE
    steer(dispatcher, Steering(), settings)
    assert dispatcher.place(shape("chat"), "r", 0.1).decision.reason is Reason.BELOW_FLOOR
    dispatcher.settle(probe, DONE, 0.2)
    assert dispatcher.place(shape("chat"), "r", 0.2).decision.reason is Reason.PROBE


def test_what_was_known_of_caches_is_kept() -> None:
    settings = ThresholdSettings()
    dispatcher = dispatcher_of(fleet_of(standard("t0"), standard("t1")), settings, draw=0.0)
    wanted = shape(cache_keys=(1, 2))
    first = dispatcher.place(wanted, "r", 0.1)
    steer(dispatcher, Steering(), settings)
    assert went(dispatcher, 1, wanted) == [first.decision.node]


def test_nodes_take_turns_whatever_their_pool_and_occupancy() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t0", limit=2), standard("t1")))
    steer(dispatcher, IN_TURN)
    assert went(dispatcher, 9) == ["s", "t0", "t1", "s", "t0", "t1", "s", "t1", "s"]


def test_whose_turn_it_is_does_not_break_what_operators_and_engines_say() -> None:
    fleet = fleet_of(speculative("s"), standard("t0"), standard("t1"))
    dispatcher = dispatcher_of(fleet)
    fields = ThresholdSettings(affinity_slack=None, rejected_features=lambda _engine: frozenset({"min_p"}))
    steer(dispatcher, IN_TURN, fields)
    refused = dispatcher.place(shape(features=frozenset({"min_p"})), "r", 0.1)
    assert refused.decision.node == "t0"
    assert {one.node: one.reason for one in dispatcher.candidates(refused) or ()}["s"] is Reason.REJECTED_FEATURE
    pinned = shape().with_pool(Pool.SPECULATIVE)
    placement = dispatcher.place(pinned, "r", 0.1)
    assert (placement.decision.node, placement.decision.reason) == ("s", Reason.PINNED)
    assert {one.node: one.reason for one in dispatcher.candidates(placement) or ()}["t1"] is Reason.PINNED
    elsewhere = dispatcher.place(shape().with_pool(Pool.STANDARD), "r", 0.1)
    assert {one.node: one.reason for one in dispatcher.candidates(elsewhere) or ()} == {
        "s": Reason.PINNED,
        elsewhere.decision.node: Reason.PINNED,
        "t0" if elsewhere.decision.node == "t1" else "t1": None,
    }
    fleet.override("t1", 0.1, ceiling=None, drained=True)
    drained = dispatcher.place(shape(), "r", 0.1)
    assert (drained.decision.node, drained.decision.reason) == ("s", Reason.IN_TURN)
    assert {one.node: one.reason for one in dispatcher.candidates(drained) or ()} == {
        "s": Reason.IN_TURN,
        "t0": None,
        "t1": Reason.DRAINING,
    }
    assert pinned.pinned_by is PinSource.OVERRIDE


def test_when_nobody_has_room_nobody_has_a_turn() -> None:
    dispatcher = dispatcher_of(fleet_of(standard("t0", limit=1), standard("t1", limit=1)))
    steer(dispatcher, IN_TURN)
    assert went(dispatcher, 2) == ["t0", "t1"]
    with pytest.raises(AllFull):
        went(dispatcher)


def test_past_turns_are_explained_by_the_settings_of_then() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    steer(dispatcher, IN_TURN)
    placement = dispatcher.place(shape(), "r", 0.1)
    dispatcher.configure(
        ThresholdSettings(observe=True), AcceptancePrior(), half_life=600.0, stale_after_s=1e9, hysteresis=0, now=0.1
    )
    found = {one.node: one.reason for one in dispatcher.candidates(placement) or ()}
    assert found == {"s": Reason.IN_TURN, "t": None}
