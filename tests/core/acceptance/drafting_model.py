"""A made-up engine that drafts, with acceptance known in advance: the truth that estimators are held against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slipstream.core.acceptance import SpeculationSample

K = 4


@dataclass(frozen=True)
class Beta:
    """Per-request acceptance: one prompt is easy, another is not. A high ``concentration`` makes all alike."""

    mean: float
    concentration: float

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        return rng.beta(self.mean * self.concentration, (1.0 - self.mean) * self.concentration, size)


def accepted_by_step(rng: np.random.Generator, alpha: float, steps: int) -> NDArray[np.int64]:
    """Accepted drafts of each step where every drafted token is accepted with probability ``alpha``."""
    return np.minimum(rng.geometric(1.0 - alpha, steps) - 1, K)


def requests(rng: np.random.Generator, acceptance: Beta, count: int) -> Iterator[SpeculationSample]:
    """Finished requests of very different lengths."""
    for alpha in acceptance.draw(rng, count):
        steps = int(rng.integers(10, 120))
        accepted = int(accepted_by_step(rng, alpha, steps).sum())
        yield SpeculationSample(steps * K, accepted, steps, 1 + steps + accepted)


def true_tau(acceptance: Beta) -> float:
    """Mean acceptance length over endlessly many requests whose length does not depend on their acceptance."""
    alpha = acceptance.draw(np.random.default_rng(0), 1_000_000)
    return float(1.0 + sum((alpha**i).mean() for i in range(1, K + 1)))


def requests_by_survival(
    rng: np.random.Generator, survival: Sequence[float], count: int
) -> Iterator[SpeculationSample]:
    """Requests whose acceptance does not decay geometrically: position i survives with probability ``survival[i]``."""
    for _ in range(count):
        steps = int(rng.integers(10, 120))
        accepted = int((rng.random(steps)[:, None] < np.asarray(survival)).sum())
        yield SpeculationSample(steps * len(survival), accepted, steps, 1 + steps + accepted)


@dataclass(frozen=True)
class NodeWindow:
    """What the counters of a node moved by in a window, and who was in flight."""

    steps: int
    accepted: int
    sequence_seconds: dict[str, float]

    @property
    def drafted(self) -> int:
        return self.steps * K


def node_windows(
    rng: np.random.Generator,
    acceptance: dict[str, Beta],
    *,
    windows: int,
    slots: int = 8,
    steps_per_window: int = 33,
    mix_lasts: int = 20,
    mixed: bool = True,
) -> list[NodeWindow]:
    """A node that decodes without pause, one second a window, and counts for all its requests together.

    Which categories come changes every ``mix_lasts`` windows, or never, where not ``mixed``: then each category keeps
    the same number of slots.
    """
    names = list(acceptance)
    total = windows * steps_per_window
    accepted = np.zeros(windows)
    steps_of = {name: np.zeros(windows) for name in names}
    mixes = rng.dirichlet(np.full(len(names), 0.8), windows // mix_lasts + 1)
    for slot in range(slots):
        at = 0
        while at < total:
            if mixed:
                name = names[int(rng.choice(len(names), p=mixes[at // steps_per_window // mix_lasts]))]
            else:
                name = names[slot % len(names)]
            steps = min(int(rng.integers(30, 200)), total - at)
            alpha = float(acceptance[name].draw(rng, 1)[0])
            where = np.arange(at, at + steps) // steps_per_window
            accepted += np.bincount(where, accepted_by_step(rng, min(alpha, 1 - 1e-9), steps), windows)
            steps_of[name] += np.bincount(where, minlength=windows)
            at += steps
    return [
        NodeWindow(
            int(sum(steps_of[name][i] for name in names)),
            int(accepted[i]),
            {name: float(steps_of[name][i]) / steps_per_window for name in names if steps_of[name][i]},
        )
        for i in range(windows)
    ]
