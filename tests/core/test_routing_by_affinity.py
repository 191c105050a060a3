"""Affinity at work in the policy: within a pool, never against the conditions, apart from the pool's reason."""

from __future__ import annotations

from collections import Counter

import pytest

from fleets import MODEL, fleet_of, report, shape, speculative, standard
from slipstream.core.acceptance import AcceptanceBook, AcceptancePrior
from slipstream.core.affinity import Affinity, Match
from slipstream.core.dispatch import Dispatcher, Placement
from slipstream.core.errors import AllFull, EngineUnreachable, NothingUsable, ResponseNotFound
from slipstream.core.evidence import CategoryEvidence
from slipstream.core.fleet import Fleet
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.policy import Reason, ThresholdPolicy, ThresholdSettings
from slipstream.core.request import Pool, RequestShape

ENDED = Outcome(Ending.COMPLETED, 200)


def dispatcher_with(fleet: Fleet, affinity: Affinity | None = None, **settings: float | None) -> Dispatcher:
    draws = iter((n * 0.618033988749895) % 1.0 for n in range(100_000))
    evidence = CategoryEvidence(AcceptanceBook(AcceptancePrior()))
    policy = ThresholdPolicy(
        ThresholdSettings(**settings),  # type: ignore[arg-type]  # names are the settings', checked at run time
        evidence,
        affinity=affinity,
    )
    return Dispatcher(fleet, evidence, policy, lambda: next(draws))


def place(dispatcher: Dispatcher, wanted: RequestShape, now: float = 0.1) -> Placement:
    return dispatcher.place(wanted, "r", now)


def explained(dispatcher: Dispatcher, placement: Placement) -> dict[str, Reason | None]:
    found = dispatcher.candidates(placement)
    assert found is not None
    return {candidate.node: candidate.reason for candidate in found}


def four_speculative() -> Fleet:
    return fleet_of(*(speculative(f"s{n}") for n in range(4)), standard("t"), standard("u"))


def test_a_conversation_stays_with_its_node() -> None:
    dispatcher = dispatcher_with(four_speculative())
    nodes = set()
    for turn in range(12):
        placement = place(dispatcher, shape("code", cache_keys=(7, turn)))
        nodes.add(placement.node.name)
        dispatcher.settle(placement, ENDED, 0.1)
    assert len(nodes) == 1
    assert {place(dispatcher, shape("code", cache_keys=(n,))).node.name for n in range(100, 120)} > nodes


def test_without_affinity_or_without_keys_load_alone_decides() -> None:
    off = dispatcher_with(four_speculative(), affinity_slack=None)
    for dispatcher, keys in ((off, (7,)), (dispatcher_with(four_speculative()), ())):
        nodes = []
        for _ in range(40):
            placement = place(dispatcher, shape("code", cache_keys=keys))
            nodes.append(placement.node.name)
            dispatcher.settle(placement, ENDED, 0.1)
        assert len(set(nodes)) == 4


def test_a_prefix_that_all_share_does_not_unbalance_the_pool() -> None:
    fleet = four_speculative()
    dispatcher = dispatcher_with(fleet, affinity_slack=2)
    for _ in range(24):
        place(dispatcher, shape("code", cache_keys=(1,)))
    occupancies = [node.occupancy for node in fleet.nodes() if node.pool is Pool.SPECULATIVE]
    assert sum(occupancies) == 24
    assert max(occupancies) - min(occupancies) <= 3


def test_affinity_keeps_the_pools_reason_and_is_told_of_the_nodes_passed_over() -> None:
    fleet = fleet_of(speculative("a"), speculative("b"), speculative("c"), standard("t"))
    affinity = Affinity()
    holder, full = fleet.node("a"), fleet.node("c")
    assert holder is not None
    assert full is not None
    affinity.remember((7,), holder)
    fleet.admit("a", 1, "code", 0.0)
    fleet.admit("c", 8, "code", 0.0)
    dispatcher = dispatcher_with(fleet, affinity)
    placement = place(dispatcher, shape("code", cache_keys=(7,)))
    decision = placement.decision
    assert (decision.node, decision.reason, decision.by_affinity) == ("a", Reason.SPECULATIVE, True)
    assert explained(dispatcher, placement) == {
        "a": Reason.SPECULATIVE,
        "b": Reason.AFFINITY,
        "c": Reason.SATURATED,
        "t": None,
    }


