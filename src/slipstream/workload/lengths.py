"""How long prompts and answers are, in tokens: distributions as data, each of which draws whole numbers from 1 on.

What is drawn above ``maximum`` is cut to it, as an engine's context does: quantiles below it stay, the mean falls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slipstream.workload.errors import ImpossibleWorkload

__all__ = [
    "MOST_TOKENS",
    "ExponentialLengths",
    "FixedLengths",
    "Lengths",
    "ListedLengths",
    "LognormalLengths",
    "UniformLengths",
]

MOST_TOKENS = 100_000_000
"""No request is longer: a figure above is a slip."""

P95 = 1.6448536269514722
"""The 95th percentile of the standard normal distribution."""
MOST_P95_OVER_MEAN = math.exp(P95 * P95 / 2.0)
"""The largest ratio of 95th percentile to mean that a lognormal distribution can have, about 3.87."""

Tokens = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FixedLengths:
    """All of ``tokens``."""

    tokens: int

    def __post_init__(self) -> None:
        _check("a fixed length", self.tokens)

    def draw(self, count: int, rng: np.random.Generator) -> Tokens:  # noqa: ARG002 - as the others
        """``count`` lengths, independent of one another."""
        return np.full(count, self.tokens, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class UniformLengths:
    """Every whole number from ``least`` to ``most``, both included, as often."""

    least: int
    most: int

    def __post_init__(self) -> None:
        _check("the least length", self.least)
        _check("the largest length", self.most)
        if self.least > self.most:
            raise ImpossibleWorkload(f"uniform lengths rise, not from {self.least} to {self.most}")

    def draw(self, count: int, rng: np.random.Generator) -> Tokens:
        """As of `FixedLengths`."""
        return rng.integers(self.least, self.most, count, dtype=np.int64, endpoint=True)


@dataclass(frozen=True, slots=True)
class ExponentialLengths:
    """The geometric distribution from 1 on, which is the exponential one rounded up, with exactly that ``mean``."""

    mean: float
    maximum: int = MOST_TOKENS

    def __post_init__(self) -> None:
        _check("a mean length", self.mean)
        _check_maximum(self.mean, self.maximum)

    def draw(self, count: int, rng: np.random.Generator) -> Tokens:
        """As of `FixedLengths`."""
        return np.minimum(rng.geometric(1.0 / self.mean, count), self.maximum)


@dataclass(frozen=True, slots=True)
class LognormalLengths:
    """The lognormal distribution with that ``mean`` and 95th percentile, rounded, 1 where it is below.

    Of two that have both, the one with the shorter tail. Its standard deviation of the logarithm is the smaller root
    of ``sigma² / 2 - P95·sigma + log(p95 / mean) = 0``.
    """

    mean: float
    p95: float
    maximum: int = MOST_TOKENS

    def __post_init__(self) -> None:
        _check("a mean length", self.mean)
        _check("a 95th percentile", self.p95)
        if not 1.0 <= self.p95 / self.mean <= MOST_P95_OVER_MEAN:
            raise ImpossibleWorkload(
                f"lognormal lengths have a 95th percentile of 1 to {MOST_P95_OVER_MEAN:.2f} times their mean, "
                f"not {self.p95:g} at a mean of {self.mean:g}"
            )
        _check_maximum(self.mean, self.maximum)

    def draw(self, count: int, rng: np.random.Generator) -> Tokens:
        """As of `FixedLengths`."""
        sigma = P95 - math.sqrt(max(P95 * P95 - 2.0 * math.log(self.p95 / self.mean), 0.0))
        drawn = rng.lognormal(math.log(self.mean) - sigma * sigma / 2.0, sigma, count)
        return np.rint(np.clip(drawn, 1.0, self.maximum)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class ListedLengths:
    """One of ``tokens``, each as likely: lengths that were seen."""

    tokens: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.tokens:
            raise ImpossibleWorkload("a list of lengths has at least one")
        for tokens in self.tokens:
            _check("a length of the list", tokens)

    def draw(self, count: int, rng: np.random.Generator) -> Tokens:
        """As of `FixedLengths`."""
        return rng.choice(np.array(self.tokens, dtype=np.int64), count)


Lengths = FixedLengths | UniformLengths | ExponentialLengths | LognormalLengths | ListedLengths


def _check(what: str, tokens: float) -> None:
    if not 1 <= tokens <= MOST_TOKENS:
        raise ImpossibleWorkload(f"{what} is 1 to {MOST_TOKENS:,} tokens, not {tokens:g}")


def _check_maximum(mean: float, maximum: int) -> None:
    _check("a maximum", maximum)
    if maximum < mean:
        raise ImpossibleWorkload(f"the maximum of lengths is at least their mean of {mean:g}, not {maximum}")
