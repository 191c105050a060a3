"""Many runs over the machine's cores: every point of a grid, under every policy and seed."""

from __future__ import annotations

import copyreg
import math
import multiprocessing
import os
import signal
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from time import perf_counter
from typing import Any, Final

from slipstream.core.acceptance import AcceptancePrior
from slipstream.core.errors import SlipstreamError
from slipstream.core.goodput import Target
from slipstream.core.policy import ProbingSettings, ThresholdSettings
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.sim.bound import Bound, BoundResult, bound, summarise_bounds
from slipstream.sim.intervals import PolicyResult, summarise
from slipstream.sim.measures import LatencyCurves, Measures, latency_curves, measure
from slipstream.sim.scenario import Policy, PolicyKind, Scenario
from slipstream.sim.simulate import simulate

__all__ = ["Point", "PointResult", "Progress", "Trial", "TrialFailed", "collect", "points_of", "run_trials", "sweep"]


def _made_anew(one: Any) -> tuple[type[Any], tuple[Any, ...]]:
    return type(one), tuple(getattr(one, field.name) for field in fields(one))


# How these go to another process: where they are compiled, a frozen object can not be filled in once it is made.
for _kind in (AcceptancePrior, ProbingSettings, Target, ThresholdSettings):
    copyreg.pickle(_kind, _made_anew)

_LOOK_S: Final = 0.2
_SHARE: Final = struct.Struct("d")


class TrialFailed(SlipstreamError):
    """One run of several could not be made."""


@dataclass(frozen=True, slots=True)
class Point:
    """A scenario, and by which changes it came about (none = as it is)."""

    values: Mapping[str, float]
    scenario: Scenario


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one policy and seed at one point, an index into the points. ``bound`` is of the policy that is none,
    the others have ``measures`` and ``curves``. ``requests`` of the plan, simulated in ``wall_s``.
    """

    point: int
    policy: str
    seed: int
    measures: Measures | None
    curves: LatencyCurves | None
    bound: Bound | None
    requests: int
    wall_s: float


@dataclass(frozen=True, slots=True)
class Progress:
    """``done`` 0..1 of all the work, runs counted alike; ``left_s`` an estimate, ``None`` until there is one."""

    done: float
    elapsed_s: float
    left_s: float | None


@dataclass(frozen=True, slots=True)
class PointResult:
    """All of one point: policies in the scenario's order, ``runs`` by policy in the order of its seeds."""

    point: Point
    policies: tuple[PolicyResult | BoundResult, ...]
    runs: Mapping[str, tuple[Trial, ...]]


@dataclass(frozen=True, slots=True)
class _Task:
    number: int
    point: int
    scenario: Scenario
    policy: Policy
    seed: int
    events: Path | None


def _no_file(_point: int, _policy: Policy, _seed: int) -> Path | None:
    return None


def points_of(grid: Mapping[str, Sequence[float]]) -> list[dict[str, float]]:
    """Every combination, the last name changing fastest; of no names there is one."""
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def sweep(
    build: Callable[[Mapping[str, float]], Scenario],
    grid: Mapping[str, Sequence[float]],
    *,
    jobs: int = 1,
    progress: Callable[[Progress], None] | None = None,
) -> list[PointResult]:
    """Every point of ``grid``. All scenarios are built first, so that one that can not be is refused before any is run;
    what ``build`` raises passes through. For the rest see `run_trials`.
    """
    points = [Point(values, build(values)) for values in points_of(grid)]
    return collect(points, run_trials(points, jobs=jobs, progress=progress))


def collect(points: Sequence[Point], trials: Iterable[Trial]) -> list[PointResult]:
    """The trials of all points, in whatever order they come. Where some are missing, policies are summed up over the
    seeds that there are, and left out without any.
    """
    found = {(trial.point, trial.policy, trial.seed): trial for trial in trials}
    results: list[PointResult] = []
    for number, point in enumerate(points):
        keys = {
            policy.name: [(number, policy.name, seed) for seed in point.scenario.seeds]
            for policy in point.scenario.policies
        }
        every = {name: tuple(found[key] for key in own if key in found) for name, own in keys.items()}
        runs = {name: own for name, own in every.items() if own}
        results.append(PointResult(point, tuple(_summed(name, own) for name, own in runs.items()), runs))
    return results


def run_trials(
    points: Sequence[Point],
    *,
    jobs: int = 1,
    events: Callable[[int, Policy, int], Path | None] = _no_file,
    progress: Callable[[Progress], None] | None = None,
    clock: Callable[[], float] = perf_counter,
) -> Iterator[Trial]:
    """Every policy and seed of every point, each as it is done; on ``jobs`` processes, with 1 in this one.

    ``events`` names the file that gets what happens (see `slipstream.sim.events`) at a point, an index, under a policy
    and seed. ``progress`` is called some times a second. Who closes the iterator, or is interrupted while it runs,
    leaves no process behind. Raises `TrialFailed`, which says what of all the runs it was. What goes to other processes
    must survive pickling.
    """
    if jobs < 1:
        raise ValueError(f"there is at least one job, not {jobs}")
    tasks = [
        _Task(number, point, points[point].scenario, policy, seed, events(point, policy, seed))
        for number, (point, policy, seed) in enumerate(
            (point, policy, seed)
            for point in range(len(points))
            for policy in points[point].scenario.policies
            for seed in points[point].scenario.seeds
        )
    ]
    watch = _Watch(len(tasks), progress, clock)
    if jobs == 1 or len(tasks) < 2:
        for task in tasks:
            yield _told(points, task, _run(task, watch.report))
            watch.finish(task.number)
    else:
        yield from _run_in_processes(points, tasks, min(jobs, len(tasks)), watch)


