"""The runs of ``slipstream simulate``: progress on a terminal, and what is finished when somebody has had enough."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from slipstream.sim.scenario import Policy
from slipstream.sim.sweep import Point, Trial, run_trials
from slipstream.sim.sweep import Progress as Share

__all__ = ["Missing", "Runs", "jobs_for", "made", "progress_bar", "time_left"]

SHOWN_AFTER_S = 1.0
FEW_REQUESTS = 20_000
"""So many are simulated before other processes have started."""


class Missing(NamedTuple):
    """A run that was not finished: at which point, an index, under which policy and seed."""

    point: int
    policy: str
    seed: int


class Runs(NamedTuple):
    """``missing`` are those that an interrupt left undone."""

    trials: Sequence[Trial]
    missing: Sequence[Missing]
    wall_s: float


def made(points: Sequence[Point], jobs: int, events: Callable[[int, Policy, int], Path | None]) -> Runs:
    """All runs, or those that were finished when Ctrl-C was pressed, if any was. Arguments and errors as of
    `run_trials`.
    """
    began = perf_counter()
    trials: list[Trial] = []
    with progress_bar() as told:
        try:
            trials.extend(run_trials(points, jobs=jobs, events=events, progress=told))
        except KeyboardInterrupt:  # those that came before it are kept
            if not trials:
                raise
    wall_s = perf_counter() - began
    done = {(trial.point, trial.policy, trial.seed) for trial in trials}
    every = (
        Missing(number, policy.name, seed)
        for number, point in enumerate(points)
        for policy in point.scenario.policies
        for seed in point.scenario.seeds
    )
    return Runs(trials, [one for one in every if one not in done], wall_s)


def jobs_for(points: Sequence[Point]) -> int:
    """As many processes as there are cores to run on, but one where that is done before others would have started."""
    requests = 0
    for point in points:
        scenario = point.scenario
        requests += len(scenario.plan_of(scenario.seeds[0])) * len(scenario.policies) * len(scenario.seeds)
        if requests > FEW_REQUESTS:
            return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 1


@contextmanager
def progress_bar() -> Iterator[Callable[[Share], None]]:
    """To be told how far the runs are. Shows it with the time left, on a terminal and after a second."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("simulating"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[left]}"),
        console=console,
        transient=True,
        auto_refresh=False,
        disable=not console.is_terminal,
    )
    task = bar.add_task("", total=1.0, left="")

    def tell(share: Share) -> None:
        if share.elapsed_s >= SHOWN_AFTER_S:
            bar.start()
            bar.update(task, completed=share.done, left=time_left(share.left_s), refresh=True)

    try:
        yield tell
    finally:
        bar.stop()


def time_left(seconds: float | None) -> str:
    """How long it may take yet, to the second or the minute; empty when that is unknown."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min left"
    return f"{minutes} min {rest} s left" if minutes else f"{rest} s left"
