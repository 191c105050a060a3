"""The acceptance of single requests of a category: alike within a request, different between them.

A category is known by its survival, the share of verify steps in which each draft position is accepted, over all its
requests. How well a text can be drafted differs from request to request, and all tokens of one share that. Here each
position has, over the requests, a Beta distribution with the category's survival as its mean, and a request has one
quantile for all positions: who is easier at one is easier at each. Beta distributions of one concentration are ordered
as their means are, so a request's survival never rises with the position, whatever the category's is, and the mean over
requests is exactly the category's. (One alpha a request, drawn from a Beta distribution, can not give that: the mean of
alpha^i is more than the i-th power of the mean.)
"""

from __future__ import annotations

from itertools import pairwise
from math import sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv

from slipstream.core.acceptance import alpha_of, mean_acceptance_length_from_survival
from slipstream.enginemodel.settings import ImpossibleEngine

__all__ = ["CLASSES", "RequestAcceptance", "survival_of"]

CLASSES: Final = 64
"""Into how many classes of equal size requests are sorted by how well they can be drafted."""

_LEAST_CONCENTRATION: Final = 0.5
"""Below it most requests would have everything accepted, or nothing."""

_MOST_CONCENTRATION: Final = 1e8
"""Above it all are as good as alike."""


def survival_of(alpha: float, k: int) -> tuple[float, ...]:
    """`s_i = alpha^i`, the survival at per-token acceptance ``alpha`` (0..1) and draft length ``k``."""
    return tuple(alpha**position for position in range(1, k + 1))


class RequestAcceptance:
    """The survival of each request of a category. ``survival`` is the category's; ``k`` the longest draft, for which
    it is cut, or continued at its last position's conditional rate. ``spread`` is the standard deviation of requests'
    alpha (to first order; 0 = all alike).

    Raises `ImpossibleEngine` for a survival that is none, and a spread that this acceptance leaves no room for.
    """

    __slots__ = ("_classes",)

    def __init__(self, survival: tuple[float, ...], spread: float, k: int) -> None:
        if any(not 0.0 <= share <= 1.0 for share in survival) or any(
            later > earlier for earlier, later in pairwise(survival)
        ):
            raise ImpossibleEngine(f"survival is shares of 0..1 that never rise, not {', '.join(map(str, survival))}")
        if not spread >= 0.0:
            raise ImpossibleEngine(f"a spread is 0 or more, not {spread:g}")
        whole = _of_length(survival, k)
        self._classes: list[tuple[float, ...]] = (
            _classes(whole, _concentration(whole, spread)) if spread > 0.0 and sum(whole) > 0.0 else [whole] * CLASSES
        )

    def at(self, quantile: float) -> tuple[float, ...]:
        """The survival of the request at that ``quantile``, 0..1, of its category: 0 the hardest to draft."""
        return self._classes[min(CLASSES - 1, int(quantile * CLASSES))]


def _of_length(survival: tuple[float, ...], k: int) -> tuple[float, ...]:
    if len(survival) >= k:
        return survival[:k]
    if not survival:
        return (0.0,) * k
    before = survival[-2] if len(survival) > 1 else 1.0
    rate = survival[-1] / before if before > 0.0 else 0.0
    more = (survival[-1] * rate**position for position in range(1, k - len(survival) + 1))
    return (*survival, *more)


def _concentration(survival: tuple[float, ...], spread: float) -> float:
    """The concentration at which requests' mean acceptance length differs as much as ``spread`` of alpha makes it.

    A Beta distribution of mean s and concentration c has the standard deviation `√(s(1−s)/(c+1))`, and with one
    quantile for all positions their deviations add up; alpha moves `tau` by `Σ i·alpha^(i−1)`.
    """
    alpha = alpha_of(mean_acceptance_length_from_survival(survival), len(survival))
    slope = sum(position * alpha ** (position - 1) for position in range(1, len(survival) + 1))
    unconcentrated = sum(sqrt(share * (1.0 - share)) for share in survival) / slope
    most = unconcentrated / sqrt(_LEAST_CONCENTRATION + 1.0)
    if spread > most:
        raise ImpossibleEngine(
            f"requests with a per-token acceptance of {alpha:.2f} on average can not have a spread of {spread:g}, "
            f"but {most:.3f} at most"
        )
    ratio = unconcentrated / spread
    return min(ratio * ratio - 1.0, _MOST_CONCENTRATION)


def _classes(survival: tuple[float, ...], concentration: float) -> list[tuple[float, ...]]:
    columns = [_class_means(share, concentration) for share in survival]
    # What the functions above leave of rounding must not make a later position likelier.
    return [tuple(float(share) for share in np.minimum.accumulate(row)) for row in np.stack(columns, axis=1)]


def _class_means(mean: float, concentration: float) -> NDArray[np.float64]:
    """The mean of each class of a Beta distribution: `E[X; X < x] = mean · I_x(a + 1, b)`."""
    if mean == 0.0:
        return np.zeros(CLASSES)
    if mean > 0.5:  # its quantiles would come too close to 1 to be told from it
        return 1.0 - _class_means(1.0 - mean, concentration)[::-1]
    a, b = mean * concentration, (1.0 - mean) * concentration
    below = np.zeros(CLASSES + 1)
    below[1:-1] = betainc(a + 1.0, b, betaincinv(a, b, np.arange(1, CLASSES) / CLASSES))
    below[-1] = 1.0
    means: NDArray[np.float64] = np.clip(np.diff(below) * mean * CLASSES, 0.0, 1.0)
    return means
