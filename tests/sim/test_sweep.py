"""A grid of runs, in this process and in others."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from process_life import wait_until_gone
from slipstream.core.errors import SlipstreamError
from slipstream.costmodel.profiles import TableCosts
from slipstream.costmodel.steps import step_rows
from slipstream.enginemodel.settings import EngineSettings
from slipstream.sim.bound import BoundResult
from slipstream.sim.intervals import PolicyResult
from slipstream.sim.scenario import Policy, PolicyKind, Scenario, Target
from slipstream.sim.sweep import Point, PointResult, Progress, Trial, TrialFailed, collect, points_of, run_trials, sweep
from tiny_scenarios import PROVENANCE, group, plan_of, scenario

FLEET_16 = Path(__file__).parents[2] / "examples" / "fleet-16.yaml"
STANDARD = Policy("all-standard", PolicyKind.ALL_STANDARD)
THRESHOLD = Policy("threshold", PolicyKind.THRESHOLD)
BOUND = Policy("bound", PolicyKind.BOUND)


def build(values: Mapping[str, float]) -> Scenario:
    nodes, rate = int(values.get("nodes", 1)), values.get("rate", 4.0)
    plan = plan_of([index / rate for index in range(int(4 * rate))])
    made = scenario(plan, (group(count=nodes),), target=Target(e2e_s=1.0), window_s=4.0, seeds=(1, 2))
    return replace(made, policies=(THRESHOLD, STANDARD, BOUND))


def unrunnable(values: Mapping[str, float]) -> Scenario:
    """No node speculates, and a policy wants all to."""
    made = build(values)
    bare = replace(made.groups[0], speculative=None)
    return replace(made, groups=(bare,), policies=(Policy("all-speculative", PolicyKind.ALL_SPECULATIVE),))


def unmeasured(values: Mapping[str, float]) -> Scenario:
    """A table of single sequences, and four slots."""
    made = build(values)
    costs = TableCosts(PROVENANCE, {0: ((1.0, 0.01), (1.5, 0.01))})
    standard = replace(made.groups[0].standard, rows=step_rows(costs))
    return replace(made, groups=(replace(made.groups[0], standard=standard),), policies=(STANDARD,))


def broken(values: Mapping[str, float]) -> Scenario:
    """Its plan has a category that nobody knows."""
    return replace(build(values), categories=())


def goodputs(results: list[PointResult]) -> list[list[float]]:
    return [
        [
            policy.mean.requests.goodput if isinstance(policy, PolicyResult) else policy.goodput
            for policy in one.policies
        ]
        for one in results
    ]


def test_a_grid_is_every_combination() -> None:
    assert points_of({"rate": [1.0, 2.0], "k": [3.0]}) == [{"rate": 1.0, "k": 3.0}, {"rate": 2.0, "k": 3.0}]
    assert points_of({}) == [{}]


def test_every_policy_and_seed_of_every_point_is_run() -> None:
    results = sweep(build, {"rate": [30.0], "nodes": [1.0, 2.0]})
    assert [result.point.values for result in results] == points_of({"rate": [30.0], "nodes": [1.0, 2.0]})
    for result in results:
        assert [(policy.policy, policy.seeds) for policy in result.policies] == [
            ("threshold", 2),
            ("all-standard", 2),
            ("bound", 2),
        ]
        assert [trial.seed for trial in result.runs["threshold"]] == [1, 2]
        bound = result.policies[2]
        assert isinstance(bound, BoundResult)
        for policy in result.policies[:2]:
            assert isinstance(policy, PolicyResult)
            assert policy.mean.requests.goodput <= bound.goodput + 1e-6
    assert goodputs(results)[0][0] < goodputs(results)[1][0]
    curves = results[0].runs["threshold"][0].curves
    assert curves is not None
    assert len(curves.ttft_s) == 201
    assert list(curves.e2e_s) == sorted(curves.e2e_s)


def test_other_processes_find_the_same() -> None:
    told: list[Progress] = []
    grid = {"rate": [30.0]}
    apart = sweep(build, grid, jobs=2, progress=told.append)
    assert goodputs(apart) == goodputs(sweep(build, grid))
    assert told[-1].done == 1.0
    assert [one.done for one in told] == sorted(one.done for one in told)
    assert not multiprocessing.active_children()


def test_a_run_that_can_not_be_says_which_it_was() -> None:
    with pytest.raises(TrialFailed, match=r"^rate=4, policy all-speculative, seed 1: .*speculat"):
        sweep(unrunnable, {"rate": [4.0]})
    with pytest.raises(TrialFailed, match=r"^rate=30, policy all-standard, seed 1: .*batch size"):
        sweep(unmeasured, {"rate": [30.0]})


def test_an_error_that_nobody_expected_says_which_run_it_was_too() -> None:
    with pytest.raises(TrialFailed, match=r"^rate=4, policy \S+, seed [12]: .*code"):
        sweep(broken, {"rate": [4.0]}, jobs=2)
    assert not multiprocessing.active_children()


def test_a_scenario_that_can_not_be_is_refused_before_any_is_run() -> None:
    def refuses(values: Mapping[str, float]) -> Scenario:
        if values["rate"] > 5.0:
            raise SlipstreamError("no such rate")
        return broken(values)

    with pytest.raises(SlipstreamError, match="no such rate"):
        sweep(refuses, {"rate": [4.0, 6.0]})


def test_who_stops_listening_leaves_no_process_behind() -> None:
    points = [Point({}, build({"rate": 60.0}))]
    trials = run_trials(points, jobs=2)
    assert isinstance(next(trials), Trial)
    trials.close()  # type: ignore[attr-defined] # a generator
    deadline = time.monotonic() + 30
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.02)  # who has been told to end needs a moment for it
    assert not multiprocessing.active_children()


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    words = ["simulate", str(FLEET_16), "--jobs", "2", "--seeds", "9"]
    command, left_behind = [sys.executable, "-m", "slipstream", *words], {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=left_behind) as parent:
        try:
            deadline = time.monotonic() + 30
            while len(workers := children_of(parent.pid)) < 3:  # two, and what tracks their semaphores
                assert time.monotonic() < deadline
                time.sleep(0.02)
        finally:
            parent.kill()
    assert all(wait_until_gone(worker) for worker in workers)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_trials_are_put_in_order_whatever_order_they_come_in() -> None:
    points = [Point({}, build({}))]
    trials = list(run_trials(points))
    assert goodputs(collect(points, reversed(trials))) == goodputs(collect(points, trials))


def test_progress_says_how_long_it_will_still_take() -> None:
    told: list[Progress] = []
    ticks = iter(range(1000))
    made = replace(build({}), policies=(THRESHOLD, STANDARD))
    list(run_trials([Point({}, made)], progress=told.append, clock=lambda: float(next(ticks))))
    assert told[-1].done == 1.0
    assert told[-1].left_s == 0.0
    half = next(one for one in told if one.done == 0.5)
    assert half.left_s == pytest.approx(half.elapsed_s)


def test_there_is_at_least_one_job() -> None:
    with pytest.raises(ValueError, match="at least one job"):
        list(run_trials([Point({}, build({}))], jobs=0))


def test_an_engine_without_room_for_anything_is_not_run() -> None:
    """What the policies' equipment can not hold is refused a request at a time: none finishes, nothing fails."""
    made = build({})
    tiny = replace(made.groups[0].standard, settings=EngineSettings(slots=1, kv_tokens=16))
    point = Point({}, replace(made, groups=(replace(made.groups[0], standard=tiny),), policies=(STANDARD,), seeds=(1,)))
    (trial,) = run_trials([point])
    assert trial.measures is not None
    assert trial.measures.requests.finished == 0.0
    assert trial.curves is not None
    assert trial.curves.e2e_s == ()
