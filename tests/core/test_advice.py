from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from fleets import MODEL, dispatcher_of, fleet_of, report, shape, speculative, standard
from slipstream.core.acceptance import SpeculationSample
from slipstream.core.advice import AdviceCode, advise
from slipstream.core.calibration import Calibration
from slipstream.core.dispatch import Dispatcher
from slipstream.core.errors import EngineGarbage, EngineUnreachable
from slipstream.core.fleet import Fleet
from slipstream.core.node import NodeReport, Speculator, SpeculatorKind
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.overrides import Override, OverrideKind
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


def busy(ceiling: int = 8) -> Dispatcher:
    """A speculative node at its ceiling since 1 s."""
    fleet = fleet_of(speculative("s", ceiling=ceiling), standard("t"))
    for _ in range(ceiling):
        fleet.admit("s", 1, "code", 1.0)
    return dispatcher_of(fleet)


def show(dispatcher: Dispatcher, occupancy: int, accepted: int, tpot_s: float) -> None:
    """Sixty answers that were placed at an occupancy."""
    book = dispatcher.evidence.book
    for _ in range(60):
        sample = SpeculationSample(100, accepted, 25, 26 + accepted)
        assert book.credit(MODEL, Speculator(SpeculatorKind.DRAFT, 4), "code", "s", sample, 0.0, occupancy)
        book.timed("s", occupancy, tpot_s, 0.0)


def test_the_advice_on_a_ceiling_cites_what_occupancy_did_at_it_and_above() -> None:
    dispatcher = busy()
    show(dispatcher, 8, 80, 0.020)
    (found,) = advise(dispatcher, 500.0)
    assert "At its ceiling (5 to 8 sequences) it was 4.20 tokens per verify step and " in found.sentence
    assert "above" not in found.sentence
    assert (found.evidence["tau_at_ceiling"], found.evidence["requests_at_ceiling"]) == (4.2, 60)
    show(dispatcher, 11, 40, 0.030)
    (found,) = advise(dispatcher, 500.0)
    assert (
        "Where nodes like it have been above, (9 to 12 sequences) it was 2.60 tokens per verify step" in found.sentence
    )
    assert found.evidence["tpot_above_ms"] == pytest.approx(30, rel=0.05)
    assert found.evidence["higher_ceiling"] == 12


@pytest.mark.parametrize(("ceiling", "higher"), [(4, 12), (8, 12), (12, 16), (16, 32)])
def test_the_next_ceilings_are_twelve_and_sixteen(ceiling: int, higher: int) -> None:
    (found,) = advise(busy(ceiling), 500.0)
    assert found.evidence["higher_ceiling"] == higher


def test_the_advice_on_a_ceiling_ends_when_the_node_has_room_again() -> None:
    dispatcher = busy()
    assert codes(dispatcher, 500.0) == [(AdviceCode.RAISE_CEILING, "s")]
    dispatcher.override(Override(OverrideKind.NODE_CEILING, "s", 12), 500.0)
    assert codes(dispatcher, 1_000.0) == []


def test_acceptance_that_fell_after_a_change_is_said_until_it_is_put_right() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    chance = Random(1)

    def serve(accepted: int, start: float) -> None:
        state = dispatcher.fleet.node("s")
        assert state is not None
        assert state.speculator is not None
        for n in range(60):
            kept = accepted + chance.randint(-10, 10)
            sample = SpeculationSample(drafted=100, accepted=kept, verify_steps=25, output_tokens=26 + kept)
            dispatcher.evidence.credit(MODEL, state.speculator, "code", "s", sample, n, start + n)

    def runs(version: str, now: float) -> None:
        dispatcher.report("s", now, now, NodeReport(running=0, speculating=True, k=4, version=version))

    runs("1.0", 1.0)
    serve(85, 1.0)
    assert codes(dispatcher) == []
    runs("1.1", 100.0)
    serve(65, 100.0)
    (found,) = advise(dispatcher, 200.0)
    assert (found.code, found.subject) == (AdviceCode.ACCEPTANCE_FELL, "s")
    assert "fell after a change (version 1.0 became 1.1)" in found.sentence
    assert found.evidence["age_s"] == 100.0
    assert found.evidence["tau"] == pytest.approx(1 + 65 / 25, abs=0.1)
    assert found.evidence["expected_tau"] == pytest.approx(1 + 85 / 25, abs=0.1)
    runs("1.0", 300.0)
    serve(85, 300.0)
    assert codes(dispatcher, 400.0) == []


