from __future__ import annotations

import pytest

from fleets import MODEL, dispatcher_of, fleet_of, report, shape, speculative, standard
from slipstream.core.acceptance import SpeculationSample
from slipstream.core.dispatch import DECISIONS_REMEMBERED, Dispatcher, Placement, Refusal
from slipstream.core.errors import (
    AllFull,
    EngineGarbage,
    EngineUnreachable,
    NothingUsable,
    ResponseNotFound,
    UnknownModel,
)
from slipstream.core.node import NodeSpec, SpeculatorKind
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.policy import AcceptanceFigure, Reason, ThresholdSettings
from slipstream.core.request import Pool, RequestShape


def explained(dispatcher: Dispatcher, placement: Placement | Refusal) -> dict[str, tuple[bool, Reason | None]]:
    found = dispatcher.candidates(placement)
    assert found is not None
    return {candidate.node: (candidate.chosen, candidate.reason) for candidate in found}


def test_every_other_candidates_reason_is_recomputed() -> None:
    fleet = fleet_of(
        *(speculative(f"s{n}") for n in range(6)),
        standard("t"),
        standard("small", limit=1),
        NodeSpec("other", "http://other:1", Pool.STANDARD, models=("another",)),
    )
    dispatcher = dispatcher_of(fleet, draw=0.0)
    fleet.report("s1", 0.0, 0.0, report(speculating=False))
    fleet.report("s2", 0.0, 0.0, report(running=8))
    for _ in range(2):
        fleet.report_failed("s3", 0.0, EngineUnreachable("refused"))
    fleet.drain("s4", 0.0)
    fleet.admit("s5", 1, "code", 0.0)
    fleet.admit("small", 1, "code", 0.0)
    placement = dispatcher.place(shape("code"), "r", 0.1)
    assert explained(dispatcher, placement) == {
        "s0": (True, Reason.SPECULATIVE),
        "s1": (False, Reason.NO_SPECULATOR),
        "s2": (False, Reason.SATURATED),
        "s3": (False, Reason.UNHEALTHY),
        "s4": (False, Reason.DRAINING),
        "s5": (False, None),
        "t": (False, None),
        "small": (False, Reason.FULL),
        "other": (False, Reason.WRONG_MODEL),
    }


def test_an_explanation_shows_the_fleet_and_the_evidence_of_then() -> None:
    fleet = fleet_of(speculative("s"), standard("t"))
    dispatcher = dispatcher_of(fleet)
    first = dispatcher.place(shape("code"), "first", 0.1)
    then = explained(dispatcher, first)
    for n in range(40):
        placement = dispatcher.place(shape("code"), f"r{n}", 0.2)
        sample = SpeculationSample(100, 5, 25, 31) if placement.decision.pool is Pool.SPECULATIVE else None
        dispatcher.settle(placement, Outcome(Ending.COMPLETED, 200, output_tokens=31, sample=sample), 0.2)
    fleet.report_failed("t", 0.3, EngineGarbage("not a page"))
    fleet.remove("t")
    fleet.add(standard("new"), 0.4)
    state = fleet.node("s")
    assert state is not None
    assert state.speculator is not None
    late = dispatcher.evidence.estimate(MODEL, state.speculator, "code").alpha
    assert late is not None
    assert late < 0.6
    assert explained(dispatcher, first) == then == {"s": (True, Reason.SPECULATIVE), "t": (False, None)}


def test_holdback_and_pins_are_told_from_refusals() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")), ThresholdSettings(holdback=1.0), draw=0.0)
    held = dispatcher.place(shape("code"), "held", 0.1)
    assert explained(dispatcher, held) == {"s": (False, Reason.HOLDBACK), "t": (True, Reason.HOLDBACK)}
    pinned = dispatcher.place(shape("chat", pinned_pool=Pool.SPECULATIVE), "pinned", 0.1)
    assert explained(dispatcher, pinned) == {"s": (True, Reason.PINNED), "t": (False, Reason.PINNED)}


