"""Acceptance as a curve over K, from whichever measure is at hand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slipstream.core.acceptance.measures import alpha_of, mean_acceptance_length_of
from slipstream.costmodel.errors import ImpossibleInput

__all__ = ["AcceptanceCurve", "geometric", "measured", "surviving"]


@dataclass(frozen=True, slots=True)
class AcceptanceCurve:
    """How `tau` grows with K: ``survival`` of the positions that were measured, then a constant share ``alpha`` of
    each.

    A curve of geometric acceptance has no measured positions. Both are 0..1, and survival never rises.
    """

    alpha: float
    survival: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not 0.0 <= self.alpha <= 1.0:
            raise ImpossibleInput(f"per-token acceptance must be within 0..1, not {self.alpha:g}")
        before = 1.0
        for position, share in enumerate(self.survival, 1):
            if not 0.0 <= share <= before:
                raise ImpossibleInput(
                    f"survival must be within 0..1 and never rise, but is {share:g} at position {position}"
                )
            before = share

    def tau(self, k: float) -> float:
        """Mean acceptance length at draft length ``k`` (0 or more): 1 at 0."""
        if k < 0:
            raise ImpossibleInput(f"draft length must not be negative, not {k:g}")
        if k == 0:
            return 1.0
        if not self.survival:
            return mean_acceptance_length_of(self.alpha, k)
        known = min(int(k), len(self.survival))
        beyond = mean_acceptance_length_of(self.alpha, k - known) - 1.0
        return 1.0 + sum(self.survival[:known]) + self.survival[known - 1] * beyond

    def taus(self, ks: ArrayLike) -> NDArray[np.float64]:
        """`tau` of each of ``ks``, in their shape."""
        ks = np.asarray(ks)
        return np.array([self.tau(float(k)) for k in ks.ravel()]).reshape(ks.shape)


def geometric(alpha: float) -> AcceptanceCurve:
    """The same chance at every position."""
    return AcceptanceCurve(alpha)


def measured(tau: float, k: float) -> AcceptanceCurve:
    """The geometric curve through one measured mean acceptance length. Raises ImpossibleInput outside 1..K + 1."""
    if not 1.0 <= tau <= k + 1.0:
        raise ImpossibleInput(f"a mean acceptance length at K = {k:g} lies within 1..{k + 1:g}, not {tau:g}")
    return AcceptanceCurve(alpha_of(tau, k))


def surviving(survival: tuple[float, ...]) -> AcceptanceCurve:
    """Measured survival per position; past the last one, tokens are accepted as often as the last one given the one
    before."""
    if not survival:
        raise ImpossibleInput("survival needs at least one position")
    before = survival[-2] if len(survival) > 1 else 1.0
    return AcceptanceCurve(min(1.0, survival[-1] / before) if before > 0.0 else 0.0, survival)
