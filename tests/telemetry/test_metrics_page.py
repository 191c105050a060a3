"""The metrics page says what is known, and nothing else."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fleets import MODEL, dispatcher_of, fleet_of, report, shape, speculative, standard
from slipstream.core.acceptance import SpeculationSample
from slipstream.core.dispatch import Dispatcher
from slipstream.core.errors import AllFull, InvalidBody
from slipstream.core.latency import Latency
from slipstream.core.node import NodeReport, SpeculativeCounters
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.policy import Reason
from slipstream.core.request import Pool
from slipstream.telemetry import FleetCollector, Instruments, render
from slipstream.telemetry.metric import LOST_LINES, Reading
from slipstream.telemetry.snapshot import DECISION_REASONS

Page = dict[tuple[str, tuple[tuple[str, str], ...]], float]

ANSWERED = Outcome(Ending.COMPLETED, 200, Latency(0.1, 0.02, 1.0), 10, 64, SpeculationSample(100, 60, 25, 64))


def page_of(dispatcher: Dispatcher, instruments: Instruments | None = None, now: float = 0.5) -> Page:
    collector = FleetCollector(dispatcher, instruments or Instruments(), ["code", "chat"], lambda: now, lambda: 0.002)
    families = text_string_to_metric_families(render(collector.snapshot()).decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def node(page: Page, name: str, node_name: str) -> float | None:
    values = [v for (metric, labels), v in page.items() if metric == name and ("node", node_name) in labels]
    return values[0] if values else None


def value(page: Page, name: str, **labels: str) -> float | None:
    return page.get((name, tuple(sorted(labels.items()))))


def serve(dispatcher: Dispatcher, instruments: Instruments, outcome: Outcome, category: str = "code") -> None:
    placement = dispatcher.place(shape(category), "r", 0.1)
    dispatcher.settle(placement, outcome, 0.2)
    instruments.finished(placement, outcome, 0.2)
    instruments.decided(5e-6)


def test_series_of_every_pool_reason_and_ending_are_there_from_the_start() -> None:
    page = page_of(dispatcher_of(fleet_of(speculative("s"), standard("t"))))
    for category in ("code", "chat"):
        for pool, reasons in DECISION_REASONS.items():
            for reason in reasons:
                assert value(page, "slipstream_requests_total", pool=pool, reason=reason, category=category) == 0
        for ending in Ending:
            assert value(page, "slipstream_request_endings_total", ending=ending, category=category) == 0
        assert value(page, "slipstream_category_drafted_tokens_total", category=category) == 0
        for pool in Pool:
            assert value(page, "slipstream_output_tokens_total", pool=pool, category=category) == 0
            for name in ("ttft", "tpot", "e2e"):
                count = value(page, f"slipstream_{name}_seconds_count", pool=pool, category=category)
                assert count == 0, "rate() loses the first answer of a series that begins with it"
    assert value(page, "slipstream_rejected_requests_total", error="AllFull") == 0


def test_what_no_decision_can_say_has_no_series_in_advance() -> None:
    possible = {reason for reasons in DECISION_REASONS.values() for reason in reasons}
    assert set(Reason) - possible == {Reason.WRONG_MODEL}


def test_requests_are_counted_by_pool_reason_and_category_and_ending() -> None:
    dispatcher, instruments = dispatcher_of(fleet_of(speculative("s"), standard("t"))), Instruments()
    serve(dispatcher, instruments, ANSWERED)
    serve(dispatcher, instruments, Outcome(Ending.CLIENT_GONE), "chat")
    page = page_of(dispatcher, instruments)
    assert value(page, "slipstream_requests_total", pool="speculative", reason="speculative", category="code") == 1
    assert value(page, "slipstream_requests_total", pool="standard", reason="below_floor", category="chat") == 1
    assert value(page, "slipstream_request_endings_total", ending="completed", category="code") == 1
    assert value(page, "slipstream_request_endings_total", ending="client_gone", category="chat") == 1


def test_latencies_count_by_pool_and_category() -> None:
    dispatcher, instruments = dispatcher_of(fleet_of(speculative("s"), standard("t"))), Instruments()
    serve(dispatcher, instruments, ANSWERED)
    serve(dispatcher, instruments, Outcome(Ending.COMPLETED, 200, Latency(None, None, 4.0)))
    serve(dispatcher, instruments, Outcome(Ending.UPSTREAM_LOST), "chat")
    page = page_of(dispatcher, instruments)
    where = {"pool": "speculative", "category": "code"}
    assert value(page, "slipstream_ttft_seconds_count", **where) == 1
    assert value(page, "slipstream_ttft_seconds_bucket", le="0.1", **where) == 1
    assert value(page, "slipstream_ttft_seconds_bucket", le="0.05", **where) == 0
    assert value(page, "slipstream_tpot_seconds_sum", **where) == pytest.approx(0.02)
    assert value(page, "slipstream_e2e_seconds_count", **where) == 2
    assert value(page, "slipstream_e2e_seconds_sum", **where) == 5
    assert value(page, "slipstream_e2e_seconds_count", pool="standard", category="chat") == 0
    assert value(page, "slipstream_output_tokens_total", **where) == 64
    assert value(page, "slipstream_prompt_tokens_total", **where) == 10
    assert value(page, "slipstream_decision_seconds_bucket", le="8e-06") == 3
    assert value(page, "slipstream_decision_seconds_bucket", le="+Inf") == 3


def test_refusals_are_counted_by_error() -> None:
    instruments = Instruments()
    instruments.rejected(InvalidBody("no"), "/v1/chat/completions", 0.0)
    instruments.rejected(AllFull("no"), "/x" * 500, 0.0)
    page = page_of(dispatcher_of(fleet_of(standard("t"))), instruments)
    assert value(page, "slipstream_rejected_requests_total", error="InvalidBody") == 1
    assert value(page, "slipstream_rejected_requests_total", error="AllFull") == 1
    assert not [labels for _, labels in page if any("/x" in text for _, text in labels)]


def test_a_node_that_never_reported_has_no_figures_but_its_own() -> None:
    page = page_of(dispatcher_of(fleet_of(speculative("s"), report_all=False)))
    for name in ("occupancy_sequences", "foreign_sequences", "capacity_left_sequences", "report_age_seconds"):
        assert node(page, f"slipstream_node_{name}", "s") is None
    assert node(page, "slipstream_node_drafted_tokens_total", "s") is None
    assert node(page, "slipstream_node_tau_tokens", "s") is None
    assert node(page, "slipstream_node_healthy", "s") == 0
    assert node(page, "slipstream_node_eligible", "s") == 0
    assert node(page, "slipstream_node_own_sequences", "s") == 0


def test_a_node_whose_gauge_vanished_is_unknown_not_idle() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s")))
    dispatcher.report("s", 0.1, 0.1, NodeReport(speculating=True, k=4))
    page = page_of(dispatcher)
    assert node(page, "slipstream_node_occupancy_sequences", "s") is None
    assert node(page, "slipstream_node_capacity_left_sequences", "s") is None
    assert node(page, "slipstream_node_healthy", "s") == 1
    assert node(page, "slipstream_node_fresh", "s") == 0


def test_a_node_shows_what_it_reported() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t", limit=10)))
    counters = SpeculativeCounters(drafted=400, accepted=220, verify_steps=100)
    dispatcher.report("s", 0.1, 0.2, NodeReport(9, 2, 0.5, None, True, 4, counters=counters))
    dispatcher.report("t", 0.1, 0.2, report(3, speculating=False))
    page = page_of(dispatcher)
    assert node(page, "slipstream_node_occupancy_sequences", "s") == 11
    assert node(page, "slipstream_node_foreign_sequences", "s") == 11
    assert node(page, "slipstream_node_waiting_sequences", "s") == 2
    assert node(page, "slipstream_node_capacity_left_sequences", "s") == 0
    assert node(page, "slipstream_node_capacity_left_sequences", "t") == 7
    assert node(page, "slipstream_node_ceiling_sequences", "s") == 8
    assert node(page, "slipstream_node_ceiling_sequences", "t") is None
    assert node(page, "slipstream_node_saturated", "s") == 1
    assert node(page, "slipstream_node_saturated", "t") is None
    assert node(page, "slipstream_node_saturation_events_total", "s") == 1
    assert node(page, "slipstream_node_eligible", "s") == 0
    assert node(page, "slipstream_node_eligible", "t") == 1
    assert node(page, "slipstream_node_kv_use_ratio", "s") == 0.5
    assert node(page, "slipstream_node_drafted_tokens_total", "s") == 400
    assert node(page, "slipstream_node_accepted_tokens_total", "s") == 220
    assert node(page, "slipstream_node_verify_steps_total", "s") == 100
    assert node(page, "slipstream_node_report_age_seconds", "s") == pytest.approx(0.3)
    assert value(page, "slipstream_event_loop_lag_seconds") == 0.002
    assert value(page, "slipstream_fleet_blind") == 0


def test_a_category_shows_acceptance_once_it_was_measured() -> None:
    dispatcher, instruments = dispatcher_of(fleet_of(speculative("s"), standard("t"))), Instruments()
    assert value(page_of(dispatcher), "slipstream_category_alpha_ratio", category="code") is None
    for accepted in (60, 70, 50):
        sample = SpeculationSample(100, accepted, 25, accepted + 26)
        serve(dispatcher, instruments, Outcome(Ending.COMPLETED, 200, None, None, None, sample))
    page = page_of(dispatcher, instruments)
    assert value(page, "slipstream_category_tau_tokens", category="code") == pytest.approx(1 + 180 / 75)
    alpha = value(page, "slipstream_category_alpha_ratio", category="code")
    lower = value(page, "slipstream_category_alpha_lower_ratio", category="code")
    upper = value(page, "slipstream_category_alpha_upper_ratio", category="code")
    assert alpha is not None
    assert lower is not None
    assert upper is not None
    assert lower < alpha < upper
    assert value(page, "slipstream_category_drafted_tokens_total", category="code") == 300
    assert value(page, "slipstream_category_accepted_tokens_total", category="code") == 180
    assert value(page, "slipstream_category_evidence_requests_total", category="code") == 3
    assert value(page, "slipstream_category_alpha_ratio", category="chat") is None
    assert node(page, "slipstream_node_tau_tokens", "s") == pytest.approx(1 + 180 / 75)


def test_series_of_a_removed_node_vanish() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    dispatcher.fleet.remove("s")
    assert not [labels for _, labels in page_of(dispatcher) if ("node", "s") in labels]


def test_a_fleet_whose_nodes_are_all_stale_is_blind() -> None:
    dispatcher = dispatcher_of(fleet_of(standard("s"), standard("t")))
    dispatcher.fleet.expire(100.0)
    assert value(page_of(dispatcher, now=100.0), "slipstream_fleet_blind") == 1


def test_an_unknown_loop_lag_has_no_sample() -> None:
    collector = FleetCollector(
        dispatcher_of(fleet_of(standard("t"))), Instruments(), ["code"], lambda: 0.5, lambda: None
    )
    assert b"\nslipstream_event_loop_lag_seconds " not in render(collector.snapshot())


def test_what_other_parts_count_is_read_when_the_page_is_asked_for() -> None:
    lost: dict[tuple[str, ...], float] = {("access",): 0.0, ("recording",): 0.0}
    collector = FleetCollector(
        dispatcher_of(fleet_of(standard("t"))),
        Instruments(),
        ["code"],
        lambda: 0.5,
        lambda: None,
        [Reading(LOST_LINES, lambda: lost)],
    )
    assert b'\nslipstream_lost_lines_total{log="access"} 0.0\n' in render(collector.snapshot())
    lost["access",] = 3.0
    assert b'\nslipstream_lost_lines_total{log="access"} 3.0\n' in render(collector.snapshot())


def test_names_carry_their_unit_and_are_all_ours() -> None:
    units = ("_total", "_seconds", "_ratio", "_sequences", "_tokens", "_bucket", "_count", "_sum")
    states = ("healthy", "fresh", "eligible", "saturated", "blind", "circuit_state")
    names = {name for name, _ in page_of(dispatcher_of(fleet_of(speculative("s"), standard("t"))))}
    assert [name for name in names if not name.startswith("slipstream_") or not name.endswith(units + states)] == []
    assert MODEL not in names
    assert {Pool.SPECULATIVE, Pool.STANDARD} == set(DECISION_REASONS)