def test_a_node_whose_requests_fail_is_named_until_one_succeeds() -> None:
    dispatcher = dispatcher_of(fleet_of(standard("a"), standard("b")))
    for placement in [dispatcher.place(shape(), "r", 0.1, frozenset({"b"})) for _ in range(3)]:
        dispatcher.settle(placement, Outcome(Ending.REFUSED, 500), 0.1)
    assert codes(dispatcher) == [(AdviceCode.NODE_EJECTED, "a")]
    dispatcher.settle(dispatcher.place(shape(), "r", 1.2, frozenset({"b"})), Outcome(Ending.COMPLETED, 200), 1.3)
    dispatcher.report("a", 1.4, 1.4, report(speculating=None))
    assert codes(dispatcher) == []


def test_a_category_under_break_even_is_named() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    credit(dispatcher, "code", 80)
    credit(dispatcher, "chat", 20)
    assert codes(dispatcher) == [(AdviceCode.EXCLUDE_CATEGORY, "chat")]
    credit(dispatcher, "chat", 95, requests=600)
    assert codes(dispatcher) == []


def test_too_little_evidence_is_no_ground_for_advice() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    credit(dispatcher, "chat", 20, requests=40)
    assert codes(dispatcher) == []


def test_a_category_at_its_floor_but_for_chance_is_not_advised_against() -> None:
    """Alpha 0.6 at K = 4 is 1.306 accepted tokens a verify step: 32.6 of 25 steps."""
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    for n in range(60):
        credit(dispatcher, "chat", 31 + (12 if n % 2 else -12), requests=1)
        credit(dispatcher, "math", 25 + (1 if n % 2 else -1), requests=1)
    speculator = Speculator(SpeculatorKind.DRAFT, 4)
    chat = dispatcher.evidence.estimate(MODEL, speculator, "chat").alpha
    assert chat is not None
    assert 0.55 < chat < 0.6
    (found,) = advise(dispatcher, 1.0)
    assert (found.code, found.subject) == (AdviceCode.EXCLUDE_CATEGORY, "math")
    lower, upper = found.evidence["lower"], found.evidence["upper"]
    assert isinstance(lower, float)
    assert isinstance(upper, float)
    assert lower < upper < 0.6
    assert f"math: alpha {found.evidence['value']:.3f} (95 % interval {lower:.3f} to {upper:.3f})" in found.sentence


def test_low_acceptance_everywhere_means_the_draft_is_the_problem() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    for category in ("code", "chat", "math"):
        credit(dispatcher, category, 10)
    assert codes(dispatcher)[0] == (AdviceCode.CHANGE_DRAFT, "fleet")
    assert len(codes(dispatcher)) == 4
    credit(dispatcher, "code", 95, requests=600)
    assert (AdviceCode.CHANGE_DRAFT, "fleet") not in codes(dispatcher)


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
    for n in range(100):
        dispatcher.settle(dispatcher.place(shape("code"), f"i{n}", 0.1), Outcome(Ending.COMPLETED, 200), 0.1)
    assert codes(dispatcher) == []


def test_a_nearly_full_kv_cache_on_a_speculative_node_is_said() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    dispatcher.report("s", 0.5, 0.5, NodeReport(running=1, speculating=True, k=4, kv_use=0.97))
    assert codes(dispatcher) == [(AdviceCode.KV_CACHE_FULL, "s")]
    dispatcher.report("s", 0.6, 0.6, NodeReport(running=1, speculating=True, k=4, kv_use=0.5))
    assert codes(dispatcher) == []


def test_a_speculative_node_without_a_speculator_is_said() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    dispatcher.report("s", 0.5, 0.5, report(speculating=False))
    assert codes(dispatcher) == [(AdviceCode.NO_SPECULATOR, "s")]
    dispatcher.report("s", 0.6, 0.6, report())
    assert codes(dispatcher) == []


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