def test_where_the_holder_is_the_least_loaded_nothing_was_passed_over() -> None:
    fleet = fleet_of(speculative("a"), speculative("b"), standard("t"))
    dispatcher = dispatcher_with(fleet)
    fleet.admit("b", 1, "code", 0.0)
    for _ in range(2):
        placement = place(dispatcher, shape("code", cache_keys=(7,)))
        assert (placement.node.name, placement.decision.by_affinity) == ("a", False)
        assert explained(dispatcher, placement)["b"] is None
        dispatcher.settle(placement, ENDED, 0.1)


def test_a_conversation_whose_reason_changes_changes_the_pool_and_comes_back_to_its_node() -> None:
    fleet = four_speculative()
    affinity = Affinity()
    dispatcher = dispatcher_with(fleet, affinity)
    speculating = place(dispatcher, shape("code", cache_keys=(7,)))
    dispatcher.settle(speculating, ENDED, 0.1)
    chatting = place(dispatcher, shape("chat", cache_keys=(7,)))
    dispatcher.settle(chatting, ENDED, 0.1)
    assert (chatting.decision.pool, chatting.decision.reason) == (Pool.STANDARD, Reason.BELOW_FLOOR)
    for category, before in (("code", speculating), ("chat", chatting), ("code", speculating)):
        again = place(dispatcher, shape(category, cache_keys=(7,)))
        dispatcher.settle(again, ENDED, 0.1)
        assert again.node.name == before.node.name


def test_a_holder_that_fails_is_not_tried_again_and_the_next_node_becomes_the_holder() -> None:
    fleet = four_speculative()
    affinity = Affinity()
    dispatcher = dispatcher_with(fleet, affinity)
    first = place(dispatcher, shape("code", cache_keys=(7,)))
    dispatcher.settle(first, Outcome(Ending.UPSTREAM_LOST), 0.1)
    second = dispatcher.place(shape("code", cache_keys=(7,)), "r", 0.1, frozenset({first.node.name}))
    dispatcher.settle(second, ENDED, 0.1)
    assert second.node.name != first.node.name
    assert place(dispatcher, shape("code", cache_keys=(7,))).node.name == second.node.name
    assert affinity.matches[Match.CLOSED] == 1


def test_a_conversation_is_held_back_as_a_whole() -> None:
    fleet = fleet_of(speculative("s", ceiling=10_000, limit=10_000), standard("t", limit=10_000))
    dispatcher = dispatcher_with(fleet, holdback=0.05)
    sides: Counter[bool] = Counter()
    for number in range(400):
        session = number * 0x9E3779B97F4A7C15 % 2**64
        reasons = {place(dispatcher, shape("code", session=session)).decision.reason for _ in range(5)}
        assert len(reasons) == 1
        sides[reasons == {Reason.HOLDBACK}] += 1
    assert sides[True] == pytest.approx(20, abs=2)


def test_without_a_holdback_no_conversation_is_held_back() -> None:
    dispatcher = dispatcher_with(fleet_of(speculative("s"), standard("t")))
    assert place(dispatcher, shape("code", session=0)).decision.reason is Reason.SPECULATIVE


def test_a_field_that_speculating_engines_refuse_keeps_a_request_from_them_in_a_fallback_too() -> None:
    fleet = fleet_of(speculative("s"), standard("t", limit=1))
    dispatcher = dispatcher_with(fleet, rejected_features=lambda _engine: frozenset({"min_p"}))  # type: ignore[arg-type]
    wanted = shape("code", features=frozenset({"min_p"}))
    assert place(dispatcher, wanted).node.name == "t"
    with pytest.raises(AllFull):
        place(dispatcher, wanted)
    refusal = dispatcher.find("r")[-1]
    found = dispatcher.candidates(refusal)
    assert found is not None
    assert {one.node: one.reason for one in found} == {"s": Reason.REJECTED_FEATURE, "t": Reason.FULL}
    assert place(dispatcher, shape("chat")).decision.reason is Reason.FALLBACK


