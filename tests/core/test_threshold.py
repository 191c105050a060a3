"""Every reason code of policy `threshold`, and the laws of its choice."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleets import MODEL, dispatcher_of, fleet_of, report, shape, speculative, standard
from slipstream.core.acceptance import AcceptanceBook, AcceptancePrior, SpeculationSample
from slipstream.core.dispatch import Dispatcher
from slipstream.core.errors import AllFull, EngineUnreachable, NothingUsable, UnknownModel
from slipstream.core.evidence import CategoryEvidence
from slipstream.core.fleet import Fleet
from slipstream.core.node import NodeReport, NodeSpec, SpeculatorKind
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.policy import ProbingSettings, Reason, ThresholdPolicy, ThresholdSettings
from slipstream.core.request import Pool, RequestShape, TrafficClass

NO_PROBES = ThresholdSettings(probing=ProbingSettings(share=0.0, interval_s=float("inf")))


def two_pools(settings: ThresholdSettings = NO_PROBES, draw: float = 0.5) -> Dispatcher:
    return dispatcher_of(fleet_of(speculative("s"), standard("t")), settings, draw)


def placed(dispatcher: Dispatcher, wanted: RequestShape, now: float = 0.1) -> tuple[str, Reason]:
    decision = dispatcher.place(wanted, "r", now).decision
    return decision.node, decision.reason


def test_a_request_that_meets_every_condition_goes_to_the_speculative_node() -> None:
    assert placed(two_pools(), shape("code")) == ("s", Reason.SPECULATIVE)


def test_without_an_active_speculator_requests_go_standard() -> None:
    dispatcher = two_pools()
    dispatcher.report("s", 0.0, 0.0, report(speculating=False))
    assert placed(dispatcher, shape("code")) == ("t", Reason.NO_SPECULATOR)


def test_a_speculator_that_is_not_reported_is_not_there() -> None:
    fleet = fleet_of(speculative("s"), standard("t"), report_all=False)
    for name in ("s", "t"):
        fleet.report(name, 0.0, 0.0, report(speculating=None))
    assert placed(dispatcher_of(fleet), shape("code")) == ("t", Reason.NO_SPECULATOR)


def test_at_the_ceiling_requests_go_standard() -> None:
    dispatcher = two_pools()
    for _ in range(8):
        assert placed(dispatcher, shape("code"))[1] is Reason.SPECULATIVE
    assert placed(dispatcher, shape("code")) == ("t", Reason.SATURATED)


def test_a_request_with_more_sequences_than_room_is_kept_from_the_speculative_node() -> None:
    dispatcher = two_pools()
    placed(dispatcher, shape("code", sequences=6))
    assert placed(dispatcher, shape("code", sequences=3)) == ("t", Reason.SATURATED)
    assert placed(dispatcher, shape("code", sequences=2)) == ("s", Reason.SPECULATIVE)


def test_a_category_whose_prior_is_below_the_floor_goes_standard() -> None:
    assert placed(two_pools(), shape("chat")) == ("t", Reason.BELOW_FLOOR)


def test_a_category_exactly_at_the_floor_is_not_above_it() -> None:
    assert placed(two_pools(), shape("translation")) == ("t", Reason.BELOW_FLOOR)


def test_an_n_gram_speculator_is_judged_by_tokens_per_step() -> None:
    ngram = fleet_of(speculative("s", kind=SpeculatorKind.NGRAM), standard("t"))
    dispatcher = dispatcher_of(ngram, NO_PROBES)
    assert placed(dispatcher, shape("code")) == ("s", Reason.SPECULATIVE)
    state = ngram.node("s")
    assert state is not None
    assert state.speculator is not None
    for n in range(40):  # alpha 0.9 on the few steps that drafted, and still hardly more than one token a step
        sample = SpeculationSample(drafted=8, accepted=7, verify_steps=1, output_tokens=108)
        dispatcher.evidence.credit(MODEL, state.speculator, "code", "s", sample, n, float(n))
    dispatcher.report("s", 40.0, 40.0, report())
    assert placed(dispatcher, shape("code"), 40.1) == ("t", Reason.BELOW_FLOOR)


def test_with_a_profile_the_predicted_gain_decides() -> None:
    fleet = fleet_of(speculative("s"), standard("t"))
    evidence = CategoryEvidence(AcceptanceBook(AcceptancePrior()))
    policy = ThresholdPolicy(NO_PROBES, evidence, gain=lambda _m, _s, _e, occupancy: 1.3 - 0.05 * occupancy)
    dispatcher = Dispatcher(fleet, evidence, policy, lambda: 0.5)
    reasons = [placed(dispatcher, shape("code"))[1] for _ in range(4)]
    assert reasons == [Reason.SPECULATIVE, Reason.SPECULATIVE, Reason.SPECULATIVE, Reason.BELOW_GAIN]


def test_a_profile_that_can_not_predict_does_not_decide() -> None:
    evidence = CategoryEvidence(AcceptanceBook(AcceptancePrior()))
    policy = ThresholdPolicy(NO_PROBES, evidence, gain=lambda *_: None)
    dispatcher = Dispatcher(fleet_of(speculative("s"), standard("t")), evidence, policy, lambda: 0.5)
    assert placed(dispatcher, shape("code")) == ("s", Reason.SPECULATIVE)


def test_short_by_the_clients_limit() -> None:
    assert placed(two_pools(), shape("code", output_limit=63)) == ("t", Reason.SHORT_OUTPUT)
    assert placed(two_pools(), shape("code", output_limit=64)) == ("s", Reason.SPECULATIVE)


def test_short_by_what_the_categorys_answers_usually_are() -> None:
    dispatcher = two_pools()
    for n in range(10):
        dispatcher.evidence.answered("code", 20, n)
    assert placed(dispatcher, shape("code", output_limit=500)) == ("t", Reason.SHORT_OUTPUT)


def test_what_decodes_nothing_goes_standard() -> None:
    assert placed(two_pools(), shape("code", decodes=False)) == ("t", Reason.SHORT_OUTPUT)


def test_bulk_work_goes_standard() -> None:
    assert placed(two_pools(), shape("code", traffic_class=TrafficClass.BULK)) == ("t", Reason.BULK)


def test_a_field_the_speculative_engine_rejects_goes_standard() -> None:
    settings = ThresholdSettings(rejected_features=lambda engine: frozenset({"min_p"} if engine == "vllm" else ()))
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")), settings)
    assert placed(dispatcher, shape("code", features=frozenset({"min_p"}))) == ("t", Reason.REJECTED_FEATURE)
    assert placed(dispatcher, shape("code", features=frozenset({"logit_bias"}))) == ("s", Reason.SPECULATIVE)


def test_stale_telemetry_takes_eligibility_away_and_not_health() -> None:
    dispatcher = two_pools()
    dispatcher.report("t", 5.0, 5.0, report(speculating=False))
    assert placed(dispatcher, shape("code"), 5.1) == ("t", Reason.STALE)
    state = dispatcher.fleet.node("s")
    assert state is not None
    assert (state.healthy, state.fresh) == (True, False)


def test_recovery_within_one_report() -> None:
    dispatcher = two_pools()
    dispatcher.fleet.expire(9.0)
    dispatcher.report("s", 9.0, 9.0, report())
    dispatcher.report("t", 9.0, 9.0, report(speculating=False))
    assert placed(dispatcher, shape("code"), 9.1) == ("s", Reason.SPECULATIVE)


def test_a_draining_node_takes_nothing_new() -> None:
    dispatcher = two_pools()
    dispatcher.fleet.drain("s", 0.0)
    assert placed(dispatcher, shape("code")) == ("t", Reason.DRAINING)
    dispatcher.fleet.drain("s", 0.0, draining=False)
    assert placed(dispatcher, shape("code")) == ("s", Reason.SPECULATIVE)


def test_an_unreachable_speculative_node_is_said_so() -> None:
    dispatcher = two_pools()
    for _ in range(2):
        dispatcher.report_failed("s", 0.2, EngineUnreachable("connection refused"))
    assert placed(dispatcher, shape("code")) == ("t", Reason.UNHEALTHY)


def test_a_speculative_node_that_never_answered_is_unhealthy_not_without_speculator() -> None:
    fleet = fleet_of(speculative("s"), standard("t"), report_all=False)
    fleet.report("t", 0.0, 0.0, report(speculating=False))
    assert placed(dispatcher_of(fleet), shape("code")) == ("t", Reason.UNHEALTHY)


@given(st.lists(st.tuples(st.sampled_from("abct"), st.integers(0, 6)), max_size=60))
def test_the_counts_of_closed_nodes_agree_with_the_nodes(steps: list[tuple[str, int]]) -> None:
    fleet = fleet_of(speculative("a", ceiling=2), speculative("b", ceiling=3, limit=3), speculative("c"), standard("t"))
    for now, (name, action) in enumerate(steps, start=1):
        node = fleet.node(name)
        assert node is not None
        if action == 0:
            fleet.admit(name, 1, "code", now)
        elif action == 1 and node.own:
            fleet.release(node, 1, "code", now)
        elif action == 2:
            fleet.report(name, now, now, report(running=now % 5, speculating=now % 3 > 0))
        elif action == 3:
            fleet.lost(node, now, "gone")
        elif action == 4:
            fleet.drain(name, now, draining=now % 2 == 0)
        elif action == 5:
            fleet.refused(node, now)
        else:
            fleet.expire(now)
        groups = [group for side in fleet.serving(MODEL) or () for group in side]
        for group in groups:
            assert +group.closed == Counter(n.closed for n in group.members if n.closed is not None)
            assert all(n.closed is n.facts().closed for n in group.members)
            assert {n.name for n in group.open} == {n.name for n in group.members if n.closed is None}


def test_one_lost_poll_is_not_an_outage() -> None:
    dispatcher = two_pools()
    dispatcher.report_failed("s", 0.2, EngineUnreachable("timed out"))
    assert placed(dispatcher, shape("code")) == ("s", Reason.SPECULATIVE)


def test_a_speculative_node_that_said_full_is_avoided_until_its_next_report() -> None:
    dispatcher = two_pools()
    placement = dispatcher.place(shape("code"), "r", 0.1)
    dispatcher.settle(placement, Outcome(Ending.FULL, 429), 0.2)
    assert placed(dispatcher, shape("code")) == ("t", Reason.FULL)
    dispatcher.report("s", 0.3, 0.3, report())
    assert placed(dispatcher, shape("code")) == ("s", Reason.SPECULATIVE)


def test_an_unknown_model_is_the_clients_error() -> None:
    with pytest.raises(UnknownModel, match="no node of this fleet serves the model 'gpt-5'") as raised:
        two_pools().place(RequestShape("gpt-5", "code"), "r", 0.1)
    assert raised.value.param == "model"


def test_a_model_is_not_called_unknown_while_a_node_has_not_said_what_it_serves() -> None:
    fleet = fleet_of(standard("t"))
    fleet.add(NodeSpec("late", "http://late:1", Pool.STANDARD), 0.0)
    with pytest.raises(NothingUsable, match="1 node has not said yet what"):
        dispatcher_of(fleet).place(RequestShape("other", "code"), "r", 0.1)
    fleet.report("late", 0.2, 0.2, NodeReport(running=0, models=("other",)))
    assert dispatcher_of(fleet).place(RequestShape("other", "code"), "r", 0.3).node.name == "late"


def test_a_node_with_less_room_than_its_ceiling_is_saturated_when_that_is_used() -> None:
    fleet = fleet_of(speculative("s", ceiling=8, limit=4), standard("t"))
    dispatcher = dispatcher_of(fleet, NO_PROBES)
    assert [placed(dispatcher, shape("code"))[1] for _ in range(5)] == [Reason.SPECULATIVE] * 4 + [Reason.SATURATED]
    state = fleet.node("s")
    assert state is not None
    assert (state.ceiling, state.speculative_capacity, state.state) == (4, 0, "full")


def test_a_shape_without_a_model_fits_every_node() -> None:
    assert placed(two_pools(), RequestShape("", "chat"))[0] == "t"


def test_no_standard_node_left_falls_back_to_any_usable_node_up_to_its_limit() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s", ceiling=1, limit=3), standard("t", limit=1)), NO_PROBES)
    placed(dispatcher, shape("chat"))
    assert placed(dispatcher, shape("chat")) == ("s", Reason.FALLBACK)
    assert placed(dispatcher, shape("chat")) == ("s", Reason.FALLBACK)
    assert placed(dispatcher, shape("code")) == ("s", Reason.FALLBACK)
    with pytest.raises(AllFull, match="every node that serves 'm' is at its limit"):
        dispatcher.place(shape("chat"), "r", 0.1)


def test_without_fallback_a_full_standard_pool_is_full() -> None:
    settings = ThresholdSettings(fallback=False)
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t", limit=1)), settings)
    placed(dispatcher, shape("chat"))
    with pytest.raises(AllFull):
        dispatcher.place(shape("chat"), "r", 0.1)


def test_nothing_that_can_be_reached_is_another_error_than_full() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t"), report_all=False))
    with pytest.raises(NothingUsable, match="none of the 2 nodes that serve 'm' can be reached"):
        dispatcher.place(shape("code"), "r", 0.1)


def test_a_pinned_request_goes_to_its_pool_whatever_the_rules_say() -> None:
    assert placed(two_pools(), shape("chat", pinned_pool=Pool.SPECULATIVE)) == ("s", Reason.PINNED)
    assert placed(two_pools(), shape("code", pinned_pool=Pool.STANDARD)) == ("t", Reason.PINNED)


def test_holdback_sends_its_share_of_eligible_requests_standard() -> None:
    settings = ThresholdSettings(holdback=0.05)
    draws = iter([n / 1000 for n in range(1000)])
    fleet = fleet_of(speculative("s", ceiling=10_000, limit=10_000), standard("t", limit=10_000))
    evidence = CategoryEvidence(AcceptanceBook(AcceptancePrior()))
    dispatcher = Dispatcher(fleet, evidence, ThresholdPolicy(settings, evidence), lambda: next(draws))
    reasons = Counter(placed(dispatcher, shape("code"))[1] for _ in range(1000))
    assert reasons == {Reason.HOLDBACK: 50, Reason.SPECULATIVE: 950}


def test_nothing_is_held_back_when_there_is_nowhere_to_hold_it() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s")), ThresholdSettings(holdback=1.0), draw=0.0)
    assert placed(dispatcher, shape("code")) == ("s", Reason.SPECULATIVE)


def test_probing_keeps_a_category_below_the_floor_measured() -> None:
    """The evidence turns against a category, then for it; without probes the second half would never be seen."""
    fleet = fleet_of(speculative("s"), standard("t"))
    dispatcher = dispatcher_of(fleet, ThresholdSettings(probing=ProbingSettings(share=0.02)))
    reasons: list[Reason] = []
    now, bad = 0.0, SpeculationSample(100, 10, 25, 36)
    good = SpeculationSample(100, 90, 25, 116)
    for n in range(4000):
        now += 0.01
        if n % 50 == 0:
            dispatcher.report("s", now, now, report())
            dispatcher.report("t", now, now, report(speculating=False))
        placement = dispatcher.place(shape("code"), f"r{n}", now)
        reasons.append(placement.decision.reason)
        sample = (bad if n < 1000 else good) if placement.decision.pool is Pool.SPECULATIVE else None
        dispatcher.settle(placement, Outcome(Ending.COMPLETED, 200, sample=sample, output_tokens=100), now)
    assert reasons[0] is Reason.SPECULATIVE
    assert reasons[900] in (Reason.BELOW_FLOOR, Reason.PROBE)
    assert 0 < reasons[:1000].count(Reason.PROBE) <= 20
    assert reasons[-1] is Reason.SPECULATIVE


def test_at_most_one_probe_of_a_category_is_in_flight() -> None:
    dispatcher = two_pools(ThresholdSettings(probing=ProbingSettings(share=0.5)))
    reasons = [placed(dispatcher, shape("chat"))[1] for _ in range(20)]
    assert reasons.count(Reason.PROBE) == 1


def test_one_probe_in_five_minutes_even_for_a_rare_category() -> None:
    dispatcher = two_pools(ThresholdSettings())
    for now in (0.1, 300.2):
        dispatcher.report("s", now, now, report())
        dispatcher.report("t", now, now, report(speculating=False))
        reason = placed(dispatcher, shape("chat"), now)[1]
    assert reason is Reason.PROBE


def test_a_request_that_fails_another_condition_too_is_no_probe() -> None:
    dispatcher = two_pools(ThresholdSettings(probing=ProbingSettings(share=1.0)))
    assert placed(dispatcher, shape("chat", output_limit=5))[1] is Reason.SHORT_OUTPUT
    assert placed(dispatcher, shape("chat", traffic_class=TrafficClass.BULK))[1] is Reason.BULK
    assert placed(dispatcher, shape("chat")) == ("s", Reason.PROBE)


def test_a_saturated_node_is_not_probed() -> None:
    dispatcher = two_pools(ThresholdSettings(probing=ProbingSettings(share=1.0)))
    for _ in range(8):
        placed(dispatcher, shape("code"))
    assert placed(dispatcher, shape("chat")) == ("t", Reason.BELOW_FLOOR)


def test_the_least_loaded_speculative_node_by_share_of_its_ceiling() -> None:
    dispatcher = dispatcher_of(
        fleet_of(speculative("small", ceiling=2), speculative("large", ceiling=8), standard("t"))
    )
    names = Counter(placed(dispatcher, shape("code"))[0] for _ in range(10))
    assert names == {"small": 2, "large": 8}


def test_ties_are_spread_by_the_draw_and_repeat_with_the_same_draw() -> None:
    specs = [speculative(f"s{n}") for n in range(4)]
    first = {
        draw: placed(dispatcher_of(fleet_of(*specs), draw=draw), shape("code"))[0] for draw in (0.0, 0.3, 0.6, 0.9)
    }
    again = {
        draw: placed(dispatcher_of(fleet_of(*specs), draw=draw), shape("code"))[0] for draw in (0.0, 0.3, 0.6, 0.9)
    }
    assert len(set(first.values())) == 4
    assert first == again


def test_a_retry_avoids_the_nodes_already_tried() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("a"), speculative("b"), standard("t")))
    for avoid, allowed in (({"a"}, {"b"}), ({"a", "b"}, {"t"})):
        assert dispatcher.place(shape("code"), "r", 0.1, frozenset(avoid)).node.name in allowed
    with pytest.raises(AllFull):
        dispatcher.place(shape("code"), "r", 0.1, frozenset({"a", "b", "t"}))


def test_a_stale_standard_node_is_used_after_every_fresh_one() -> None:
    fleet = fleet_of(standard("old"), standard("fresh"))
    fleet.report("fresh", 5.0, 5.0, report(speculating=False))
    dispatcher = dispatcher_of(fleet)
    assert {placed(dispatcher, shape("chat"), 5.1)[0] for _ in range(20)} == {"fresh"}


POOLS = st.sampled_from(["speculative", "standard"])


@pytest.mark.no_cover
@given(
    st.lists(
        st.tuples(POOLS, st.integers(1, 6), st.integers(0, 8), st.booleans(), st.booleans()), min_size=1, max_size=8
    ),
    st.lists(st.tuples(st.sampled_from(["code", "chat"]), st.integers(1, 3)), max_size=20),
    st.floats(0.0, 1.0, exclude_max=True),
)
def test_no_decision_names_a_node_that_can_not_take_the_request(
    nodes: list[tuple[str, int, int, bool, bool]], requests: list[tuple[str, int]], draw: float
) -> None:
    specs: list[NodeSpec] = [
        speculative(f"n{i}", ceiling=size, limit=size + 2) if pool == "speculative" else standard(f"n{i}", limit=size)
        for i, (pool, size, *_) in enumerate(nodes)
    ]
    fleet = Fleet(specs, 0.0)
    for spec, (_, _, running, up, draining) in zip(specs, nodes, strict=True):
        if up:
            fleet.report(spec.name, 0.0, 0.0, report(running=running))
        fleet.drain(spec.name, 0.0, draining=draining)
    dispatcher = dispatcher_of(fleet, draw=draw)
    for category, sequences in requests:
        before = {node.name: node.facts() for node in fleet.nodes()}
        try:
            decision = dispatcher.place(shape(category, sequences=sequences), "r", 0.1).decision
        except (AllFull, NothingUsable):
            assert not any(
                facts.healthy and not facts.draining and facts.occupancy + sequences <= facts.limit
                for facts in before.values()
            )
            continue
        facts = before[decision.node]
        assert facts.healthy
        assert not facts.draining
        assert facts.occupancy == 0 or facts.occupancy + sequences <= facts.limit
        if decision.reason is Reason.SPECULATIVE:
            assert facts.occupancy + sequences <= facts.ceiling
