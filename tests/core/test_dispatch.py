from __future__ import annotations

from dataclasses import replace

import pytest

from fleets import MODEL, dispatcher_of, fleet_of, shape, speculative, standard
from slipstream.core.acceptance import SpeculationSample
from slipstream.core.dispatch import Dispatcher
from slipstream.core.errors import AllFull, EngineGarbage, EngineUnreachable
from slipstream.core.node import NodeReport, SpeculativeCounters, SpeculatorKind
from slipstream.core.node_state import NodeState
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.policy import Reason
from slipstream.core.request import Pool


def state_of(dispatcher: Dispatcher, name: str) -> NodeState:
    state = dispatcher.fleet.node(name)
    assert state is not None
    return state


def alpha_of(dispatcher: Dispatcher, category: str) -> float:
    speculator = state_of(dispatcher, "s").speculator
    assert speculator is not None
    alpha = dispatcher.evidence.estimate(MODEL, speculator, category).alpha
    assert alpha is not None
    return alpha


def test_a_request_is_settled_exactly_once() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    placement = dispatcher.place(shape(), "r", 0.1)
    dispatcher.settle(placement, Outcome(Ending.COMPLETED, 200), 0.2)
    with pytest.raises(RuntimeError, match="settled twice"):
        dispatcher.settle(placement, Outcome(Ending.COMPLETED, 200), 0.3)
    assert state_of(dispatcher, "s").own == 0


def test_another_draft_is_another_speculator_and_one_that_is_not_named_is_the_same() -> None:
    fleet = fleet_of(speculative("s"))
    named = NodeReport(running=0, speculating=True, k=4, drafter="eagle3:a")
    speculators = []
    for drafter in (None, "eagle3:a", None, "eagle3:b"):
        fleet.report("s", 0.1, 0.2, replace(named, drafter=drafter))
        node = fleet.node("s")
        assert node is not None
        speculators.append(node.speculator)
    assert [one.fingerprint if one else None for one in speculators] == [
        "draft-k4",
        "draft-k4:eagle3:a",
        "draft-k4:eagle3:a",
        "draft-k4:eagle3:b",
    ]
    assert speculators[1] == speculators[2] != speculators[3]


def test_a_node_that_left_the_fleet_still_gets_its_requests_back() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    placement = dispatcher.place(shape(), "r", 0.1)
    dispatcher.fleet.remove("s")
    dispatcher.fleet.add(speculative("s"), 0.2)  # another engine under the same name
    dispatcher.settle(placement, Outcome(Ending.COMPLETED, 200), 0.3)
    assert placement.state.own == 0
    assert state_of(dispatcher, "s").own == 0


def test_requests_are_counted_by_category_pool_and_reason_and_by_how_they_ended() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    for category in ("code", "code", "chat"):
        dispatcher.settle(dispatcher.place(shape(category), "r", 0.1), Outcome(Ending.COMPLETED, 200), 0.2)
    assert dispatcher.requests["code", Pool.SPECULATIVE, Reason.SPECULATIVE] == 2
    assert dispatcher.requests["chat", Pool.STANDARD, Reason.BELOW_FLOOR] == 1
    assert dispatcher.endings["code", Ending.COMPLETED] == 2


def test_a_failed_connection_takes_the_node_out_until_its_next_report() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    dispatcher.settle(dispatcher.place(shape(), "r", 0.1), Outcome(Ending.UNREACHABLE), 0.2)
    assert state_of(dispatcher, "s").state == "unhealthy"
    dispatcher.report("s", 0.3, 0.3, NodeReport(running=0, speculating=True, k=4))
    assert state_of(dispatcher, "s").state == "ready"


@pytest.mark.parametrize("ending", [Ending.REFUSED, Ending.TIMED_OUT, Ending.CLIENT_GONE, Ending.UPSTREAM_LOST])
def test_other_endings_leave_the_node_where_it_was(ending: Ending) -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    dispatcher.settle(dispatcher.place(shape(), "r", 0.1), Outcome(ending, 400), 0.2)
    assert state_of(dispatcher, "s").state == "ready"


