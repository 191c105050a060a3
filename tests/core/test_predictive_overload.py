"""Policy `predictive` where more is asked for than can be answered in time: who waits, who is refused, who pays; and
how it learns from what came true where that is.
"""

from __future__ import annotations

from collections import Counter

import pytest

from fleets import fleet_of, report, shape, speculative, standard
from slipstream.core.acceptance import AcceptanceBook, AcceptancePrior
from slipstream.core.dispatch import Dispatcher, Placement, Refusal
from slipstream.core.errors import AllFull, OutOfReach
from slipstream.core.evidence import CategoryEvidence
from slipstream.core.fleet import Fleet
from slipstream.core.forecast import Forecast
from slipstream.core.goodput import Target
from slipstream.core.latency import Latency
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.policy import PredictivePolicy, Reason, ThresholdSettings
from slipstream.core.request import RequestShape, TrafficClass

IN_TIME = Target(ttft_s=1.0, tpot_s=0.03)
LATE_S = 0.95
"""After so long a wait the first token can hardly come within its target."""
SERVES = ThresholdSettings(affinity_slack=None)
REFUSES = ThresholdSettings(affinity_slack=None, fallback=False)
STEPS = Forecast(
    (0.0, 500.0), tuple(((10.0 + 2.0 * n) / 1e3,) * 2 for n in range(1, 65)), (0,) * 64, 0.0, (0.0, 0.01), None
)


def predictive(fleet: Fleet, settings: ThresholdSettings, target: Target = IN_TIME) -> Dispatcher:
    evidence = CategoryEvidence(AcceptanceBook(AcceptancePrior()))
    policy = PredictivePolicy(settings, evidence, lambda _node: STEPS, {TrafficClass.INTERACTIVE: target})
    return Dispatcher(fleet, evidence, policy, lambda: 0.0)


def place(
    dispatcher: Dispatcher, queued_s: float | None = None, wanted: RequestShape | None = None, *, may_wait: bool = True
) -> Placement:
    return dispatcher.place(wanted or shape("code"), "r", 0.1, may_wait=may_wait, queued_s=queued_s)


def filled(settings: ThresholdSettings, *names: str) -> Dispatcher:
    """A fleet that takes no more, for then somebody would be late."""
    dispatcher = predictive(fleet_of(*map(standard, names)), settings)
    fill(dispatcher)
    return dispatcher


def fill(dispatcher: Dispatcher) -> None:
    for _ in range(100):
        try:
            place(dispatcher)
        except AllFull:
            return
    raise AssertionError("it takes whatever comes")


def occupancies(dispatcher: Dispatcher) -> dict[str, int]:
    return {node.name: node.occupancy for node in dispatcher.fleet.nodes()}


@pytest.mark.parametrize("settings", [SERVES, REFUSES])
def test_where_one_more_makes_others_late_it_waits_while_it_has_a_chance(settings: ThresholdSettings) -> None:
    dispatcher = filled(settings, "a", "b")
    ceiling = dispatcher.policy.learned_ceiling("a")
    assert ceiling is not None
    assert occupancies(dispatcher) == {"a": ceiling, "b": ceiling}
    with pytest.raises(AllFull):
        place(dispatcher, 0.3)


def test_whoever_has_waited_goes_on_when_one_has_ended() -> None:
    dispatcher = predictive(fleet_of(standard("a")), REFUSES)
    first = place(dispatcher)
    fill(dispatcher)
    dispatcher.settle(first, Outcome(Ending.COMPLETED), 0.2)
    assert place(dispatcher, 0.3).decision.reason is Reason.NO_SPECULATOR


def test_whoever_has_waited_too_long_is_refused_by_a_gateway_that_makes_nobody_late() -> None:
    dispatcher = filled(REFUSES, "a", "b")
    before = occupancies(dispatcher)
    with pytest.raises(OutOfReach, match="no node can answer in time any more"):
        place(dispatcher, LATE_S)
    with pytest.raises(AllFull):
        place(dispatcher, may_wait=False)
    assert occupancies(dispatcher) == before
    (refusal, _) = (one for one in dispatcher.find("r") if isinstance(one, Refusal))
    assert {one.reason for one in dispatcher.candidates(refusal) or ()} == {Reason.SATURATED}


def test_targets_that_no_node_can_meet_are_not_waited_for() -> None:
    dispatcher = predictive(fleet_of(standard("a")), REFUSES, Target(ttft_s=1.0, tpot_s=0.001))
    with pytest.raises(OutOfReach):
        place(dispatcher)
    late = place(predictive(fleet_of(standard("a")), SERVES, Target(ttft_s=1.0, tpot_s=0.001)))
    assert late.decision.reason is Reason.FALLBACK


