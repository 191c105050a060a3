"""How predictions of a latency came true, learned from every answer: what they are mistaken by, and by how much."""

from __future__ import annotations

from math import exp, log, sqrt
from typing import Final

__all__ = ["TrackRecord"]

PRIOR: Final = 20.0
"""Answers that what is assumed beforehand is worth."""
REMEMBERED: Final = 200.0
"""Answers, by weight: older ones fade, since nodes and traffic change."""
USUAL: Final = 0.2
"""Assumed beforehand: predictions lie so far below the target, and are as far apart; relatively, as all of this."""
FLATTEST: Final = 0.3
STEEPEST: Final = 1.2
LEAST_SPREAD: Final = 0.03
OUTLYING: Final = 3.0
"""Spreads beyond which an answer counts as one that far off: a stalled client says nothing of its node."""
NEARNESS: Final = 4.0
LEAST_WEIGHT: Final = 0.05
LOGISTIC: Final = 1.702
"""A logistic curve that much steeper is within 0.01 of the normal distribution's."""
CERTAIN: Final = 50.0


class TrackRecord:
    """A line through the logarithms of what came true and what was predicted, both as shares of a target:
    ``log actual = level + slope * log predicted``, and the standard deviation ``spread`` about it.

    The slope is below 1 where a node that is fuller than usual soon empties, and one that is emptier fills: both were
    predicted to stay as they were. Least squares, in which an answer weighs the more the nearer to its target it was
    expected, since that is where a forecast decides.
    """

    __slots__ = ("_actual", "_predicted", "_weight", "_xx", "_xy", "_yy", "level", "slope", "spread")

    def __init__(self, level: float, spread: float) -> None:
        """``level`` and ``spread`` (above 0) are assumed until answers come, and a slope of 1."""
        self._weight = PRIOR
        self._predicted = -USUAL
        self._actual = level - USUAL
        self._xx = self._xy = PRIOR * USUAL * USUAL
        self._yy = self._xx + PRIOR * spread * spread
        self.level = level
        self.slope = 1.0
        self.spread = spread

    def add(self, predicted: float, actual: float) -> None:
        """An answer took ``actual`` times its target where ``predicted`` times was foretold, both above 0."""
        x, y = log(predicted), log(actual)
        expected = self.level + self.slope * x
        weight = max(LEAST_WEIGHT, exp(-NEARNESS * abs(expected)))
        y = min(max(y, expected - OUTLYING * self.spread), expected + OUTLYING * self.spread)
        if self._weight + weight > REMEMBERED:
            kept = (REMEMBERED - weight) / self._weight
            self._weight *= kept
            self._xx *= kept
            self._xy *= kept
            self._yy *= kept
        self._weight += weight
        share = weight / self._weight
        dx, dy = x - self._predicted, y - self._actual
        self._predicted += share * dx
        self._actual += share * dy
        news = weight * (1.0 - share)
        self._xx += news * dx * dx
        self._xy += news * dx * dy
        self._yy += news * dy * dy
        slope = self.slope = min(max(self._xy / self._xx, FLATTEST), STEEPEST)
        self.level = self._actual - slope * self._predicted
        variance = (self._yy - 2.0 * slope * self._xy + slope * slope * self._xx) / self._weight
        self.spread = sqrt(max(variance, LEAST_SPREAD * LEAST_SPREAD))

    def met(self, predicted: float, longer: float = 1.0) -> float:
        """The probability, 0..1, that what is predicted to take ``predicted`` times its target (above 0) keeps within
        it, were it then to take ``longer`` times as long: logistic in the logarithm.
        """
        exponent = LOGISTIC * (self.level + self.slope * log(predicted) + log(longer)) / self.spread
        if exponent > CERTAIN:
            return 0.0
        return 1.0 / (1.0 + exp(exponent))