def test_a_fleet_that_can_only_refuse_a_field_lets_the_engine_say_so() -> None:
    settings = {"rejected_features": lambda _engine: frozenset({"min_p"})}
    dispatcher = dispatcher_with(fleet_of(speculative("s")), **settings)  # type: ignore[arg-type]
    assert place(dispatcher, shape("code", features=frozenset({"min_p"}))).node.name == "s"


# What refers to an earlier response


def test_a_follow_up_goes_to_the_node_that_made_the_response_above_its_ceiling_too() -> None:
    fleet = fleet_of(speculative("s", ceiling=1, limit=4), speculative("other"), standard("t"))
    dispatcher = dispatcher_with(fleet)
    first = dispatcher.place(shape("code"), "first", 0.1, frozenset({"other", "t"}))
    dispatcher.remember_response(first, "resp_1", 0.1)
    follow_up = shape("chat", previous_response="resp_1")
    placement = place(dispatcher, follow_up)
    decision = placement.decision
    assert (decision.node, decision.pool, decision.reason) == ("s", Pool.SPECULATIVE, Reason.AFFINITY)
    assert explained(dispatcher, placement) == dict.fromkeys(("s", "other", "t"), Reason.AFFINITY)
    assert dispatcher.requests["chat", Pool.SPECULATIVE, Reason.AFFINITY] == 1
    dispatcher.settle(placement, ENDED, 0.2)
    dispatcher.settle(first, ENDED, 0.2)
    assert [node.own for node in fleet.nodes()] == [0, 0, 0]


def test_a_follow_up_is_never_tried_elsewhere() -> None:
    fleet = fleet_of(standard("t"), standard("u"))
    dispatcher = dispatcher_with(fleet)
    dispatcher.remember_response(dispatcher.place(shape(), "first", 0.1, frozenset({"u"})), "resp_1", 0.1)
    follow_up = shape(previous_response="resp_1")
    with pytest.raises(NothingUsable):
        dispatcher.place(follow_up, "r", 0.1, frozenset({"t"}))
    for _ in range(2):
        fleet.report_failed("t", 0.2, EngineUnreachable("refused"))
    with pytest.raises(ResponseNotFound, match="which can not be reached"):
        place(dispatcher, follow_up)
    refusal = dispatcher.find("r")[-1]
    found = dispatcher.candidates(refusal)
    assert found is not None
    assert {one.node: one.reason for one in found} == {"t": Reason.UNHEALTHY, "u": Reason.AFFINITY}


def test_a_full_holder_is_said_to_be_full() -> None:
    fleet = fleet_of(standard("t", limit=1), standard("u"))
    dispatcher = dispatcher_with(fleet)
    dispatcher.remember_response(dispatcher.place(shape(), "first", 0.1, frozenset({"u"})), "resp_1", 0.1)
    with pytest.raises(AllFull, match="'t', which alone holds the response 'resp_1', is at its limit"):
        place(dispatcher, shape(previous_response="resp_1"))
    found = dispatcher.candidates(dispatcher.find("r")[-1])
    assert found is not None
    assert {one.node: one.reason for one in found} == {"t": Reason.FULL, "u": Reason.AFFINITY}


def test_a_refusal_is_not_remembered_of_a_request_that_waits() -> None:
    fleet = fleet_of(standard("t", limit=1))
    dispatcher = dispatcher_with(fleet)
    place(dispatcher, shape("chat"))
    with pytest.raises(AllFull):
        dispatcher.place(shape("chat"), "waits", 0.1, frozenset(), True)
    assert dispatcher.find("waits") == []
    with pytest.raises(AllFull):
        dispatcher.place(shape("chat"), "waits", 0.1)
    assert len(dispatcher.find("waits")) == 1
    for _ in range(2):
        fleet.report_failed("t", 0.2, EngineUnreachable("refused"))
    with pytest.raises(NothingUsable):
        dispatcher.place(shape("chat"), "down", 0.3, frozenset(), True)
    assert len(dispatcher.find("down")) == 1


# Observing


