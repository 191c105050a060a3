"""Acceptance by category from the counters of a node whose engine says nothing about single requests.

A node's accepted tokens in a window are a sum over the categories in flight: `accepted = Σ r_c · steps · share_c`,
with `r_c` the tokens accepted per decode step of category c and `share_c` its share of the sequence-seconds (each
sequence takes part in each step of the batch). As shares change from window to window, the r_c can be told apart by
least squares. Dividing the mixture among all in flight instead would give every category of a node nearly the same
figure.

Each window is weighted by 1/steps, since its variance grows with its steps. The normal equations are all that is kept.
A ridge pulls towards the prior, and 0 ≤ r_c ≤ K. The unit of variance is the window, so windows should outlast a
typical request: those handed in are joined until they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

from slipstream.core.acceptance.evidence import HALF_LIFE, Ratio

__all__ = ["Attribution", "AttributionWindow"]

_SWEEPS = 200


@dataclass(frozen=True, slots=True)
class AttributionWindow:
    """What a node did in one window. ``steps`` are its decode steps, summed over sequences (the verify steps, where
    every step proposes); ``drafted`` and ``accepted`` are tokens; ``sequence_seconds`` is, by category, the time its
    sequences spent in flight in the window, summed over them. All 0 or more."""

    drafted: float
    accepted: float
    steps: float
    sequence_seconds: Mapping[str, float]


class Attribution:
    """Accumulated normal equations of one (model, speculator), over all its nodes. Memory grows with the square of the
    number of categories only.

    ``half_life`` (seconds) is that of a window's weight. ``ridge_steps`` is what the prior is worth, in decode steps,
    and also how many steps' worth of evidence a category needs of its own before it gets a figure. ``window``
    (seconds) is the least length of the windows that count.
    """

    __slots__ = (
        "_accepted_by_share",
        "_accepted_squared",
        "_at",
        "_drafted",
        "_index",
        "_open",
        "_open_seconds",
        "_shares",
        "_steps",
        "_weight",
        "_weight_squared",
        "half_life",
        "ridge_steps",
        "window",
    )

    def __init__(self, *, half_life: float = HALF_LIFE, ridge_steps: float = 200.0, window: float = 10.0) -> None:
        self.half_life = half_life
        self.ridge_steps = ridge_steps
        self.window = window
        self._index: dict[str, int] = {}
        self._shares: list[list[float]] = []  # Σ steps·share·shareᵀ
        self._accepted_by_share: list[float] = []  # Σ accepted·share
        self._accepted_squared = 0.0  # Σ accepted²/steps
        self._drafted = 0.0
        self._steps = 0.0
        self._weight = 0.0
        self._weight_squared = 0.0
        self._at: float | None = None
        self._open: dict[str, AttributionWindow] = {}
        self._open_seconds: dict[str, float] = {}

    def add(self, node: str, window: AttributionWindow, seconds: float, now: float) -> bool:
        """Count a window of ``node`` that took ``seconds`` and ended at ``now``. True when the solution may have
        changed."""
        joined = _joined(self._open.pop(node, None), window)
        length = self._open_seconds.pop(node, 0.0) + seconds
        if length < self.window:
            self._open[node] = joined
            self._open_seconds[node] = length
            return False
        total_seconds = sum(joined.sequence_seconds.values())
        if not (joined.steps > 0.0 and total_seconds > 0.0):
            return False
        self._fade(now)
        for category in joined.sequence_seconds:
            self._place(category)
        shares = [0.0] * len(self._index)
        for category, sequence_seconds in joined.sequence_seconds.items():
            shares[self._index[category]] = sequence_seconds / total_seconds
        for row, share in enumerate(shares):
            if share == 0.0:
                continue
            self._accepted_by_share[row] += joined.accepted * share
            for column, other in enumerate(shares):
                self._shares[row][column] += joined.steps * share * other
        self._accepted_squared += joined.accepted * joined.accepted / joined.steps
        self._drafted += joined.drafted
        self._steps += joined.steps
        self._weight += 1.0
        self._weight_squared += 1.0
        return True

    def solve(self, accepted_per_step: Mapping[str, float]) -> dict[str, Ratio | None]:
        """Accepted tokens per decode step by category; ``accepted_per_step`` is the prior's, for every category
        counted.

        ``None`` for a category that the windows do not tell apart from the others (shares that never change, or too few
        windows). The ratio's ``effective_requests`` is its degrees of freedom plus one.
        """
        size = len(self._index)
        if size == 0:
            return {}
        ridge = self.ridge_steps
        prior = [accepted_per_step[category] for category in self._index]
        matrix = [
            [value + (ridge if i == j else 0.0) for j, value in enumerate(row)] for i, row in enumerate(self._shares)
        ]
        target = [value + ridge * believed for value, believed in zip(self._accepted_by_share, prior, strict=True)]
        freedom = self._weight * self._weight / self._weight_squared - size
        if freedom < 2.0:
            return dict.fromkeys(self._index)
        spread = _inverse(matrix)
        solution = _bounded_least_squares(matrix, target, spread, self._drafted / self._steps)
        squared_residuals = self._accepted_squared + sum(
            value * (_dot(row, solution) - 2.0 * by_share)
            for value, row, by_share in zip(solution, self._shares, self._accepted_by_share, strict=True)
        )
        variance = max(0.0, squared_residuals) / self._weight * (freedom + size) / freedom
        # A ridge too small to matter, just to invert: what is left of a category once the others have explained what
        # they can.
        trace = sum(row[i] for i, row in enumerate(self._shares))
        sliver = 1e-9 * trace
        alone = _inverse(
            [[value + (sliver if i == j else 0.0) for j, value in enumerate(row)] for i, row in enumerate(self._shares)]
        )
        return {
            category: Ratio(solution[i], sqrt(variance * spread[i][i]), freedom + 1.0)
            if 1.0 / alone[i][i] - sliver >= ridge
            else None
            for category, i in self._index.items()
        }

    @property
    def categories(self) -> tuple[str, ...]:
        """Every category ever counted."""
        return tuple(self._index)

    @property
    def drafted_per_step(self) -> float | None:
        """Mean draft length over all decode steps; ``None`` before any."""
        return self._drafted / self._steps if self._steps > 0.0 else None

    def forget_node(self, node: str) -> None:
        """Drop the window of ``node`` that is still open; for nodes that left the fleet."""
        self._open.pop(node, None)
        self._open_seconds.pop(node, None)

    def _fade(self, now: float) -> None:
        before, self._at = self._at, now if self._at is None else max(now, self._at)
        if before is None or now <= before:
            return
        fade = 0.5 ** ((now - before) / self.half_life)
        self._shares = [[value * fade for value in row] for row in self._shares]
        self._accepted_by_share = [value * fade for value in self._accepted_by_share]
        self._accepted_squared *= fade
        self._drafted *= fade
        self._steps *= fade
        self._weight *= fade
        self._weight_squared *= fade * fade

    def _place(self, category: str) -> None:
        if category in self._index:
            return
        self._index[category] = len(self._index)
        for row in self._shares:
            row.append(0.0)
        self._shares.append([0.0] * len(self._index))
        self._accepted_by_share.append(0.0)


def _joined(first: AttributionWindow | None, second: AttributionWindow) -> AttributionWindow:
    if first is None:
        return second
    seconds = dict(first.sequence_seconds)
    for category, more in second.sequence_seconds.items():
        seconds[category] = seconds.get(category, 0.0) + more
    return AttributionWindow(
        first.drafted + second.drafted, first.accepted + second.accepted, first.steps + second.steps, seconds
    )


def _dot(left: list[float], right: list[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


def _bounded_least_squares(
    matrix: list[list[float]], target: list[float], inverse: list[list[float]], upper: float
) -> list[float]:
    """Minimize xᵀMx − 2tᵀx over 0 ≤ x ≤ ``upper``, M positive definite.

    Where the free minimum is within the bounds, that is it; otherwise coordinate descent from its projection, cut off
    after so many sweeps that the event loop never notices.
    """
    x = [min(upper, max(0.0, _dot(row, target))) for row in inverse]
    for _ in range(_SWEEPS):
        largest = 0.0
        for i, row in enumerate(matrix):
            better = min(upper, max(0.0, x[i] + (target[i] - _dot(row, x)) / row[i]))
            largest = max(largest, abs(better - x[i]))
            x[i] = better
        if largest <= 1e-7 * upper:
            break
    return x


def _inverse(matrix: list[list[float]]) -> list[list[float]]:
    """Inverse of a symmetric positive definite matrix by Gauss–Jordan, which needs no pivoting there."""
    size = len(matrix)
    rows = [[*row, *(1.0 if i == j else 0.0 for j in range(size))] for i, row in enumerate(matrix)]
    for i in range(size):
        pivot = rows[i][i]
        rows[i] = [value / pivot for value in rows[i]]
        for j in range(size):
            if j != i and rows[j][i] != 0.0:
                factor = rows[j][i]
                rows[j] = [value - factor * pivot_value for value, pivot_value in zip(rows[j], rows[i], strict=True)]
    return [row[size:] for row in rows]
