"""New settings take hold at once and leave alone what they are not about; the past is explained by the old ones."""

from __future__ import annotations

from dataclasses import replace

from fleets import dispatcher_of, fleet_of, report, shape, speculative, standard
from slipstream.core.acceptance import AcceptancePrior
from slipstream.core.dispatch import Dispatcher
from slipstream.core.node import NodeSpec
from slipstream.core.node_state import NodeState
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.policy import ProbingSettings, Reason, ThresholdSettings
from slipstream.core.request import Pool

NEVER_PROBING = ProbingSettings(share=0.0, interval_s=float("inf"))


def configure(
    dispatcher: Dispatcher,
    settings: ThresholdSettings | None = None,
    prior: AcceptancePrior | None = None,
    *,
    stale_after_s: float = 1.0,
    hysteresis: int = 0,
    now: float = 0.0,
) -> None:
    dispatcher.configure(
        settings or ThresholdSettings(),
        prior or AcceptancePrior(),
        half_life=600.0,
        stale_after_s=stale_after_s,
        hysteresis=hysteresis,
        now=now,
    )


def node_of(dispatcher: Dispatcher, name: str) -> NodeState:
    node = dispatcher.fleet.node(name)
    assert node is not None
    return node


def test_a_floor_holds_from_the_next_request_on_and_past_ones_are_explained_by_the_old() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    before = dispatcher.place(shape("code"), "before", 0.0)
    configure(dispatcher, ThresholdSettings(alpha_floor=0.9, probing=NEVER_PROBING))
    after = dispatcher.place(shape("code"), "after", 0.0)
    assert (before.decision.reason, after.decision.reason) == (Reason.SPECULATIVE, Reason.BELOW_FLOOR)
    (then,), (now,) = dispatcher.acceptance(before) or [], dispatcher.acceptance(after) or []
    assert (then.floor, now.floor) == (0.6, 0.9)
    reasons = [{one.node: one.reason for one in dispatcher.candidates(placed) or []} for placed in (before, after)]
    assert reasons == [{"s": Reason.SPECULATIVE, "t": None}, {"s": Reason.BELOW_FLOOR, "t": Reason.BELOW_FLOOR}]


def test_each_of_several_changes_is_remembered() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    placed = []
    for floor in (0.1, 0.2, 0.3):
        configure(dispatcher, ThresholdSettings(alpha_floor=floor))
        placed.append(dispatcher.place(shape("code"), "r", 0.0))
    assert [figure.floor for one in placed for figure in dispatcher.acceptance(one) or []] == [0.1, 0.2, 0.3]


def test_a_prior_changes_a_verdict_and_the_decision_before_keeps_what_was_believed() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")), ThresholdSettings(probing=NEVER_PROBING))
    before = dispatcher.place(shape("code"), "before", 0.0)
    configure(dispatcher, ThresholdSettings(probing=NEVER_PROBING), AcceptancePrior({"code": 0.3}))
    assert dispatcher.place(shape("code"), "after", 0.0).decision.reason is Reason.BELOW_FLOOR
    assert [figure.value for figure in dispatcher.acceptance(before) or []] == [0.75]


def test_a_probe_that_is_in_flight_is_still_the_only_one() -> None:
    probing = ThresholdSettings(probing=ProbingSettings(share=1.0))
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")), probing)
    probe = dispatcher.place(shape("chat"), "probe", 0.0)
    configure(dispatcher, replace(probing, holdback=0.1))
    other = dispatcher.place(shape("chat"), "other", 0.0)
    assert (probe.decision.reason, other.decision.reason) == (Reason.PROBE, Reason.BELOW_FLOOR)
    dispatcher.settle(probe, Outcome(Ending.REFUSED, 400), 0.0)
    assert dispatcher.place(shape("chat"), "third", 0.0).decision.reason is Reason.PROBE


def test_staleness_and_hysteresis_are_judged_anew_at_once() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s", ceiling=4), standard("t")))
    placed = [dispatcher.place(shape("code"), str(i), 0.0) for i in range(4)]
    configure(dispatcher, hysteresis=2, now=0.5)
    dispatcher.settle(placed[0], Outcome(Ending.REFUSED, 400), 0.5)
    assert node_of(dispatcher, "s").closed is Reason.SATURATED
    configure(dispatcher, now=0.5)
    assert node_of(dispatcher, "s").closed is None
    configure(dispatcher, stale_after_s=0.4, now=0.5)
    assert node_of(dispatcher, "s").closed is Reason.STALE
    dispatcher.report("s", 0.6, 0.6, report())
    assert node_of(dispatcher, "s").fresh


def test_a_node_keeps_its_requests_and_what_it_reported_when_it_is_configured_otherwise() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s", ceiling=2), standard("t")))
    placed = dispatcher.place(shape("code"), "r", 0.0)
    spec = node_of(dispatcher, "s").spec
    dispatcher.fleet.reconfigure(replace(spec, ceiling=1, max_in_flight=5, api_key="k"), 0.1)
    node = node_of(dispatcher, "s")
    assert (node.own, node.ceiling, node.limit, node.closed, node.fresh) == (1, 1, 5, Reason.SATURATED, True)
    dispatcher.fleet.reconfigure(replace(spec, models=("other",), ceiling=8), 0.1)
    assert (node.closed, node.models, node.limit) == (None, ("other",), 256)
    assert dispatcher.fleet.serving("m") is not None
    assert dispatcher.fleet.models() == ("m", "other")
    dispatcher.settle(placed, Outcome(Ending.COMPLETED, 200), 0.2)
    assert node.own == 0


def test_a_node_whose_models_are_no_longer_named_serves_what_it_reports() -> None:
    fleet = fleet_of(NodeSpec("s", "http://s:1", Pool.STANDARD, models=("named",)), report_all=False)
    fleet.reconfigure(NodeSpec("s", "http://s:1", Pool.STANDARD), 0.0)
    assert fleet.models() == ()
    fleet.report("s", 0.1, 0.1, replace(report(), models=("told",)))
    assert fleet.models() == ("told",)


def test_what_becomes_of_a_request_of_a_node_that_left_does_not_touch_the_one_that_has_its_name_now() -> None:
    for ending in (Ending.UNREACHABLE, Ending.FULL, Ending.COMPLETED, Ending.CLIENT_GONE, Ending.UPSTREAM_LOST):
        dispatcher = dispatcher_of(fleet_of(standard("t")))
        placed = dispatcher.place(shape("code"), "r", 0.0)
        dispatcher.remove("t")
        dispatcher.add(NodeSpec("t", "http://elsewhere:1", Pool.STANDARD, models=("m",)), 0.1)
        dispatcher.report("t", 0.1, 0.2, report())
        version, facts = dispatcher.fleet.version, node_of(dispatcher, "t").facts()
        dispatcher.settle(placed, Outcome(ending), 0.3)
        node = node_of(dispatcher, "t")
        assert (node.facts(), node.error, node.usable) == (facts, None, True), ending
        assert (dispatcher.fleet.facts_at(version) or {})["t"] == facts
        assert placed.state.own == 0 or ending is Ending.CLIENT_GONE