def test_observing_records_the_decision_and_steers_by_least_use() -> None:
    fleet = fleet_of(speculative("s", limit=100), standard("t", limit=50))
    dispatcher = dispatcher_with(fleet, observe=True)
    nodes: Counter[str] = Counter()
    for number in range(30):
        placement = place(dispatcher, shape("code" if number % 2 else "chat"))
        decision = placement.decision
        assert decision.reason is Reason.OBSERVE
        assert decision.intended is not None
        if number % 2 == 0:
            assert (decision.intended.node, decision.intended.reason) == ("t", Reason.BELOW_FLOOR)
        nodes[decision.node] += 1
    assert nodes == {"s": 20, "t": 10}
    assert dispatcher.intended["chat", Pool.STANDARD, Reason.BELOW_FLOOR] == 15
    assert dispatcher.intended["code", Pool.SPECULATIVE, Reason.SPECULATIVE] == 6
    assert dispatcher.intended["code", Pool.STANDARD, Reason.SATURATED] == 9


def test_an_explanation_names_the_node_that_would_have_been_chosen() -> None:
    fleet = fleet_of(speculative("s"), speculative("s2"), standard("t", limit=4))
    fleet.admit("t", 1, "chat", 0.0)
    fleet.admit("s2", 3, "chat", 0.0)
    dispatcher = dispatcher_with(fleet, observe=True)
    placement = place(dispatcher, shape("chat"))
    assert explained(dispatcher, placement) == {
        "s": Reason.OBSERVE,
        "s2": Reason.BELOW_FLOOR,
        "t": Reason.OBSERVE,
    }


def test_an_explanation_shows_the_load_that_decided() -> None:
    fleet = fleet_of(speculative("s", limit=256), standard("t", limit=10))
    fleet.admit("s", 2, "chat", 0.0)
    for observe, load in ((True, 2 / 256), (False, 2 / 8)):
        dispatcher = dispatcher_with(fleet, observe=observe)
        found = dispatcher.candidates(place(dispatcher, shape("chat")))
        assert found is not None
        assert [candidate.load for candidate in found if candidate.node == "s"] == [load]


def test_observing_sends_no_probes_and_uses_nodes_above_their_ceiling() -> None:
    fleet = fleet_of(speculative("s", ceiling=1, limit=10))
    dispatcher = dispatcher_with(fleet, observe=True)
    for _ in range(10):
        assert place(dispatcher, shape("chat")).node.name == "s"
    with pytest.raises(AllFull):
        place(dispatcher, shape("chat"))
    refusal = dispatcher.find("r")[-1]
    assert refusal.decision.intended is None


def test_observing_asks_nodes_without_recent_reports_last_and_spares_those_tried() -> None:
    fleet = fleet_of(speculative("s"), standard("t"), standard("u"))
    fleet.report("t", 5.0, 5.0, report(speculating=False))
    dispatcher = dispatcher_with(fleet, observe=True)
    fleet.admit("t", 200, "chat", 5.0)
    assert place(dispatcher, shape("chat"), 5.1).node.name == "t"
    assert dispatcher.place(shape("chat"), "r", 5.1, frozenset({"t"})).node.name in {"s", "u"}
    assert dispatcher.place(shape("chat", sequences=100), "r", 5.1).node.name in {"s", "u"}


def test_observing_sends_no_request_to_a_node_that_refuses_it() -> None:
    dispatcher = dispatcher_with(
        fleet_of(speculative("s"), standard("t")),
        observe=True,
        rejected_features=lambda _engine: frozenset({"min_p"}),  # type: ignore[arg-type]
    )
    assert {place(dispatcher, shape("code", features=frozenset({"min_p"}))).node.name for _ in range(9)} == {"t"}


def test_a_model_of_no_node_is_unknown_to_an_observer_too() -> None:
    dispatcher = dispatcher_with(fleet_of(standard("t")), observe=True)
    assert place(dispatcher, RequestShape(MODEL, "chat")).node.name == "t"
    fleet = fleet_of(standard("t"))
    for _ in range(2):
        fleet.report_failed("t", 0.0, EngineUnreachable("refused"))
    with pytest.raises(NothingUsable):
        place(dispatcher_with(fleet, observe=True), shape("chat"))
