from __future__ import annotations

from fleets import MODEL, dispatcher_of, fleet_of, report, shape, speculative, standard
from slipstream.core.acceptance import SpeculationSample
from slipstream.core.dispatch import Dispatcher, Placement
from slipstream.core.errors import EngineGarbage, EngineUnreachable
from slipstream.core.node import NodeSpec
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.policy import Reason, ThresholdSettings
from slipstream.core.request import Pool, RequestShape


def explained(dispatcher: Dispatcher, placement: Placement) -> dict[str, tuple[bool, Reason | None]]:
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


def test_a_retried_request_is_found_with_all_its_attempts() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    first = dispatcher.place(shape("code"), "r", 0.1)
    dispatcher.settle(first, Outcome(Ending.UNREACHABLE), 0.2)
    second = dispatcher.place(shape("code"), "r", 0.2, frozenset({"s"}))
    assert dispatcher.find("r") == [first, second]
    assert dispatcher.find("nobody") == []


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
