"""Policy `predictive`: the laws of its choice, and when it leaves a node to the rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleets import MODEL, fleet_of, report, shape, speculative, standard
from slipstream.core.acceptance import AcceptanceBook, AcceptancePrior, SpeculationSample
from slipstream.core.dispatch import Dispatcher, Placement
from slipstream.core.errors import AllFull
from slipstream.core.evidence import CategoryEvidence
from slipstream.core.fleet import Fleet
from slipstream.core.forecast import Forecast
from slipstream.core.goodput import Target
from slipstream.core.node import NodeSpec
from slipstream.core.node_state import NodeState
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.policy import PredictivePolicy, ProbingSettings, Reason, ThresholdSettings
from slipstream.core.request import PinSource, Pool, RequestShape, TrafficClass

TARGETS = {TrafficClass.INTERACTIVE: Target(ttft_s=1.0, tpot_s=0.03), TrafficClass.BULK: Target(e2e_s=60.0)}
PLAIN = ThresholdSettings(affinity_slack=None, probing=ProbingSettings(share=0.0, interval_s=float("inf")))


def nodes_take(step_ms: float, sequence_ms: float, *, drafts: int = 0, most: int = 64) -> Forecast:
    """``step_ms`` a step, ``sequence_ms`` more a sequence, and 10 ms for a prompt of 500 tokens."""
    steps = tuple(((step_ms + sequence_ms * n) / 1e3,) * 2 for n in range(1, most + 1))
    return Forecast((0.0, 500.0), steps, (drafts,) * most, 1.0, (0.0, 0.01), None)


STANDARD = nodes_take(20.0, 0.5)
SPECULATIVE = nodes_take(33.0, 3.0, drafts=4)
SLOW = nodes_take(48.0, 3.0, drafts=4)


def by_pool(node: NodeState) -> Forecast | None:
    return SPECULATIVE if node.pool is Pool.SPECULATIVE else STANDARD


def by_pool_slowly(node: NodeState) -> Forecast | None:
    """With a speculator that costs chat more than it gives."""
    return SLOW if node.pool is Pool.SPECULATIVE else STANDARD


def predictive(
    fleet: Fleet,
    settings: ThresholdSettings = PLAIN,
    forecasts: Callable[[NodeState], Forecast | None] = by_pool,
    targets: Mapping[TrafficClass, Target] = TARGETS,
    draw: float = 0.5,
) -> Dispatcher:
    evidence = CategoryEvidence(AcceptanceBook(AcceptancePrior()))
    return Dispatcher(fleet, evidence, PredictivePolicy(settings, evidence, forecasts, targets), lambda: draw)


def place(dispatcher: Dispatcher, wanted: RequestShape | None = None, now: float = 0.1) -> Placement:
    return dispatcher.place(wanted or shape("code"), "r", now)


def on(dispatcher: Dispatcher, count: int, wanted: RequestShape | None = None) -> Counter[str]:
    return Counter(place(dispatcher, wanted).node.name for _ in range(count))


def reasons(dispatcher: Dispatcher, placement: Placement) -> dict[str, Reason | None]:
    return {one.node: one.reason for one in dispatcher.candidates(placement) or []}


def learned(dispatcher: Dispatcher) -> PredictivePolicy:
    assert isinstance(dispatcher.policy, PredictivePolicy)
    return dispatcher.policy


def test_what_drafts_well_goes_to_the_speculative_node_and_what_does_not_goes_standard() -> None:
    dispatcher = predictive(fleet_of(speculative("s"), standard("t")))
    code = place(dispatcher, shape("code"))
    assert (code.node.name, code.decision.reason) == ("s", Reason.SPECULATIVE)
    tight = {TrafficClass.INTERACTIVE: Target(tpot_s=0.023)}
    chat = place(predictive(fleet_of(speculative("s"), standard("t")), targets=tight), shape("chat"))
    assert (chat.node.name, chat.decision.reason) == ("t", Reason.BELOW_GAIN)


def test_no_ceiling_is_configured_it_is_where_joining_no_longer_pays() -> None:
    fleet = fleet_of(speculative("s", ceiling=1), standard("t", limit=1))
    dispatcher = predictive(fleet)
    assert on(dispatcher, 12)["s"] >= 11
    ceiling = learned(dispatcher).learned_ceiling("s")
    assert ceiling is not None
    assert 5 < ceiling < 40
    assert learned(dispatcher).learned_ceiling("nobody") is None
    assert learned(predictive(fleet)).learned_ceiling("s") is None  # nothing was asked yet


def test_without_targets_joining_always_pays() -> None:
    dispatcher = predictive(fleet_of(standard("t")), targets={})
    place(dispatcher)
    assert learned(dispatcher).learned_ceiling("t") is None


def test_an_overload_costs_one_node_its_targets_and_not_all() -> None:
    dispatcher = predictive(fleet_of(*(standard(f"t{n}") for n in range(3))), forecasts=lambda _node: nodes_take(10, 2))
    filled = sorted(on(dispatcher, 50).values())
    assert filled[1] <= 12
    assert filled[2] >= 26


def test_a_ceiling_that_an_operator_fixed_holds() -> None:
    fleet = fleet_of(speculative("s"), standard("t"))
    fleet.override("s", 0.0, ceiling=2, drained=False)
    assert on(predictive(fleet), 6)["s"] == 2


@settings(max_examples=20, deadline=None)
@given(running=st.lists(st.integers(0, 12), min_size=2, max_size=5), draw=st.floats(0.0, 0.999))
def test_of_equal_nodes_the_least_loaded_is_taken_while_they_meet_their_targets(
    running: list[int], draw: float
) -> None:
    fleet = fleet_of(*(standard(f"t{n}") for n in range(len(running))))
    dispatcher = predictive(fleet, draw=draw)
    place(dispatcher)
    for number, count in enumerate(running):
        for _ in range(count):
            fleet.admit(f"t{number}", 1, "code", 0.0)
    before = {node.name: node.occupancy for node in fleet.nodes()}
    chosen = place(dispatcher).node.name
    assert before[chosen] == min(before.values())


@settings(max_examples=20, deadline=None)
@given(
    limits=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    sequences=st.integers(1, 3),
    categories=st.lists(st.sampled_from(["code", "chat"]), min_size=1, max_size=20),
)
def test_no_node_gets_more_than_its_limit(limits: list[int], sequences: int, categories: list[str]) -> None:
    specs = [standard("t", limit=limits[0]), *(speculative(f"s{n}", limit=at) for n, at in enumerate(limits[1:]))]
    fleet = fleet_of(*specs)
    dispatcher = predictive(fleet)
    for category in categories:
        try:
            place(dispatcher, shape(category, sequences=sequences))
        except AllFull:
            assert all(node.occupancy + sequences > node.limit for node in fleet.nodes())
    for node in fleet.nodes():
        assert node.occupancy <= max(node.limit, sequences)


def test_a_node_beyond_what_its_forecast_is_valid_for_is_left_to_the_rules() -> None:
    dispatcher = predictive(fleet_of(standard("t")), forecasts=lambda _node: nodes_take(20, 0.5, most=3))
    assert [place(dispatcher).decision.reason for _ in range(5)][-1] is Reason.NO_SPECULATOR
    assert dispatcher.fleet.node("t").own == 5  # type: ignore[union-attr] # it is there


def test_bulk_goes_where_it_costs_those_who_wait_the_least() -> None:
    fleet = fleet_of(standard("a"), standard("b"))
    dispatcher = predictive(fleet, draw=0.0)
    bulk = shape("chat", traffic_class=TrafficClass.BULK)
    first = place(dispatcher, bulk).node.name
    people = on(dispatcher, 18)
    assert people[first] <= 9
    assert on(dispatcher, 6, bulk).most_common(1)[0][0] == min(people, key=people.__getitem__)


def test_nodes_without_a_forecast_are_chosen_by_the_rules() -> None:
    def only_standard(node: NodeState) -> Forecast | None:
        return STANDARD if node.pool is Pool.STANDARD else None

    fleet = fleet_of(speculative("s", ceiling=2), standard("t"), standard("u"))
    dispatcher = predictive(fleet, forecasts=only_standard)
    assert on(dispatcher, 2) == {"s": 2}
    after = place(dispatcher)
    assert (after.node.pool, after.decision.reason) == (Pool.STANDARD, Reason.SATURATED)
    assert reasons(dispatcher, after)["s"] is Reason.SATURATED
    nothing = predictive(fleet_of(speculative("s"), standard("t")), forecasts=lambda _node: None)
    assert place(nothing, shape("chat")).decision.reason is Reason.BELOW_FLOOR
    assert learned(nothing).learned_ceiling("s") is None


def test_a_speculator_that_stops_takes_its_forecast_along() -> None:
    fleet = fleet_of(speculative("s"), standard("t"))
    dispatcher = predictive(fleet)
    assert place(dispatcher).node.name == "s"
    dispatcher.report("s", 0.2, 0.2, report(speculating=False))
    after = place(dispatcher, now=0.3)
    assert (after.node.name, after.decision.reason) == ("t", Reason.NO_SPECULATOR)
    fleet.drain("s", 0.3)
    assert place(dispatcher, now=0.3).decision.reason is Reason.DRAINING


def test_another_speculator_is_foretold_anew() -> None:
    fleet = fleet_of(speculative("s"), standard("t"))
    dispatcher = predictive(fleet)
    place(dispatcher)
    dispatcher.report("s", 0.2, 0.2, report(running=1, k=2))
    pinned = shape("code", pinned_pool=Pool.SPECULATIVE, pinned_by=PinSource.KEY)
    assert place(dispatcher, pinned, now=0.3).node.name == "s"
    assert learned(dispatcher).learned_ceiling("s") is not None


def test_a_speculative_node_of_which_nothing_recent_is_known_gets_nothing() -> None:
    fleet = fleet_of(speculative("s"), standard("t"))
    dispatcher = predictive(fleet)
    dispatcher.report("t", 5.0, 5.0, report(speculating=False))
    after = place(dispatcher, now=5.1)
    assert (after.node.name, after.decision.reason) == ("t", Reason.STALE)
    assert reasons(dispatcher, after)["s"] is Reason.STALE


def test_long_answers_seen_are_long_answers_foretold() -> None:
    loose = {TrafficClass.INTERACTIVE: Target(e2e_s=10.0)}

    def ceiling(output_tokens: int) -> int | None:
        dispatcher = predictive(fleet_of(standard("t")), targets=loose)
        for _ in range(20):
            dispatcher.settle(place(dispatcher), Outcome(Ending.COMPLETED, 200, output_tokens=output_tokens), 0.2)
        for _ in range(20):
            place(dispatcher)
        return learned(dispatcher).learned_ceiling("t")

    long, short = ceiling(300), ceiling(100)
    assert long is not None
    assert short is None or long < short


def test_requests_that_have_ended_cost_nothing_any_more() -> None:
    fleet = fleet_of(standard("a"), standard("b"))
    dispatcher = predictive(fleet, draw=0.0)
    held = [place(dispatcher) for _ in range(20)]
    for placement in held:
        dispatcher.settle(placement, Outcome(Ending.COMPLETED, 200), 0.2)
    assert on(dispatcher, 2) == {"a": 1, "b": 1}


def test_pins_holdback_and_refused_features_are_kept() -> None:
    def fleet() -> Fleet:
        return fleet_of(speculative("s"), standard("t"))

    pinned = place(predictive(fleet()), shape("code", pinned_pool=Pool.STANDARD, pinned_by=PinSource.KEY))
    assert (pinned.node.name, pinned.decision.reason) == ("t", Reason.PINNED)
    held = place(predictive(fleet(), ThresholdSettings(holdback=0.6)))
    assert (held.node.name, held.decision.reason) == ("t", Reason.HOLDBACK)
    refusing = ThresholdSettings(rejected_features=lambda _engine: frozenset({"min_p"}))
    dispatcher = predictive(fleet(), refusing)
    refused = place(dispatcher, shape("code", features=frozenset({"min_p"})))
    assert (refused.node.name, refused.decision.reason) == ("t", Reason.REJECTED_FEATURE)
    assert reasons(dispatcher, refused)["s"] is Reason.REJECTED_FEATURE


def test_a_category_that_goes_standard_is_probed_until_it_was_measured() -> None:
    tight = {TrafficClass.INTERACTIVE: Target(tpot_s=0.023)}
    often = ThresholdSettings(probing=ProbingSettings(share=0.5))
    dispatcher = predictive(fleet_of(speculative("s"), standard("t")), often, by_pool_slowly, tight)
    found = [place(dispatcher, shape("chat")) for _ in range(4)]
    assert [one.decision.reason for one in found] == [Reason.BELOW_GAIN, Reason.PROBE] + [Reason.BELOW_GAIN] * 2
    dispatcher.settle(found[1], Outcome(Ending.CLIENT_GONE), 0.2)
    (again,) = [
        one for one in (place(dispatcher, shape("chat")) for _ in range(2)) if one.decision.reason is Reason.PROBE
    ]
    measured = SpeculationSample(drafted=200, accepted=80, verify_steps=50, output_tokens=130)
    dispatcher.settle(again, Outcome(Ending.COMPLETED, 200, sample=measured), 0.3)
    assert Reason.PROBE not in {place(dispatcher, shape("chat")).decision.reason for _ in range(4)}


def test_why_the_others_did_not_get_it_is_told() -> None:
    tight = {TrafficClass.INTERACTIVE: Target(tpot_s=0.023)}
    specs = [speculative("s", ceiling=1), standard("t"), standard("u"), standard("full", limit=1)]
    fleet = fleet_of(*specs)
    fleet.report("full", 0.0, 0.0, report(running=1, speculating=False))
    dispatcher = predictive(fleet, forecasts=by_pool_slowly, targets=tight, draw=0.0)
    chat = place(dispatcher, shape("chat"))
    assert reasons(dispatcher, chat) == {"s": Reason.BELOW_GAIN, "t": Reason.BELOW_GAIN, "u": None, "full": Reason.FULL}
    assert all(reason is None for name, reason in reasons(dispatcher, place(dispatcher)).items() if name == "u")


def test_decisions_are_explained_by_the_settings_that_held() -> None:
    refusing = ThresholdSettings(rejected_features=lambda _engine: frozenset({"min_p"}))
    dispatcher = predictive(fleet_of(speculative("s"), standard("t")), refusing)
    refused = place(dispatcher, shape("code", features=frozenset({"min_p"})))
    dispatcher.policy.configure(PLAIN, dispatcher.fleet.advance())
    assert reasons(dispatcher, refused)["s"] is Reason.REJECTED_FEATURE
    assert dispatcher.policy.as_of(dispatcher.fleet.version) is dispatcher.policy


def test_embeddings_go_by_the_rules() -> None:
    dispatcher = predictive(fleet_of(speculative("s"), standard("t")))
    embedded = place(dispatcher, shape("code", decodes=False))
    assert embedded.decision.reason is Reason.SHORT_OUTPUT
    assert reasons(dispatcher, embedded)["s"] is Reason.SHORT_OUTPUT
    dispatcher.settle(embedded, Outcome(Ending.COMPLETED, 200), 0.2)


def test_observing_steers_by_load_and_tells_what_would_have_been() -> None:
    watching = ThresholdSettings(observe=True)
    decision = place(predictive(fleet_of(speculative("s"), standard("t")), watching)).decision
    assert decision.reason is Reason.OBSERVE
    assert decision.intended is not None
    assert decision.intended.reason is Reason.SPECULATIVE


def test_a_conversation_stays_with_its_node_while_that_is_not_much_fuller() -> None:
    dispatcher = predictive(fleet_of(standard("a"), standard("b")), ThresholdSettings(), draw=0.0)
    first = place(dispatcher, shape("code", cache_keys=(7,)))
    second = place(dispatcher, shape("code", cache_keys=(7,)))
    assert (second.node, second.decision.by_affinity) == (first.node, True)


def test_of_equal_nodes_a_stale_one_comes_last() -> None:
    fleet = fleet_of(standard("a"), standard("b"), standard("c"))
    dispatcher = predictive(fleet, draw=0.0)
    assert on(dispatcher, 1) == {"a": 1}
    dispatcher.report("c", 5.0, 5.0, report(speculating=False))
    assert place(dispatcher, now=5.1).node.name == "c"


def test_long_sequences_fill_a_small_cache() -> None:
    def small(_node: NodeState) -> Forecast:
        steps = tuple(((20.0 + 0.1 * n) / 1e3,) * 2 for n in range(1, 65))
        return Forecast((0.0, 500.0), steps, (0,) * 64, 1.0, (0.0, 0.01), 16_000)

    dispatcher = predictive(fleet_of(standard("a"), standard("b")), forecasts=small, draw=0.0)
    short = shape("code", prompt_characters=400)
    for _ in range(40):
        dispatcher.settle(place(dispatcher, short), Outcome(Ending.COMPLETED, 200), 0.2)
    assert place(dispatcher, shape("code", prompt_characters=32_000)).node.name == "a"
    assert on(dispatcher, 4, short) == {"b": 4}


def test_sequences_longer_than_all_that_is_foretold_are_no_matter() -> None:
    def tiny(_node: NodeState) -> Forecast:
        return Forecast((0.0, 500.0), ((0.02, 0.02),) * 6, (0,) * 6, 1.0, (0.0, 0.01), 2000)

    dispatcher = predictive(fleet_of(standard("t")), forecasts=tiny)
    for _ in range(20):
        short = place(dispatcher, shape("code", prompt_characters=400))
        dispatcher.settle(short, Outcome(Ending.COMPLETED, 200), 0.2)
    assert on(dispatcher, 6, shape("code", prompt_characters=32_000)) == {"t": 6}


def test_models_are_kept_apart_and_nodes_that_come_back_are_new() -> None:
    other = NodeSpec("o", "http://o:1", Pool.STANDARD, "vllm", ("other",))
    fleet = fleet_of(standard("t"), other)
    dispatcher = predictive(fleet)
    assert place(dispatcher, RequestShape("other", "code")).node.name == "o"
    held = [place(dispatcher, RequestShape(MODEL, "code")) for _ in range(2)]
    dispatcher.remove("t")
    for placement in held:
        dispatcher.settle(placement, Outcome(Ending.COMPLETED, 200), 0.2)
    dispatcher.add(standard("t"), 0.3)
    dispatcher.report("t", 0.3, 0.3, report(speculating=False))
    assert place(dispatcher, now=0.4).node.name == "t"


def test_a_spread_of_nothing_is_refused() -> None:
    evidence = CategoryEvidence(AcceptanceBook(AcceptancePrior()))
    with pytest.raises(ValueError, match="spread of predictions is above 0"):
        PredictivePolicy(PLAIN, evidence, by_pool, TARGETS, 0.0)
