"""Two servers under the same plan, in turn, so that whatever else changes with time changes both alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slipstream.bench.measurement import Measurement, Progress, measured
from slipstream.bench.measures import Measures, measures_of, tokens_per_s_of
from slipstream.bench.parts import parts_of
from slipstream.bench.resampling import Blocks, Distribution, Figure, difference, given_blocks
from slipstream.bench.running import RunningSource
from slipstream.bench.samples import Samples, joined, samples_of
from slipstream.bench.server import Server
from slipstream.core.goodput import Target
from slipstream.core.interval import interval_of
from slipstream.workload.plan import Plan

__all__ = ["Arm", "Comparison", "Differences", "alternated", "compared", "warm_up_of"]


@dataclass(frozen=True, slots=True)
class Arm:
    """One of the two, and how many requests run there, if that can be known."""

    name: str
    server: Server
    running: RunningSource | None = None


@dataclass(frozen=True, slots=True)
class Differences:
    """How much more the second has of everything than the first, part by part of the plan. ``tokens_per_s`` is known at
    fixed concurrency only: where requests come at their times, it is the plan that says how many tokens come.
    """

    goodput: Figure
    attainment: Figure
    tokens_per_s: Figure
    ttft: Distribution
    tpot: Distribution
    itl: Distribution
    e2e: Distribution


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both, joined over the parts that both were sent, and their differences; ``parts`` is how many there were."""

    samples: tuple[Samples, Samples]
    measures: tuple[Measures, Measures]
    running: tuple[Sequence[int], Sequence[int]]
    differences: Differences
    parts: int
    interrupted: bool


async def alternated(
    arms: tuple[Arm, Arm],
    plan: Plan,
    *,
    parts: int,
    warm_up: int,
    seed: int,
    stop: asyncio.Event,
    concurrency: int | None = None,
    on_result: Progress | None = None,
) -> list[tuple[Measurement, Measurement]]:
    """Each part of the plan sent to both, one after the other: first to the first, then both turned around at every
    part (A B, B A, A B, …). ``warm_up`` requests of each part do not count. When ``stop`` is set, the part under way is
    left out.
    """
    done: list[tuple[Measurement, Measurement]] = []
    for place, part in enumerate(parts_of(plan, parts)):
        pair: dict[int, Measurement] = {}
        for number in (0, 1) if place % 2 == 0 else (1, 0):
            arm = arms[number]
            pair[number] = await measured(
                arm.server,
                part,
                warm_up=warm_up,
                seed=seed + place,
                stop=stop,
                concurrency=concurrency,
                arm=number,
                arms=2,
                running=arm.running,
                on_result=on_result,
            )
            if pair[number].interrupted:
                return done
        done.append((pair[0], pair[1]))
    return done


def warm_up_of(part_requests: int, share: float) -> int:
    """How many of a part's requests are its warm-up: the share, rounded, and never all of them."""
    return min(round(part_requests * share), part_requests - 1)


def compared(pairs: Sequence[tuple[Measurement, Measurement]], target: Target, *, interrupted: bool) -> Comparison:
    """What both were worth. ValueError without a part that both were sent."""
    if not pairs:
        raise ValueError("there is nothing to compare without a part of the plan that both were sent")
    columns = [(samples_of(a, target), samples_of(b, target)) for a, b in pairs]
    first, second = joined([a for a, _ in columns]), joined([b for _, b in columns])
    return Comparison(
        samples=(first, second),
        measures=(measures_of(first), measures_of(second)),
        running=(
            [running for measurement, _ in pairs for running in measurement.running],
            [running for _, measurement in pairs for running in measurement.running],
        ),
        differences=_differences(columns, first, second, pushed=pairs[0][0].concurrency is not None),
        parts=len(pairs),
        interrupted=interrupted,
    )


def _differences(
    columns: Sequence[tuple[Samples, Samples]], first: Samples, second: Samples, *, pushed: bool
) -> Differences:
    our_parts = _parts_as_blocks([ours for ours, _ in columns])
    their_parts = _parts_as_blocks([theirs for _, theirs in columns])

    def more(name: str) -> Distribution:
        return difference(*_counted(first, name), our_parts, *_counted(second, name), their_parts)

    def paired(worth: Callable[[Samples], float | None]) -> Figure:
        ours, theirs = worth(first), worth(second)
        pairs = [(worth(mine), worth(its)) for mine, its in columns]
        known = [its - mine for mine, its in pairs if mine is not None and its is not None]
        return Figure(None if ours is None or theirs is None else theirs - ours, interval_of(known))

    return Differences(
        goodput=paired(_goodput),
        attainment=paired(_attainment),
        tokens_per_s=paired(lambda samples: tokens_per_s_of(samples).value) if pushed else Figure(),
        ttft=more("ttft_s"),
        tpot=more("tpot_s"),
        itl=more("gaps_s"),
        e2e=more("e2e_s"),
    )


def _parts_as_blocks(parts: Sequence[Samples]) -> Blocks:
    return given_blocks(np.repeat(np.arange(len(parts)), [len(part) for part in parts]), len(parts))


def _counted(samples: Samples, name: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The values of a column that count, and the row of each."""
    rows = samples.gap_row if name == "gaps_s" else np.arange(len(samples))
    own = samples.counted[rows]
    return getattr(samples, name)[own], rows[own]


def _attainment(samples: Samples) -> float | None:
    own = samples.counted
    return float(samples.good[own].mean()) if own.any() else None


def _goodput(samples: Samples) -> float | None:
    return float(samples.good[samples.counted].sum()) / samples.window_s if samples.window_s > 0.0 else None
