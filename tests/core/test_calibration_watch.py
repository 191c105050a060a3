"""What becomes of a node whose calibration no longer holds, and of its ceiling."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleets import MODEL, dispatcher_of, shape, speculative, standard
from slipstream.core.advice import advise, stale_calibrations
from slipstream.core.calibration import Calibration, MeasuredTime, MeasuredTraffic
from slipstream.core.calibration_watch import CalibrationWatch, calibration_summaries, is_outdated
from slipstream.core.dispatch import Dispatcher
from slipstream.core.errors import EngineUnreachable
from slipstream.core.fleet import Fleet
from slipstream.core.latency import Latency
from slipstream.core.node import NodeReport, NodeSpec, Speculator, SpeculatorKind
from slipstream.core.node_state import NodeState
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.overrides import Override, OverrideKind
from slipstream.core.traffic import ONE_IN

MEASURED = Calibration(
    "p.json",
    "2026-11-30",
    "vllm",
    "1",
    MODEL,
    ("draft-k4",),
    hardware="1x H100",
    replicas=1,
    system_fingerprints=("vllm-1-aa", "vllm-1-bb"),
    times=(MeasuredTime(0, 1, 0.020, 0.019, 0.021), MeasuredTime(4, 1, 0.010, 0.009, 0.011)),
    traffic=MeasuredTraffic((("code", 1.0),), 100.0, 100.0),
)
SPEC = replace(speculative("s", ceiling=12), calibration=MEASURED)


def running(*specs: NodeSpec, version: str = "1", replicas: int | None = None) -> tuple[Dispatcher, CalibrationWatch]:
    fleet = Fleet(specs or (SPEC,), 0.0, stale_after_s=1e9)
    dispatcher = dispatcher_of(fleet)
    for node in fleet.nodes():
        report(dispatcher, node, version=version, replicas=replicas)
    return dispatcher, CalibrationWatch(dispatcher)


def report(
    dispatcher: Dispatcher, node: NodeState, *, version: str = "1", k: int = 4, replicas: int | None = None
) -> None:
    drafts = node.spec.name.startswith("s")
    told = NodeReport(0, speculating=drafts, k=k if drafts else None, version=version, replicas=replicas)
    dispatcher.report(node.name, 0.0, 0.0, told)


def node_of(dispatcher: Dispatcher, name: str = "s") -> NodeState:
    node = dispatcher.fleet.node(name)
    assert node is not None
    return node


def serve(dispatcher: Dispatcher, tpot_s: float, requests: int, name: str = "s") -> None:
    """Answers, one after another."""
    state = node_of(dispatcher, name)
    for n in range(requests):
        placement = dispatcher.place(shape("code", pinned_pool=state.pool), f"r{n}", float(n))
        latency = Latency(0.0, tpot_s * (1 + n % 3 / 100), 1.0)
        dispatcher.settle(placement, Outcome(Ending.COMPLETED, 200, latency, 75, 50), n + 0.5)


def look(dispatcher: Dispatcher, watch: CalibrationWatch, *, falls_back: bool = True) -> list[str]:
    """The nodes whose verdict changed."""
    return [node.name for node in watch.begin() if watch.look(node, 100.0, falls_back=falls_back)]


def test_times_that_left_the_profile_take_its_ceiling_and_times_that_return_give_it_back() -> None:
    dispatcher, watch = running()
    node = node_of(dispatcher)
    look(dispatcher, watch)
    serve(dispatcher, 0.010, 60)
    assert (look(dispatcher, watch), node.ceiling, advise(dispatcher, 1.0)) == ([], 12, [])
    serve(dispatcher, 0.030, 200)
    assert (look(dispatcher, watch), node.ceiling) == (["s"], 8)
    (told,) = advise(dispatcher, 1.0)
    assert "(2026-11-30, p.json) no longer holds: time per token at 1 sequence is" in told.sentence
    assert "Its ceiling is 8 for as long." in told.sentence
    assert told.evidence["departed"] == "time per token at 1 sequence"
    serve(dispatcher, 0.010, 600)
    assert (look(dispatcher, watch), node.ceiling, advise(dispatcher, 1.0)) == (["s"], 12, [])


def test_what_is_told_to_keep_its_ceiling_keeps_it_and_gets_it_back_when_told_so() -> None:
    dispatcher, watch = running(version="2")
    node = node_of(dispatcher)
    assert (look(dispatcher, watch, falls_back=False), node.ceiling) == (["s"], 12)
    assert (look(dispatcher, watch), node.ceiling) == ([], 8)
    assert (look(dispatcher, watch, falls_back=False), node.ceiling) == ([], 12)


@pytest.mark.parametrize("ceiling", [4, 12])
def test_the_default_is_neither_more_nor_less_than_8_nor_more_than_an_engine_takes(ceiling: int) -> None:
    few = replace(SPEC, name="s-few", url="http://few:1", ceiling=ceiling, max_in_flight=6)
    dispatcher, watch = running(replace(SPEC, ceiling=ceiling), few, version="2")
    look(dispatcher, watch)
    assert (node_of(dispatcher).ceiling, node_of(dispatcher, "s-few").ceiling) == (8, 6)


def test_a_measured_override_rests_too_and_one_by_hand_does_not() -> None:
    dispatcher, watch = running()
    node = node_of(dispatcher)
    pool = Override(OverrideKind.POOL_CEILING, "speculative", 20, measured=True)
    dispatcher.override(pool, 1.0)
    look(dispatcher, watch)
    assert node.ceiling == 20
    report(dispatcher, node, version="2")
    look(dispatcher, watch)
    assert node.ceiling == 8
    dispatcher.override(replace(pool, value=24), 2.0)
    assert node.ceiling == 8, "measured on what no longer runs"
    dispatcher.override(replace(pool, value=16, measured=False), 3.0)
    assert node.ceiling == 16
    dispatcher.override(Override(OverrideKind.NODE_CEILING, "s", 10, measured=True), 4.0)
    assert node.ceiling == 16, "the pool's stands in for the node's that rests"
    report(dispatcher, node)
    look(dispatcher, watch)
    assert node.ceiling == 10


def test_another_profile_starts_anew_and_none_ends_it() -> None:
    dispatcher, watch = running()
    node = node_of(dispatcher)
    look(dispatcher, watch)
    serve(dispatcher, 0.030, 80)
    assert look(dispatcher, watch) == ["s"]
    slower = replace(MEASURED, file="q.json", times=(MeasuredTime(4, 1, 0.030, 0.028, 0.032),))
    dispatcher.fleet.reconfigure(replace(SPEC, calibration=slower), 2.0)
    assert not is_outdated(node)
    look(dispatcher, watch)
    assert (node.ceiling, node.recheck.stale) == (12, False)
    dispatcher.fleet.reconfigure(replace(SPEC, calibration=None), 3.0)
    look(dispatcher, watch)
    assert node.recheck.traffic is None
    assert [one.ratio for one in node.recheck.learned] == [None]
    assert node.recheck.ratio is None


def test_a_verdict_waits_for_a_node_that_can_not_be_reached() -> None:
    dispatcher, watch = running(version="2")
    look(dispatcher, watch)
    for _ in range(2):
        dispatcher.report_failed("s", 1.0, EngineUnreachable("gone"))
    node_of(dispatcher).recheck.fingerprint.saw("vllm-9-cc")
    assert look(dispatcher, watch) == []
    assert node_of(dispatcher).recheck.stale
    assert stale_calibrations(dispatcher.fleet.nodes()) == []


def test_a_node_that_has_left_is_not_looked_at() -> None:
    dispatcher, watch = running(version="2")
    (node,) = watch.begin()
    dispatcher.remove("s")
    assert not watch.look(node, 1.0, falls_back=True)
    dispatcher.suspend("s", 1.0, suspended=True)
    assert dispatcher.fleet.node("s") is None


def test_what_became_of_a_ceiling_is_seen_in_the_explanation_of_a_decision() -> None:
    dispatcher, watch = running()
    before = dispatcher.place(shape("code"), "before", 1.0)
    report(dispatcher, node_of(dispatcher), version="2")
    look(dispatcher, watch)
    after = dispatcher.place(shape("code"), "after", 2.0)
    for placement, ceiling in ((before, 12), (after, 8)):
        found = dispatcher.candidates(placement)
        assert found is not None
        assert [(one.ceiling, one.fallen_back) for one in found] == [(ceiling, ceiling == 8)]


@pytest.mark.parametrize(
    ("spec", "replicas", "fingerprint", "change"),
    [
        (SPEC, 2, None, "replicas 1 became 2"),
        (replace(SPEC, replicas=1), 2, None, ""),
        (replace(SPEC, replicas=3), None, None, "replicas 1 became 3"),
        (replace(SPEC, hardware="1x H200"), None, None, "hardware 1x H100 became 1x H200"),
        (replace(SPEC, hardware="1x H100"), 1, "vllm-1-bb", ""),
        (SPEC, None, "vllm-1-cc", "system_fingerprint vllm-1-aa or vllm-1-bb became vllm-1-cc"),
        (replace(SPEC, calibration=replace(MEASURED, system_fingerprints=(), replicas=None)), 2, "x", ""),
    ],
)
def test_hardware_replicas_and_fingerprint_are_compared_where_both_say_them(
    spec: NodeSpec, replicas: int | None, fingerprint: str | None, change: str
) -> None:
    dispatcher, watch = running(spec, replicas=replicas)
    node_of(dispatcher).recheck.fingerprint.saw(fingerprint)
    look(dispatcher, watch)
    assert node_of(dispatcher).recheck.change == change


def test_a_standard_node_is_held_against_the_times_without_drafts() -> None:
    dispatcher, watch = running(replace(standard("t"), calibration=MEASURED))
    look(dispatcher, watch)
    serve(dispatcher, 0.040, 60, "t")
    look(dispatcher, watch)
    (told,) = advise(dispatcher, 1.0)
    assert "time per token at 1 sequence is 40" in told.sentence
    assert "ceiling" not in told.sentence


@pytest.mark.parametrize(("ks", "known"), [((4,), True), ((4, 6), False), ((), False)])
def test_where_the_draft_length_varies_the_only_one_measured_is_meant(ks: tuple[int, ...], known: bool) -> None:
    times = tuple(MeasuredTime(k, 1, 0.010, 0.010, 0.010) for k in (0, *ks))
    ngram = replace(
        SPEC, speculator_kind=SpeculatorKind.NGRAM, calibration=replace(MEASURED, speculators=("ngram",), times=times)
    )
    dispatcher, watch = running(ngram)
    assert node_of(dispatcher).speculator == Speculator(SpeculatorKind.NGRAM)
    serve(dispatcher, 0.010, 10)
    look(dispatcher, watch)
    (learned,) = node_of(dispatcher).recheck.learned
    assert (learned.expected is not None) is known
    ratio = node_of(dispatcher).recheck.ratio
    assert ratio == (pytest.approx(1.0, rel=0.03) if known else None)


def test_profiles_in_use_are_told_with_the_traffic_of_their_nodes() -> None:
    specs = [SPEC, replace(SPEC, name="s2", url="http://s2:1", hardware="other"), standard("t")]
    dispatcher, watch = running(*specs)
    look(dispatcher, watch)
    serve(dispatcher, 0.010, 2 * ONE_IN)
    (found,) = calibration_summaries(dispatcher.fleet.nodes())
    assert (found.file, found.nodes, found.stale, found.answers) == ("p.json", 2, 1, 2)
    assert found.mix_distance == pytest.approx(0.0)
    assert found.prompt_tokens == pytest.approx(75, rel=0.03)
    other = replace(SPEC, calibration=None)
    dispatcher.fleet.reconfigure(other, 2.0)
    dispatcher.fleet.reconfigure(replace(other, name="s2", url="http://s2:1"), 2.0)
    assert watch.begin() != []
    assert calibration_summaries(dispatcher.fleet.nodes()) == []
