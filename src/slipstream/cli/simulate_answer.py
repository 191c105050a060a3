"""What ``slipstream simulate`` has found, as one document: what ``--json`` prints and the tables are made from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slipstream.cli.simulate_runs import Runs
from slipstream.sim.report import document
from slipstream.sim.scenario import Scenario
from slipstream.sim.sweep import Point, collect

__all__ = ["answer_of", "told_scenario"]


def answer_of(points: Sequence[Point], runs: Runs, jobs: int) -> dict[str, Any]:
    """The document. ``missing`` lists the runs that an interrupt left undone."""
    results = collect(points, runs.trials)
    answer = document(results, runs.wall_s)
    simulated_s = sum(
        points[trial.point].scenario.warm_up_s + points[trial.point].scenario.window_s
        for trial in runs.trials
        if trial.measures is not None
    )
    answer["run"] |= {
        "simulated_s": simulated_s,
        "times_real_time": simulated_s / runs.wall_s if runs.wall_s > 0.0 else None,
        "jobs": jobs,
    }
    return {
        "scenario": told_scenario(points[0].scenario),
        **answer,
        "missing": [
            {"values": dict(points[one.point].values), "policy": one.policy, "seed": one.seed} for one in runs.missing
        ],
    }


def told_scenario(scenario: Scenario) -> dict[str, Any]:
    """What was simulated, of a sweep its first point: as many nodes as there are at the most."""
    sizes = [(group, max([group.count, *(count for _, count in group.capacity_changes)])) for group in scenario.groups]
    return {
        "name": scenario.name,
        "nodes": sum(size for _, size in sizes),
        "gpus": sum(size * group.gpus for group, size in sizes),
        "seeds": list(scenario.seeds),
        "warm_up_s": scenario.warm_up_s,
        "window_s": scenario.window_s,
    }
