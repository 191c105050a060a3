from __future__ import annotations

from fleets import MODEL, dispatcher_of, fleet_of, report, shape, speculative, standard
from slipstream.core.acceptance import SpeculationSample
from slipstream.core.advice import AdviceCode, advise
from slipstream.core.dispatch import Dispatcher
from slipstream.core.errors import EngineGarbage, EngineUnreachable
from slipstream.core.node import NodeReport, SpeculatorKind
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.request import TrafficClass


def codes(dispatcher: Dispatcher, now: float = 1.0) -> list[tuple[AdviceCode, str]]:
    return [(advice.code, advice.subject) for advice in advise(dispatcher, now)]


def credit(dispatcher: Dispatcher, category: str, accepted: int, requests: int = 60) -> None:
    state = dispatcher.fleet.node("s")
    assert state is not None
    assert state.speculator is not None
    for n in range(requests):
        sample = SpeculationSample(drafted=100, accepted=accepted, verify_steps=25, output_tokens=26 + accepted)
        dispatcher.evidence.credit(MODEL, state.speculator, category, "s", sample, n, float(n))


def test_a_fleet_without_trouble_gets_no_advice() -> None:
    assert codes(dispatcher_of(fleet_of(speculative("s"), standard("t")))) == []


def test_saturated_most_of_the_time_means_raise_the_ceiling() -> None:
    fleet = fleet_of(speculative("s"), standard("t"))
    for _ in range(8):
        fleet.admit("s", 1, "code", 1.0)
    found = advise(dispatcher_of(fleet), 500.0)
    assert [advice.code for advice in found] == [AdviceCode.RAISE_CEILING]
    assert "Raise the ceiling to 12" in found[0].sentence
    assert found[0].evidence["saturated_share"] == 499 / 500


def test_a_category_under_break_even_is_named() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    credit(dispatcher, "code", 80)
    credit(dispatcher, "chat", 20)
    assert codes(dispatcher) == [(AdviceCode.EXCLUDE_CATEGORY, "chat")]


def test_too_little_evidence_is_no_ground_for_advice() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    credit(dispatcher, "chat", 20, requests=40)
    assert codes(dispatcher) == []


def test_low_acceptance_everywhere_means_the_draft_is_the_problem() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    for category in ("code", "chat", "math"):
        credit(dispatcher, category, 10)
    assert codes(dispatcher)[0] == (AdviceCode.CHANGE_DRAFT, "fleet")
    assert len(codes(dispatcher)) == 4


def test_an_n_gram_category_is_judged_by_tokens_per_step() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s", kind=SpeculatorKind.NGRAM), standard("t")))
    credit(dispatcher, "chat", 2)
    found = advise(dispatcher, 1.0)
    assert "tokens per step" in found[0].sentence


def test_mostly_bulk_or_short_means_bound_by_throughput() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t", limit=1000)))
    for n in range(60):
        wanted = shape("code", traffic_class=TrafficClass.BULK if n % 2 else TrafficClass.INTERACTIVE, output_limit=10)
        placement = dispatcher.place(wanted, f"r{n}", 0.1)
        dispatcher.settle(placement, Outcome(Ending.CLIENT_GONE), 0.1)
    assert codes(dispatcher) == [(AdviceCode.THROUGHPUT_BOUND, "fleet")]


def test_a_nearly_full_kv_cache_on_a_speculative_node_is_said() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    dispatcher.report("s", 0.5, 0.5, NodeReport(running=1, speculating=True, k=4, kv_use=0.97))
    assert codes(dispatcher) == [(AdviceCode.KV_CACHE_FULL, "s")]


def test_a_speculative_node_without_a_speculator_is_said() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    dispatcher.report("s", 0.5, 0.5, report(speculating=False))
    assert codes(dispatcher) == [(AdviceCode.NO_SPECULATOR, "s")]


def test_all_nodes_stale_at_once_is_our_own_fault_and_is_said_so() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    dispatcher.fleet.expire(10.0)
    assert codes(dispatcher) == [(AdviceCode.TELEMETRY_LOST, "fleet")]


def test_a_node_that_can_not_be_reached_is_named_with_what_happened() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    dispatcher.report_failed("t", 0.1, EngineUnreachable("refused"))
    assert codes(dispatcher) == []  # one lost poll is not an outage
    dispatcher.report_failed("t", 0.2, EngineUnreachable("refused"))
    (found,) = advise(dispatcher, 1.0)
    assert (found.code, found.subject) == (AdviceCode.NODE_UNREACHABLE, "t")
    assert found.evidence == {"pool": "standard", "error": "refused"}


def test_a_node_that_never_said_anything_readable_is_named_for_that_and_not_for_its_speculator() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t"), report_all=False))
    dispatcher.report("t", 0.1, 0.1, report(speculating=None))
    dispatcher.report_failed("s", 0.1, EngineGarbage("no page of metrics"))
    assert codes(dispatcher) == [(AdviceCode.NODE_UNREADABLE, "s")]


def test_a_fleet_whose_nodes_all_refuse_is_not_blamed_on_the_gateway() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    for name in ("s", "t", "s", "t"):
        dispatcher.report_failed(name, 10.0, EngineUnreachable("connection refused"))
    assert codes(dispatcher) == [(AdviceCode.NODE_UNREACHABLE, "s"), (AdviceCode.NODE_UNREACHABLE, "t")]


def test_a_ceiling_above_what_the_engine_takes_is_not_advised() -> None:
    fleet = fleet_of(speculative("s", limit=4), standard("t"))
    for _ in range(4):
        fleet.admit("s", 1, "code", 1.0)
    [found] = advise(dispatcher_of(fleet), 500.0)
    assert found.code is AdviceCode.RAISE_CEILING
    assert "all its engine takes" in found.sentence
