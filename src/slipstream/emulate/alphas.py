"""How likely each draft token is accepted, by category of request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import sqrt
from random import Random

__all__ = ["Alphas", "accepted_tokens", "parse_alphas"]

DEFAULT_ALPHA = 0.6


@dataclass(frozen=True, slots=True)
class Alphas:
    """Per-token acceptance (0..1): ``others`` for each category without its own in ``by_category``.

    ``spread`` is the standard deviation between requests of one category, drawn from a beta distribution; 0 = none.
    With a spread the mean of `tau` is a little above `tau` of the mean alpha, since `tau` grows faster than alpha.
    Raises ``ValueError`` outside of these ranges, or for a spread that no beta distribution of such a mean has.
    """

    others: float = DEFAULT_ALPHA
    by_category: Mapping[str, float] = field(default_factory=dict)
    spread: float = 0.0

    def __post_init__(self) -> None:
        for alpha in (self.others, *self.by_category.values()):
            if not 0.0 <= alpha <= 1.0:
                raise ValueError(f"per-token acceptance is 0..1, not {alpha:g}")
            if self.spread < 0.0 or (self.spread and self.spread**2 >= alpha * (1.0 - alpha)):
                raise ValueError(
                    f"a spread around {alpha:g} must be under {sqrt(alpha * (1.0 - alpha)):g}, not {self.spread:g}"
                )

    def draw(self, category: str, chance: Random) -> float:
        """The alpha of one request."""
        mean = self.by_category.get(category, self.others)
        if not self.spread:
            return mean
        weight = mean * (1.0 - mean) / self.spread**2 - 1.0
        return chance.betavariate(mean * weight, (1.0 - mean) * weight)


def accepted_tokens(alpha: float, drafted: int, chance: Random) -> int:
    """How many of ``drafted`` tokens are accepted: each with probability ``alpha``, none behind a rejected one."""
    for accepted in range(drafted):
        if chance.random() >= alpha:
            return accepted
    return drafted


def parse_alphas(text: str, spread: float = 0.0) -> Alphas:
    """Read ``0.6``, ``code=0.85,chat=0.4`` or both; a number without a category is for all others.

    Raises ``ValueError`` with a sentence.
    """
    others = DEFAULT_ALPHA
    by_category: dict[str, float] = {}
    for part in text.split(","):
        category, equals, number = part.strip().rpartition("=")
        try:
            alpha = float(number)
        except ValueError:
            raise ValueError(f"{part.strip()!r} is no acceptance: write 0.6, or code=0.85,chat=0.4") from None
        if not equals:
            others = alpha
        elif category:
            by_category[category] = alpha
        else:
            raise ValueError(f"{part.strip()!r} names no category")
    return Alphas(others, by_category, spread)