def test_the_late_gather_where_nobody_is_in_time_any_more() -> None:
    dispatcher = filled(SERVES, "a", "b", "c")
    before = occupancies(dispatcher)
    went = Counter(place(dispatcher, LATE_S).node.name for _ in range(24))
    (victim, most), *others = went.most_common()
    assert most >= 20
    assert sum(count for _, count in others) <= 4
    explained = dispatcher.candidates(next(iter(dispatcher.placements()))) or ()
    assert {one.reason for one in explained if not one.chosen} == {Reason.SATURATED}
    assert occupancies(dispatcher)[victim] == before[victim] + most


def test_when_that_node_is_at_its_limit_another_one_has_to_take_them() -> None:
    fleet = fleet_of(standard("a", limit=20), standard("b", limit=20))
    dispatcher = predictive(fleet, SERVES)
    for _ in range(40):
        place(dispatcher, LATE_S, may_wait=False)
    assert occupancies(dispatcher) == {"a": 20, "b": 20}
    with pytest.raises(AllFull):
        place(dispatcher, LATE_S)


def test_what_only_observes_says_so_and_keeps_nobody_waiting() -> None:
    watching = ThresholdSettings(affinity_slack=None, fallback=False, observe=True)
    dispatcher = predictive(fleet_of(standard("a")), watching)
    last = [place(dispatcher) for _ in range(30)][-1].decision
    assert last.reason is Reason.OBSERVE
    assert last.intended is not None
    assert last.intended.reason is Reason.FALLBACK


def test_a_fleet_of_which_nothing_recent_is_known_is_not_taken_for_a_full_one() -> None:
    dispatcher = predictive(fleet_of(standard("a"), standard("b"), speculative("s")), REFUSES)
    dispatcher.report("s", 9.0, 9.0, report(speculating=False))
    assert dispatcher.place(shape("code"), "r", 9.1, may_wait=True).node.name in ("a", "b")


def taught(ratio: float, sequences: int = 1) -> int | None:
    """The ceiling that was learned of a node which takes ``ratio`` times as long as its profile says."""
    dispatcher = predictive(fleet_of(standard("a")), REFUSES)
    running: list[Placement] = []
    for _ in range(400):
        try:
            running.append(place(dispatcher, wanted=shape("code", sequences=sequences)))
        except AllFull:
            tpot_s = ratio * (10.0 + 2.0 * running[0].occupancy) / 1e3
            latency = Latency(0.05, tpot_s, 0.05 + 100.0 * tpot_s)
            outcome = Outcome(Ending.COMPLETED, 200, latency, output_tokens=101)
            dispatcher.settle(running.pop(0), outcome, 0.2)
    return dispatcher.policy.learned_ceiling("a")


def test_a_node_slower_than_its_profile_is_given_less_and_a_faster_one_more() -> None:
    slow, exact, fast = taught(1.3), taught(1.0), taught(0.8)
    assert slow is not None
    assert exact is not None
    assert fast is None or fast > exact
    assert slow < exact
    assert taught(0.8, sequences=2) != fast  # several answers of one request tell nothing of one


def test_speculative_nodes_take_the_late_where_they_may() -> None:
    refusing = ThresholdSettings(affinity_slack=None, rejected_features=lambda _engine: frozenset({"min_p"}))
    dispatcher = predictive(fleet_of(speculative("s"), standard("t")), refusing)
    dispatcher.fleet.override("t", 0.0, ceiling=None, drained=True)
    for _ in range(40):
        place(dispatcher, LATE_S, may_wait=False)
    dispatcher.fleet.override("t", 0.0, ceiling=None, drained=False)
    fill(dispatcher)
    assert place(dispatcher, LATE_S).node.name == "s"
    picky = shape("code", features=frozenset({"min_p"}))
    assert place(dispatcher, LATE_S, picky).node.name == "t"


def test_what_was_given_up_teaches_nothing() -> None:
    dispatcher = filled(SERVES, "a", "b")
    before = dispatcher.policy.learned_ceiling("a")
    late = [place(dispatcher, LATE_S) for _ in range(40)]
    for placement in late:
        assert placement.decision.reason is Reason.FALLBACK
        outcome = Outcome(Ending.COMPLETED, 200, Latency(9.0, 0.3, 60.0), output_tokens=200)
        dispatcher.settle(placement, outcome, 0.2)
    place(dispatcher, LATE_S)
    assert dispatcher.policy.learned_ceiling("a") == before
