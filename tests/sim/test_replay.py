"""Recorded traffic under other policies: what the simulator itself recorded comes out as it went in."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from recordings import Line, write, write_run
from slipstream.core.request import Pool, TrafficClass
from slipstream.sim.bound import BoundResult
from slipstream.sim.intervals import PolicyResult
from slipstream.sim.measures import measure
from slipstream.sim.recorded import RecordedTraffic, read_traffic
from slipstream.sim.replay import Replay, replay, replay_as_json
from slipstream.sim.scenario import Category, Policy, PolicyKind, Scenario, Target
from slipstream.sim.simulate import simulate
from slipstream.telemetry.recording import RecordedShape
from tiny_scenarios import group, plan_of, scenario

TARGET = Target(ttft_s=0.5, tpot_s=0.012)
STANDARD = Policy("all-standard", PolicyKind.ALL_STANDARD)
SPECULATIVE = Policy("all-speculative", PolicyKind.ALL_SPECULATIVE)
LISTS = Policy("lists", PolicyKind.SPLIT_LISTS, speculative_categories=frozenset({"code"}))
BOUND = Policy("bound", PolicyKind.BOUND)
TRUTH = (Category("code", (0.8, 0.64, 0.51), spread=0.08), Category("chat", (0.3, 0.1, 0.03)))


def fleet(*policies: Policy, target: Target = TARGET) -> Scenario:
    """Whose own traffic is what is recorded."""
    plan = plan_of(
        [index / 20.0 for index in range(400)],
        output_tokens=[30, 50] * 200,
        categories=("code", "chat"),
        category=[0, 1] * 200,
    )
    groups = (group("spec", 2, slots=16, k=3), group("std", 2, Pool.STANDARD, slots=16, k=3))
    return scenario(plan, groups, target=target, categories=TRUTH, policies=policies, seeds=(1, 2), window_s=20.0)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of code on speculative nodes and chat on standard ones."""
    return write_run(tmp_path_factory.mktemp("recording") / "decisions.jsonl", simulate(fleet(LISTS), LISTS, 7))


def traffic_of(path: Path) -> RecordedTraffic:
    return read_traffic([path], models=("m",), draft_length=3)


@pytest.fixture(scope="module")
def replayed(recording: Path) -> Replay:
    return replay(fleet(LISTS, SPECULATIVE, STANDARD, BOUND), traffic_of(recording))


def test_what_was_recorded_is_found_in_the_recording(recording: Path) -> None:
    run = simulate(fleet(LISTS), LISTS, 7)
    own = measure(run, fleet().targets, window=(0.0, 20.0)).requests
    found = replay(fleet(LISTS), traffic_of(recording)).measured.requests
    assert found.offered == own.offered == 400.0
    assert found.goodput == pytest.approx(own.goodput, rel=0.01)
    assert found.tpot.mean == pytest.approx(own.tpot.mean, rel=1e-6)


@pytest.mark.no_cover
def test_the_same_routing_simulated_gives_what_was_measured(replayed: Replay) -> None:
    measured, simulated = replayed.measured.requests, replayed.simulated.mean.requests
    assert measured.e2e.mean is not None
    assert simulated.e2e.mean == pytest.approx(measured.e2e.mean, rel=0.05)
    assert simulated.tpot.mean == pytest.approx(measured.tpot.mean, rel=0.05)
    assert simulated.goodput == pytest.approx(measured.goodput, rel=0.05)
    for name, code in (("code standard", 0.0), ("code speculative", 200.0)):
        assert replayed.simulated.mean.categories[name].offered == code


@pytest.mark.no_cover
def test_what_never_speculated_is_an_interval_and_what_did_almost_none(replayed: Replay) -> None:
    lists, speculative, standard, bound = replayed.policies

    def tpot(result: PolicyResult | BoundResult, category: str) -> float:
        assert isinstance(result, PolicyResult)
        mean = result.mean.categories[category].tpot.mean
        assert mean is not None
        return mean

    assert tpot(standard.low, "code") == pytest.approx(tpot(standard.high, "code"))
    assert tpot(lists.low, "code") == pytest.approx(tpot(lists.high, "code"), rel=0.1)
    assert tpot(speculative.low, "chat") > 1.5 * tpot(speculative.high, "chat")
    truth = simulate(fleet(SPECULATIVE), SPECULATIVE, 3)
    real = measure(truth, fleet().targets, window=(0.0, 20.0)).requests
    low, high = speculative.goodput
    assert low <= real.goodput <= high
    assert isinstance(bound.low, BoundResult)
    assert bound.low.goodput >= lists.goodput[1] - 1e-6


@pytest.mark.no_cover
def test_recorded_traffic_can_be_placed_by_what_is_foretold(recording: Path) -> None:
    predictive = Policy("predictive", PolicyKind.PREDICTIVE)
    ((low, high),) = (
        (one.low, one.high) for one in replay(replace(fleet(predictive), seeds=(1,)), traffic_of(recording)).policies
    )
    assert isinstance(low, PolicyResult)
    assert isinstance(high, PolicyResult)
    assert low.mean.reasons.get("speculative", 0.0) > 0.3
    assert high.mean.requests.goodput >= low.mean.requests.goodput > 0.0


@pytest.mark.no_cover
def test_json_has_both_ends_and_what_is_known(recording: Path, replayed: Replay) -> None:
    found = json.loads(json.dumps(replay_as_json(replayed, traffic_of(recording)), allow_nan=False))
    assert [policy["name"] for policy in found["policies"]] == ["lists", "all-speculative", "all-standard", "bound"]
    for policy in found["policies"]:
        assert policy["goodput"] == sorted((policy["low"]["goodput"], policy["high"]["goodput"]))
    assert found["acceptance"]["chat"]["interval"] is None
    assert found["acceptance"]["code"]["requests"] == 200
    assert found["recording"]["requests"] == 400
    assert found["measured"]["name"] == "recorded"


def test_a_warm_up_takes_a_quarter_of_the_recording_at_most(recording: Path) -> None:
    made = replace(fleet(STANDARD), warm_up_s=1000.0, seeds=(1,))
    found = replay(made, traffic_of(recording))
    assert found.measured.requests.offered == found.simulated.mean.requests.offered
    assert found.measured.requests.offered == pytest.approx(300.0, abs=2.0)


def test_acceptance_that_leaves_no_room_for_its_spread_is_taken_with_less(tmp_path: Path) -> None:
    """Half of the requests had everything accepted, half of them nothing; and bulk of another category none at all."""
    lines = [
        Line(arrival_s=row / 10.0, drafted=90, accepted=90 * (row % 2), verify_steps=30, output_tokens=40)
        for row in range(40)
    ]
    shape = RecordedShape("m", "batch", TrafficClass.BULK)
    lines += [Line(arrival_s=4.0, shape=shape, accepted=0), Line(arrival_s=4.1, shape=shape, accepted=0)]
    traffic = traffic_of(write(tmp_path / "decisions.jsonl", lines))
    found = replay(replace(fleet(SPECULATIVE), seeds=(1,)), traffic)
    assert traffic.acceptance["code"].spread > 0.2
    low = found.policies[0].low
    assert isinstance(low, PolicyResult)
    assert low.mean.requests.finished == 42.0


def test_a_recording_of_one_request_is_counted_over_a_second(tmp_path: Path) -> None:
    path = write(tmp_path / "one.jsonl", [Line()])
    found = replay(fleet(BOUND, target=Target()), traffic_of(path))
    assert found.measured.requests.offered == 1
    assert found.policies[0].goodput == pytest.approx((1.0, 1.0))
