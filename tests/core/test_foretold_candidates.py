"""Policy `predictive` explained: each candidate's figures as they were when it was decided, and by whom nodes are
judged.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleets import fleet_of, report, shape, speculative, standard
from slipstream.core.acceptance import AcceptanceBook, AcceptancePrior
from slipstream.core.advice import AdviceCode, advise, not_foretold
from slipstream.core.calibration import Calibration
from slipstream.core.dispatch import Dispatcher, Placement
from slipstream.core.evidence import CategoryEvidence
from slipstream.core.fleet import Fleet
from slipstream.core.forecast import Forecast
from slipstream.core.goodput import Target
from slipstream.core.node import NodeSpec
from slipstream.core.node_state import NodeState
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.policy import (
    Candidate,
    Foretold,
    PolicyKind,
    PredictivePolicy,
    ProbingSettings,
    Reason,
    ThresholdSettings,
)
from slipstream.core.policy.place import LOOK_AT_MOST
from slipstream.core.policy.predictive import LOOK_EVERY_S
from slipstream.core.request import Pool, TrafficClass
from slipstream.core.summary import node_summaries

PLAIN = ThresholdSettings(affinity_slack=None, probing=ProbingSettings(share=0.0, interval_s=float("inf")))
TARGETS = {TrafficClass.INTERACTIVE: Target(ttft_s=1.0, tpot_s=0.03)}


def takes(step_ms: float, sequence_ms: float, drafts: int) -> Forecast:
    steps = tuple(((step_ms + sequence_ms * n) / 1e3,) * 2 for n in range(1, 65))
    return Forecast((0.0, 500.0), steps, (drafts,) * 64, 1.0, (0.0, 0.01), None)


class Forecasts:
    """By pool, but for nodes in ``without``."""

    def __init__(self) -> None:
        self.by_pool = {Pool.STANDARD: takes(20.0, 0.5, 0), Pool.SPECULATIVE: takes(33.0, 3.0, 4)}
        self.without: set[str] = set()

    def __call__(self, node: NodeState) -> Forecast | None:
        return None if node.name in self.without else self.by_pool[node.pool]


def dispatcher_of(fleet: Fleet, forecasts: Forecasts) -> Dispatcher:
    evidence = CategoryEvidence(AcceptanceBook(AcceptancePrior()))
    return Dispatcher(fleet, evidence, PredictivePolicy(PLAIN, evidence, forecasts, TARGETS), lambda: 0.5)


def place(dispatcher: Dispatcher, category: str = "code", now: float = 0.1) -> Placement:
    return dispatcher.place(shape(category), "r", now)


def seen(dispatcher: Dispatcher, placement: Placement) -> dict[str, Candidate]:
    return {one.node: one for one in dispatcher.candidates(placement) or ()}


def figures(dispatcher: Dispatcher, placement: Placement, node: str) -> Foretold:
    foretold = seen(dispatcher, placement)[node].foretold
    assert foretold is not None
    return foretold


@settings(max_examples=15, deadline=None)
@given(categories=st.lists(st.sampled_from(["code", "chat"]), min_size=1, max_size=25))
def test_the_chosen_node_is_the_one_with_the_most_worth_less_cost(categories: list[str]) -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s0"), speculative("s1"), standard("t")), Forecasts())
    placements = [place(dispatcher, category) for category in categories]
    last = placements[-1]
    net = {name: one.foretold.worth - one.foretold.cost for name, one in seen(dispatcher, last).items() if one.foretold}
    assert net.keys() == {"s0", "s1", "t"}
    assert net[last.decision.node] == pytest.approx(max(net.values()), abs=1e-3)


def test_a_candidate_is_shown_with_the_requests_that_it_had_when_it_was_decided() -> None:
    dispatcher = dispatcher_of(fleet_of(standard("t")), Forecasts())
    first = place(dispatcher)
    second = place(dispatcher)
    alone, joining = figures(dispatcher, first, "t"), figures(dispatcher, second, "t")
    assert (alone.cost, alone.ttft_s < joining.ttft_s, alone.tpot_s < joining.tpot_s) == (0.0, True, True)
    assert joining.cost > 0.0
    assert alone.e2e_s == pytest.approx(alone.ttft_s + 250.0 * alone.tpot_s)
    dispatcher.settle(first, Outcome(Ending.COMPLETED), 0.2)
    assert figures(dispatcher, second, "t") == pytest.approx(joining)
    assert figures(dispatcher, place(dispatcher), "t").cost == pytest.approx(joining.cost)


def test_what_no_forecast_reaches_has_no_figures() -> None:
    forecasts = Forecasts()
    forecasts.without = {"t1"}
    dispatcher = dispatcher_of(fleet_of(standard("t0"), standard("t1"), standard("far")), forecasts)
    dispatcher.fleet.report("far", 0.0, 0.0, report(running=70, speculating=False))
    found = seen(dispatcher, place(dispatcher))
    assert {name: one.foretold is None for name, one in found.items()} == {"t0": False, "t1": True, "far": True}
    embedding = dispatcher.place(shape(decodes=False), "e", 0.1)
    assert {one.foretold for one in dispatcher.candidates(embedding) or ()} == {None}


def test_past_settings_explain_with_the_same_figures() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")), Forecasts())
    place(dispatcher, "chat")
    placement = place(dispatcher)
    before = figures(dispatcher, placement, "s")
    configure(dispatcher, ThresholdSettings(affinity_slack=None, holdback=0.5))
    assert figures(dispatcher, placement, "s") == before


def configure(dispatcher: Dispatcher, settings: ThresholdSettings) -> None:
    dispatcher.configure(settings, AcceptancePrior(), half_life=600.0, stale_after_s=1e9, hysteresis=0, now=0.2)


def test_a_forecast_that_stops_being_valid_soon_leaves_its_node_to_threshold() -> None:
    forecasts = Forecasts()
    forecasts.by_pool[Pool.STANDARD] = takes(60.0, 1.0, 0)
    fleet = fleet_of(speculative("s", ceiling=1), standard("t"))
    fleet.configure(0.0, stale_after_s=1e9, hysteresis=0)
    dispatcher = dispatcher_of(fleet, forecasts)
    assert [place(dispatcher).decision.node for _ in range(3)] == ["s"] * 3
    forecasts.without = {"s"}
    assert place(dispatcher, now=0.1 + LOOK_EVERY_S).decision.node == "t"  # its ceiling holds again
    (drafting, _) = fleet.nodes()
    assert dispatcher.policy.kind_for(drafting) is PolicyKind.THRESHOLD
    forecasts.without = set()
    assert place(dispatcher, now=0.2 + 2 * LOOK_EVERY_S).decision.node == "s"


def test_of_many_nodes_all_are_looked_at_in_turn() -> None:
    forecasts = Forecasts()
    names = [f"t{number:03}" for number in range(2 * LOOK_AT_MOST + 2)]
    dispatcher = dispatcher_of(fleet_of(*map(standard, names)), forecasts)
    dispatcher.fleet.configure(0.0, stale_after_s=1e9, hysteresis=0)
    first = place(dispatcher)
    forecasts.without = {names[-1]}
    figures_after = []
    for look in range(1, 4):
        place(dispatcher, now=0.1 + look * (LOOK_EVERY_S + 1e-3))
        figures_after.append(seen(dispatcher, first)[names[-1]].foretold is not None)
    assert figures_after == [True, True, False]


def test_a_reload_looks_at_every_forecast_at_once() -> None:
    forecasts = Forecasts()
    forecasts.by_pool[Pool.STANDARD] = takes(60.0, 1.0, 0)
    dispatcher = dispatcher_of(fleet_of(speculative("s", ceiling=1), standard("t")), forecasts)
    assert [place(dispatcher).decision.node for _ in range(2)] == ["s"] * 2
    forecasts.without = {"s"}
    configure(dispatcher, PLAIN)
    placement = place(dispatcher)
    assert (placement.decision.node, placement.decision.reason) == ("t", Reason.SATURATED)


def calibrated(name: str, k: int) -> NodeSpec:
    spec = speculative(name)
    calibration = Calibration("p.json", "2026-11-30", "vllm", "1", "m", (f"draft-k{k}",))
    return NodeSpec(spec.name, spec.url, spec.pool, spec.engine, spec.models, calibration=calibration)


def test_advice_says_which_nodes_are_left_to_threshold_and_why() -> None:
    forecasts = Forecasts()
    forecasts.without = {"t0", "t1", "stale", "other", "mute"}
    fleet = fleet_of(
        standard("t0"),
        standard("t1"),
        standard("t2"),
        calibrated("stale", 3),
        calibrated("other", 4),
        speculative("mute"),
    )
    fleet.report("mute", 0.0, 0.0, report(speculating=False))
    dispatcher = dispatcher_of(fleet, forecasts)
    told = not_foretold(dispatcher)
    assert [(one.subject, one.evidence["nodes"], one.evidence["because"]) for one in told] == [
        ("fleet", 2, "no profile is configured for it"),
        ("stale", 1, "its calibration is stale"),
        ("other", 1, "its profile (p.json) has no times for what it drafts"),
    ]
    assert told[0].sentence.startswith("t0 and 1 other like it: no profile is configured for it, so requests")
    assert [one for one in advise(dispatcher, 0.1) if one.code is AdviceCode.NOT_FORETOLD] == told
    by_node = {one.name: (one.policy, one.learned_ceiling) for one in node_summaries(dispatcher, 0.1)}
    assert by_node["t2"] == (PolicyKind.PREDICTIVE, None)
    assert by_node["t0"] == by_node["mute"] == (PolicyKind.THRESHOLD, None)


def test_a_learned_ceiling_is_told_of_nodes_that_have_one() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")), Forecasts())
    place(dispatcher)
    by_node = {one.name: one.learned_ceiling for one in node_summaries(dispatcher, 0.1)}
    assert by_node["s"] is not None
    assert 5 < by_node["s"] < 40