def _run_in_processes(points: Sequence[Point], tasks: Sequence[_Task], jobs: int, watch: _Watch) -> Iterator[Trial]:
    before = set(multiprocessing.active_children())
    with TemporaryDirectory(prefix="slipstream-sweep-") as directory:
        shares = Path(directory) / "shares"
        shares.write_bytes(bytes(_SHARE.size * len(tasks)))
        executor = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _belong_to_the_parent)
        running: dict[Future[Trial | str], _Task] = {}
        try:
            running.update((executor.submit(_run_apart, task, shares), task) for task in tasks)
            while running:
                done, _ = wait(running, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
                for future in done:
                    task = running.pop(future)
                    error = future.exception()
                    if error is not None:
                        raise TrialFailed(f"{_name(points, task)}: {str(error) or type(error).__name__}") from error
                    watch.finish(task.number)
                    yield _told(points, task, future.result())
                watch.look([share for (share,) in _SHARE.iter_unpack(shares.read_bytes())])
        finally:
            executor.shutdown(wait=not running, cancel_futures=True)
            for process in set(multiprocessing.active_children()) - before:
                process.terminate()
                process.join()


def _belong_to_the_parent() -> None:
    """Interrupts are the parent's business, and a worker ends with it, also where it was killed: the pipe for its tasks
    would never tell, since every worker holds both ends.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run_apart(task: _Task, shares: Path) -> Trial | str:
    with shares.open("r+b", buffering=0) as file:

        def report(number: int, share: float) -> None:
            file.seek(number * _SHARE.size)
            file.write(_SHARE.pack(share))

        return _run(task, report)


def _run(task: _Task, report: Callable[[int, float], None]) -> Trial | str:
    """The trial, or in one sentence why there is none: not every error survives the way to another process."""
    scenario, policy, seed = task.scenario, task.policy, task.seed
    started = perf_counter()
    try:
        if policy.kind is PolicyKind.BOUND:
            most = bound(scenario, seed)
            return Trial(task.point, policy.name, seed, None, None, most, most.offered, perf_counter() - started)
        with nullcontext() if task.events is None else task.events.open("wb") as file:
            run = simulate(
                scenario,
                policy,
                seed,
                events=None if file is None else file.write,
                progress=lambda share: report(task.number, share),
            )
    except (SlipstreamError, ImpossibleInput) as error:
        return str(error)
    except OSError as error:
        return f"events can not be written to {task.events}: {error.strerror}"
    window = (scenario.warm_up_s, scenario.warm_up_s + scenario.window_s)
    measures = measure(run, scenario.targets, window=window)
    curves = latency_curves(run, window=window)
    return Trial(task.point, policy.name, seed, measures, curves, None, len(run.plan), run.wall_s)


def _told(points: Sequence[Point], task: _Task, found: Trial | str) -> Trial:
    if isinstance(found, str):
        raise TrialFailed(f"{_name(points, task)}: {found}")
    return found


def _name(points: Sequence[Point], task: _Task) -> str:
    values = [f"{name}={value:g}" for name, value in points[task.point].values.items()]
    return ", ".join([*values, f"policy {task.policy.name}", f"seed {task.seed}"])


def _summed(name: str, trials: Sequence[Trial]) -> PolicyResult | BoundResult:
    bounds = [trial.bound for trial in trials if trial.bound is not None]
    if bounds:
        return summarise_bounds(name, bounds)
    return summarise(name, [trial.measures for trial in trials if trial.measures is not None])


class _Watch:
    """How far all runs are together, told a few times a second."""

    def __init__(self, runs: int, told: Callable[[Progress], None] | None, clock: Callable[[], float]) -> None:
        self._shares = [0.0] * runs
        self._told = told
        self._clock = clock
        self._began = clock()
        self._last = -math.inf

    def report(self, number: int, share: float) -> None:
        """A run is so far."""
        self._shares[number] = share
        if self._clock() - self._last >= _LOOK_S:
            self._tell()

    def finish(self, number: int) -> None:
        """A run is done."""
        self._shares[number] = 1.0
        self._tell()

    def look(self, shares: Sequence[float]) -> None:
        """All runs are so far, or done."""
        self._shares = [max(pair) for pair in zip(self._shares, shares, strict=True)]
        self._tell()

    def _tell(self) -> None:
        if self._told is None:
            return
        self._last = now = self._clock()
        done = sum(self._shares) / len(self._shares)
        elapsed = now - self._began
        self._told(Progress(done, elapsed, elapsed * (1.0 - done) / done if done > 0.0 else None))