def test_a_decision_older_than_the_journal_is_not_explained_by_guessing() -> None:
    fleet = fleet_of(speculative("s"), standard("t"))
    dispatcher = dispatcher_of(fleet)
    placement = dispatcher.place(shape("code"), "old", 0.1)
    state = fleet.node("t")
    assert state is not None
    for _ in range(21_000):
        fleet.admit("t", 1, "code", 0.1)
        fleet.release(state, 1, "code", 0.1)
    assert dispatcher.candidates(placement) is None
    assert dispatcher.acceptance(placement) is None


def test_a_retried_request_is_found_with_all_its_attempts() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    first = dispatcher.place(shape("code"), "r", 0.1)
    dispatcher.settle(first, Outcome(Ending.UNREACHABLE), 0.2)
    second = dispatcher.place(shape("code"), "r", 0.2, frozenset({"s"}))
    assert dispatcher.find("r") == [first, second]
    assert (first.attempt, second.attempt) == (1, 2)
    assert dispatcher.find("nobody") == []


def test_a_node_that_an_earlier_attempt_failed_on_is_said_to_be_tried() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s0"), speculative("s1", ceiling=2), standard("t")))
    tried: frozenset[str] = frozenset()
    for _ in range(2):
        placement = dispatcher.place(shape("code"), "r", 0.1, tried)
        assert placement.decision.reason is Reason.SPECULATIVE
        dispatcher.settle(placement, Outcome(Ending.UPSTREAM_LOST), 0.1)
        tried |= {placement.node.name}
    third = dispatcher.place(shape("code"), "r", 0.2, tried)
    assert (third.decision.node, third.decision.reason) == ("t", Reason.TRIED)
    assert explained(dispatcher, third) == {
        "s0": (False, Reason.TRIED),
        "s1": (False, Reason.TRIED),
        "t": (True, Reason.TRIED),
    }
    dispatcher.fleet.report("s0", 0.3, 0.3, report(running=8))
    dispatcher.fleet.report("s1", 0.3, 0.3, report(running=1))
    of_two = dispatcher.place(shape("code", sequences=2), "r2", 0.3, frozenset({"s1"}))
    assert (of_two.decision.node, of_two.decision.reason) == ("t", Reason.SATURATED)
    with pytest.raises(AllFull):
        dispatcher.place(shape("code"), "r3", 0.3, frozenset({"s0", "s1", "t"}))
    (refused,) = dispatcher.find("r3")
    assert {reason for _, reason in explained(dispatcher, refused).values()} == {Reason.TRIED}


def test_a_node_whose_models_are_unknown_is_not_said_to_have_the_wrong_ones() -> None:
    unknown = NodeSpec("dead", "http://dead:1", Pool.SPECULATIVE)
    fleet = fleet_of(unknown, NodeSpec("odd", "http://odd:1", Pool.STANDARD), standard("t"), report_all=False)
    fleet.report("t", 0.0, 0.0, report(speculating=None))
    fleet.report_failed("odd", 0.0, EngineGarbage("no page of metrics"))
    dispatcher = dispatcher_of(fleet)
    assert explained(dispatcher, dispatcher.place(shape("code"), "r", 0.1)) == {
        "dead": (False, Reason.UNHEALTHY),
        "odd": (False, Reason.STALE),
        "t": (True, Reason.NO_SPECULATOR),
    }


def test_a_request_that_names_no_model_finds_none_wrong() -> None:
    dispatcher = dispatcher_of(fleet_of(standard("t"), standard("u")))
    placement = dispatcher.place(RequestShape("", "chat"), "r", 0.1)
    assert {reason for _, reason in explained(dispatcher, placement).values()} == {Reason.NO_SPECULATOR, None}


def refusal_of(dispatcher: Dispatcher, request_id: str) -> Refusal:
    found = dispatcher.find(request_id)[-1]
    assert isinstance(found, Refusal)
    return found