def test_acceptance_is_learnt_from_completed_requests_on_speculative_nodes_only() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    sample = SpeculationSample(drafted=100, accepted=5, verify_steps=25, output_tokens=31)
    for n in range(20):
        placement = dispatcher.place(shape("chat"), f"r{n}", 0.1)  # below its floor: to the standard node
        dispatcher.settle(placement, Outcome(Ending.COMPLETED, 200, sample=sample, output_tokens=31), 0.2)
    assert alpha_of(dispatcher, "chat") == 0.5
    for n in range(20):
        placement = dispatcher.place(shape("code"), f"c{n}", 0.1)
        if placement.decision.pool is Pool.SPECULATIVE:
            dispatcher.settle(placement, Outcome(Ending.COMPLETED, 200, sample=sample, output_tokens=100), 0.2)
    assert alpha_of(dispatcher, "code") < 0.6


def test_the_length_of_answers_is_learnt_per_sequence() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    for n in range(10):
        placement = dispatcher.place(shape("code", sequences=4), f"r{n}", 0.1)
        dispatcher.settle(placement, Outcome(Ending.COMPLETED, 200, output_tokens=400), 0.2)
    assert dispatcher.evidence.median_output_tokens("code") == 100


def test_counters_are_split_over_categories_where_answers_say_nothing() -> None:
    """Two categories at alpha 0.85 and 0.40 in changing shares on one node that reports only its totals."""
    dispatcher = dispatcher_of(fleet_of(speculative("s", ceiling=100, limit=100), standard("t")))
    silent = Outcome(Ending.COMPLETED, 200, output_tokens=100)
    dispatcher.settle(dispatcher.place(shape("code"), "first", 0.0), silent, 0.0)
    drafted = accepted = steps = 0
    per_step = {"code": sum(0.85**i for i in range(1, 5)), "edit": sum(0.40**i for i in range(1, 5))}
    for window in range(300):
        now = 1.0 + window
        phase = window // 12
        counts = {"code": 1 + phase % 5, "edit": 1 + (phase * 3) % 4}
        placements = [dispatcher.place(shape(category), "r", now) for category, n in counts.items() for _ in range(n)]
        for placement in placements:
            if placement.decision.pool is Pool.SPECULATIVE:
                steps += 100
                drafted += 400
                accepted += round(100 * per_step[placement.shape.category])
        for placement in placements:
            dispatcher.settle(placement, silent, now + 0.9)
        report = NodeReport(running=0, speculating=True, k=4, counters=SpeculativeCounters(drafted, accepted, steps))
        dispatcher.report("s", now + 0.95, now + 0.95, report)
    assert alpha_of(dispatcher, "code") == pytest.approx(0.85, abs=0.05)
    assert alpha_of(dispatcher, "edit") == pytest.approx(0.40, abs=0.05)


