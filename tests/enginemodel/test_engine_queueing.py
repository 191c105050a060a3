"""An engine with one slot is a queue with one server, whose waits are known: Pollaczek and Khinchine's formula.

A request of n tokens takes n steps, so exponential sizes (rounded up to whole tokens, which makes them geometric) give
an M/M/1 queue and fixed ones an M/D/1 queue. Intervals by batch means: waits of neighbours are alike.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import ceil, inf, log1p, sqrt
from statistics import fmean, stdev

import pytest

from enginemodel.made_steps import MadeSteps, engine
from slipstream.enginemodel.sequence import Sequence
from slipstream.enginemodel.settings import EngineSettings

REQUESTS = 15_000
BATCHES = 20
T_99_5 = 2.861  # Student's t with 19 degrees of freedom


def waits(load: float, tokens_of: Callable[[], int], mean_tokens: int, chance: random.Random) -> list[float]:
    """Seconds that each request waited for its slot; a request takes 1 s on average."""
    run = engine(EngineSettings(slots=1), MadeSteps(step_s=1.0 / mean_tokens))
    waited: list[float] = []
    arrives, ends = chance.expovariate(load), inf
    submitted = 0
    while len(waited) < REQUESTS:
        if arrives < ends:
            now = arrives
            submitted += 1
            run.submit(Sequence(submitted, 1, tokens_of(), ()), now)
            arrives = now + chance.expovariate(load)
        else:
            now = ends
            waited += [one.admitted_at - one.submitted_at for one in run.end_step(now)]
        if not run.stepping:
            ends = run.begin_step(now)
    return waited


def assert_mean(sample: list[float], expected: float) -> None:
    size = len(sample) // BATCHES
    means = [fmean(sample[start : start + size]) for start in range(0, BATCHES * size, size)]
    assert fmean(means) == pytest.approx(expected, abs=T_99_5 * stdev(means) / sqrt(BATCHES))
    assert T_99_5 * stdev(means) / sqrt(BATCHES) < 0.2 * expected  # else the interval would say nothing


def test_exponential_sizes_give_the_waits_of_an_m_m_1_queue() -> None:
    chance, load, mean_tokens = random.Random(11), 0.6, 20
    scale = log1p(-1.0 / mean_tokens)

    def geometric() -> int:
        return ceil(log1p(-chance.random()) / scale) or 1

    waited = waits(load, geometric, mean_tokens, chance)
    assert_mean(waited, load / (1.0 - load))
    assert_mean(waited, load * (2.0 - 1.0 / mean_tokens) / (2.0 * (1.0 - load)))  # of the sizes as rounded


def test_fixed_sizes_give_the_waits_of_an_m_d_1_queue_half_as_long() -> None:
    load = 0.6
    assert_mean(waits(load, lambda: 3, 3, random.Random(12)), load / (2.0 * (1.0 - load)))
