"""What ``slipstream simulate`` has found, as one document: what ``--json`` prints and the tables are made from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slipstream.cli.simulate_comparison import comparison_of
from slipstream.cli.simulate_runs import Runs
from slipstream.sim.report import document
from slipstream.sim.scenario import Scenario
from slipstream.sim.sweep import Point, PointResult

__all__ = ["answer_of", "told_run", "told_scenario"]


def answer_of(
    results: Sequence[PointResult], points: Sequence[Point], runs: Runs, jobs: int, baseline: str | None
) -> dict[str, Any]:
    """The document about ``results``, the first of all ``points``; ``missing`` lists what an interrupt left undone of
    the runs. With a ``baseline`` every point has its comparison.
    """
    answer = document(results, runs.wall_s)
    if baseline is not None:
        for told, result in zip(answer.get("points", [answer]), results, strict=True):
            told["comparison"] = comparison_of(result, baseline)
    missing = [
        {"values": dict(points[one.point].values), "policy": one.policy, "seed": one.seed} for one in runs.missing
    ]
    return {
        "scenario": told_scenario(points[0].scenario),
        **answer,
        "run": _run(points, runs, jobs),
        "missing": missing,
    }


def _run(points: Sequence[Point], runs: Runs, jobs: int) -> dict[str, Any]:
    """The bound is not simulated, so that it adds to the time alone."""
    simulated = [trial for trial in runs.trials if trial.measures is not None]
    requests = sum(trial.requests for trial in simulated)
    scenarios = [points[trial.point].scenario for trial in simulated]
    simulated_s = sum(scenario.warm_up_s + scenario.window_s for scenario in scenarios)
    return told_run(requests, simulated_s, runs.wall_s, jobs)


def told_run(requests: int, simulated_s: float, wall_s: float, jobs: int) -> dict[str, Any]:
    """What all runs took together, on so many processes."""
    return {
        "requests": requests,
        "wall_s": wall_s,
        "requests_per_s": requests / wall_s if wall_s > 0.0 else None,
        "simulated_s": simulated_s,
        "times_real_time": simulated_s / wall_s if wall_s > 0.0 else None,
        "jobs": jobs,
    }


def told_scenario(scenario: Scenario) -> dict[str, Any]:
    """What was simulated, of a sweep its first point: as many nodes as there are at the most."""
    sizes = [(group, max([group.count, *(count for _, count in group.capacity_changes)])) for group in scenario.groups]
    return {
        "name": scenario.name,
        "about": scenario.about,
        "nodes": sum(size for _, size in sizes),
        "gpus": sum(size * group.gpus for group, size in sizes),
        "seeds": list(scenario.seeds),
        "warm_up_s": scenario.warm_up_s,
        "window_s": scenario.window_s,
    }