@pytest.mark.parametrize("mostly", [True, False])
def test_a_node_whose_answers_tell_only_at_times_is_learnt_from_in_one_way_not_two(mostly: bool) -> None:
    """Its answers accept everything and its counters nothing: whichever is believed, no mixture of both is."""
    dispatcher = dispatcher_of(fleet_of(speculative("s", ceiling=100, limit=100), standard("t")))
    silent = Outcome(Ending.COMPLETED, 200, output_tokens=100)
    telling = Outcome(Ending.COMPLETED, 200, output_tokens=100, sample=SpeculationSample(80, 80, 20, 100))
    drafted = 0
    for window in range(200):
        now = 1.0 + window
        placement = dispatcher.place(shape("code", pinned_pool=Pool.SPECULATIVE), "r", now)
        dispatcher.settle(placement, telling if (window % 10 == 5) != mostly else silent, now + 0.9)
        drafted += 80
        report = NodeReport(running=0, speculating=True, k=4, counters=SpeculativeCounters(drafted, 0, drafted // 4))
        dispatcher.report("s", now + 0.95, now + 0.95, report)
    assert (alpha_of(dispatcher, "code") > 0.85) == mostly
    assert (alpha_of(dispatcher, "code") < 0.15) != mostly


def test_what_decodes_nothing_says_nothing_of_whether_a_node_tells() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    telling = Outcome(Ending.COMPLETED, 200, output_tokens=100, sample=SpeculationSample(80, 80, 20, 100))
    for outcome, decodes in 20 * ((Outcome(Ending.COMPLETED, 200), False), (telling, True)):
        pinned = shape("code", pinned_pool=Pool.SPECULATIVE, decodes=decodes)
        dispatcher.settle(dispatcher.place(pinned, "r", 0.1), outcome, 0.2)
    assert alpha_of(dispatcher, "code") > 0.9


def test_a_report_of_a_node_that_left_changes_nothing() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    dispatcher.fleet.remove("s")
    version = dispatcher.fleet.version
    dispatcher.report("s", 0.1, 0.1, NodeReport(running=1))
    assert dispatcher.fleet.version == version


def test_a_sample_that_waits_for_the_nodes_counters_is_credited_when_they_come() -> None:
    """llama.cpp tells drafted and accepted tokens per answer, and verify steps per node only."""
    dispatcher = dispatcher_of(fleet_of(speculative("s", kind=SpeculatorKind.NGRAM), standard("t")))
    for now, drafted in ((0.1, 0), (0.2, 0)):
        counters = SpeculativeCounters(drafted, 0, 0)
        dispatcher.report("s", now, now, NodeReport(running=0, speculating=True, counters=counters))
    sample = SpeculationSample(drafted=64, accepted=48, output_tokens=80)
    placement = dispatcher.place(shape("code"), "first", 0.3)
    dispatcher.settle(placement, Outcome(Ending.COMPLETED, 200, output_tokens=80, sample=sample), 0.4)
    assert dispatcher.evidence.book.category_estimate("code").requests == 0
    counters = SpeculativeCounters(64, 48, 16)
    dispatcher.report("s", 0.5, 0.5, NodeReport(running=0, speculating=True, counters=counters))
    measured = dispatcher.evidence.book.category_estimate("code")
    assert (measured.requests, measured.tau) == (1, 4.0)


def test_a_node_that_left_is_forgotten_with_all_that_waited_for_it() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s", kind=SpeculatorKind.NGRAM), standard("t")))
    placement = dispatcher.place(shape("code"), "r", 0.1)
    sample = SpeculationSample(drafted=64, accepted=48, output_tokens=80)
    dispatcher.settle(placement, Outcome(Ending.COMPLETED, 200, sample=sample), 0.2)
    dispatcher.remove("s")
    assert dispatcher.fleet.node("s") is None
    assert dispatcher.evidence.book.node_estimate("s") is None
    assert placed_names(dispatcher) == {"t"}


def placed_names(dispatcher: Dispatcher) -> set[str]:
    return {dispatcher.place(shape("code"), "r", 0.3).node.name for _ in range(5)}


def test_after_an_outage_no_answer_but_a_report_makes_a_node_eligible_again() -> None:
    """What it reported before it died is worth nothing."""
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    for now in (0.1, 0.2):
        dispatcher.report_failed("s", now, EngineUnreachable("refused"))
    dispatcher.report_failed("s", 0.3, EngineGarbage("no page of metrics"))
    assert state_of(dispatcher, "s").state == "stale"
    placement = dispatcher.place(shape("code"), "r", 0.4)
    assert (placement.node.name, placement.decision.reason) == ("t", Reason.STALE)


def test_a_node_that_refused_and_never_reports_is_tried_again_once_it_answers_a_poll() -> None:
    dispatcher = dispatcher_of(fleet_of(standard("t")))
    dispatcher.settle(dispatcher.place(shape(), "r", 0.1), Outcome(Ending.FULL, 503), 0.2)
    with pytest.raises(AllFull):
        dispatcher.place(shape(), "r", 0.3)
    dispatcher.report_failed("t", 0.4, EngineGarbage("its metrics are switched off"))
    assert dispatcher.place(shape(), "r", 0.5).node.name == "t"