def test_a_fleet_whose_nodes_all_say_what_can_not_be_read_is_not_blamed_on_the_gateway() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    for name in ("s", "t"):
        dispatcher.report_failed(name, 10.0, EngineGarbage("no page of metrics"))
    assert not dispatcher.fleet.blind
    assert codes(dispatcher) == [(AdviceCode.NODE_UNREADABLE, "s"), (AdviceCode.NODE_UNREADABLE, "t")]
    dispatcher.report_failed("t", 10.1, EngineUnreachable("no answer in time"))
    dispatcher.report("s", 10.1, 10.1, report())
    assert not dispatcher.fleet.blind
    dispatcher.fleet.expire(20.0)
    assert dispatcher.fleet.blind


def test_a_ceiling_above_what_the_engine_takes_is_not_advised() -> None:
    fleet = fleet_of(speculative("s", limit=4), standard("t"))
    for _ in range(4):
        fleet.admit("s", 1, "code", 1.0)
    [found] = advise(dispatcher_of(fleet), 500.0)
    assert found.code is AdviceCode.RAISE_CEILING
    assert "all its engine takes" in found.sentence


def test_a_node_that_queues_or_refuses_without_a_known_limit_is_named_and_one_with_a_limit_is_not() -> None:
    fleet = fleet_of(standard("queues"), standard("refuses"), standard("known", limit=2), standard("calm"))
    for name in ("queues", "known"):
        fleet.report(name, 1.0, 1.0, NodeReport(running=8, waiting=20))
    node = fleet.node("refuses")
    assert node is not None
    fleet.refused(node, 1.0)
    found = {one.subject: one for one in advise(dispatcher_of(fleet), 1.1) if one.code is AdviceCode.LIMIT_UNKNOWN}
    assert found.keys() == {"queues", "refuses"}
    assert found["queues"].evidence == {"found": 8, "limit": 256, "running": 8, "waiting": 20}
    assert "refused requests at 1" in found["refuses"].sentence
    assert "max_in_flight" in found["refuses"].sentence


MEASURED = Calibration("h100.json", "2026-11-30", "vLLM", "0.32.0", MODEL, ("draft-k4",))


def calibrated(running_version: str | None = "0.32.0", k: int | None = 4, calibration: Calibration = MEASURED) -> Fleet:
    specs = [replace(spec, calibration=calibration) for spec in (speculative("s"), standard("t"))]
    fleet = Fleet(specs, 0.0, stale_after_s=1.0)
    for spec in specs:
        drafts = spec.name == "s"
        fleet.report(
            spec.name, 0.0, 0.0, NodeReport(0, speculating=drafts, k=k if drafts else None, version=running_version)
        )
    return fleet


@pytest.mark.parametrize("calibration", [MEASURED, replace(MEASURED, speculators=())], ids=["whole", "no speculator"])
@pytest.mark.parametrize("version", ["0.32.0", None], ids=["same version", "no version said"])
def test_a_calibration_of_what_runs_is_not_stale(calibration: Calibration, version: str | None) -> None:
    assert codes(dispatcher_of(calibrated(version, calibration=calibration))) == []


def test_a_new_version_makes_a_calibration_stale_once_for_all_its_nodes() -> None:
    (found,) = advise(dispatcher_of(calibrated("0.33.0")), 1.0)
    assert (found.code, found.subject) == (AdviceCode.CALIBRATION_STALE, "fleet")
    assert found.sentence.startswith(
        "The calibration of s and 1 other (2026-11-30, h100.json) is older than the fleet: "
    )
    assert "version 0.32.0 became 0.33.0" in found.sentence
    assert found.evidence["nodes"] == 2


def test_another_draft_length_concerns_the_speculative_node_alone() -> None:
    (found,) = advise(dispatcher_of(calibrated(k=3)), 1.0)
    assert found.subject == "s"
    assert "speculator draft-k4 became draft-k3" in found.sentence


def test_another_engine_and_model_are_told_together() -> None:
    other = replace(MEASURED, engine="sglang", model="another", speculators=())
    (found,) = advise(dispatcher_of(calibrated(calibration=other)), 1.0)
    assert "engine sglang became vllm and model another became m" in found.sentence


def test_a_node_that_is_not_there_tells_nothing_of_its_calibration() -> None:
    fleet = calibrated("0.33.0")
    for name in ("s", "s", "t", "t"):
        fleet.report_failed(name, 0.5, EngineUnreachable("gone"))
    assert AdviceCode.CALIBRATION_STALE not in [code for code, _ in codes(dispatcher_of(fleet))]