def test_a_refused_request_is_explained_node_by_node() -> None:
    fleet = fleet_of(speculative("s", ceiling=1, limit=2), standard("t", limit=1), standard("dead"))
    dispatcher = dispatcher_of(fleet)
    for _ in range(2):
        fleet.report_failed("dead", 0.0, EngineUnreachable("refused"))
    fleet.admit("s", 2, "code", 0.0)
    fleet.admit("t", 1, "code", 0.0)
    with pytest.raises(AllFull) as raised:
        dispatcher.place(shape("chat"), "r", 0.1)
    refusal = refusal_of(dispatcher, "r")
    assert (refusal.error, refusal.sentence, refusal.at) == ("AllFull", str(raised.value), 0.1)
    full = {"s": (False, Reason.FULL), "t": (False, Reason.FULL), "dead": (False, Reason.UNHEALTHY)}
    assert explained(dispatcher, refusal) == full
    fleet.remove("t")
    assert explained(dispatcher, refusal) == full


def test_without_fallback_a_refusal_keeps_what_spoke_against_the_speculative_nodes() -> None:
    fleet = fleet_of(speculative("s"), standard("t", limit=3))
    dispatcher = dispatcher_of(fleet, ThresholdSettings(fallback=False))
    fleet.admit("t", 1, "chat", 0.0)
    with pytest.raises(AllFull):
        dispatcher.place(shape("chat", sequences=3), "r", 0.1)
    assert explained(dispatcher, refusal_of(dispatcher, "r")) == {"s": (False, Reason.BELOW_FLOOR), "t": (False, None)}


def test_a_retry_for_which_nothing_is_left_is_found_after_its_first_attempt() -> None:
    dispatcher = dispatcher_of(fleet_of(standard("t")))
    with pytest.raises(UnknownModel):
        dispatcher.place(RequestShape("other", "code"), "r", 0.1)
    first = dispatcher.place(shape(), "r", 0.1)
    dispatcher.settle(first, Outcome(Ending.UNREACHABLE), 0.1)
    with pytest.raises(NothingUsable):
        dispatcher.place(shape(), "r", 0.1, frozenset({"t"}))
    wrong, placed, second = dispatcher.find("r")
    assert (wrong.attempt, placed, second.attempt) == (1, first, 2)
    assert explained(dispatcher, second) == {"t": (False, Reason.UNHEALTHY)}


def test_refusals_are_remembered_within_bounds() -> None:
    dispatcher = dispatcher_of(fleet_of(standard("t")))
    with pytest.raises(UnknownModel):
        dispatcher.place(RequestShape("x" * 1_000_000, "code"), "long", 0.1)
    refusal = refusal_of(dispatcher, "long")
    assert len(refusal.shape.model) + len(refusal.sentence) < 1_000
    with pytest.raises(ResponseNotFound):
        dispatcher.place(RequestShape("m", "code", previous_response="x" * 1_000_000), "follow-up", 0.1)
    follow_up = refusal_of(dispatcher, "follow-up").shape.previous_response
    assert follow_up is not None
    assert len(follow_up) < 1_000
    for n in range(DECISIONS_REMEMBERED):
        with pytest.raises(UnknownModel):
            dispatcher.place(RequestShape("other", "code"), f"r{n}", 0.1)
    assert dispatcher.find("long") == []
    assert len(dispatcher.find("r0")) == 1


def test_acceptance_is_told_by_the_measure_and_floor_of_each_speculator() -> None:
    other = NodeSpec("other", "http://other:1", Pool.SPECULATIVE, models=("another",))
    fleet = fleet_of(
        speculative("s"), speculative("s2"), speculative("n", kind=SpeculatorKind.NGRAM), other, standard("t")
    )
    dispatcher = dispatcher_of(fleet, ThresholdSettings(alpha_floor=0.7, tokens_per_step_floor=1.4))
    placement = dispatcher.place(shape("chat"), "r", 0.1)
    found = dispatcher.acceptance(placement)
    assert found is not None
    draft, ngram = found
    assert draft == AcceptanceFigure("draft-k4", "alpha", 0.5, 0.7, "prior")
    assert (ngram.speculator, ngram.measure, ngram.floor) == ("ngram", "tokens_per_step", 1.4)
    assert ngram.value is not None
    assert 1.0 < ngram.value < 1.3
