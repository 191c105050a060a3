"""What is believed about acceptance before there is evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from slipstream.core.acceptance.measures import ProposingShare, TokensPerStep, mean_acceptance_length_of
from slipstream.core.acceptance.sample import always_proposes
from slipstream.core.node import Speculator

__all__ = ["DEFAULT_ALPHAS", "AcceptancePrior"]

DEFAULT_ALPHAS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "code": 0.75,
        "edit": 0.75,
        "structured": 0.75,
        "math": 0.7,
        "summarization": 0.65,
        "retrieval": 0.65,
        "chat": 0.5,
    }
)
"""Per-token acceptance by category; every category not named here has the prior of ``AcceptancePrior.other``."""


@dataclass(frozen=True, slots=True)
class AcceptancePrior:
    """Beliefs by category, given in as data.

    ``alphas`` are per-token acceptances (0..1) by category, ``other`` that of every category not named. The prior is
    worth ``requests`` requests: with fewer of evidence it holds alone, from then on it is blended in at that weight.
    ``k`` is the draft length assumed where a speculator's own is unknown (the published figures are for 4).

    ``alpha_floor`` and ``tokens_per_step_floor`` are the two break-even points between which ``proposing_share``
    translates.
    """

    alphas: Mapping[str, float] = field(default_factory=lambda: DEFAULT_ALPHAS)
    other: float = 0.6
    requests: float = 10.0
    k: float = 4.0
    alpha_floor: float = 0.6
    tokens_per_step_floor: float = 1.3

    def alpha(self, category: str) -> float:
        """Per-token acceptance believed of ``category``, 0..1."""
        return self.alphas.get(category, self.other)

    def draft_length(self, speculator: Speculator) -> float:
        """The speculator's own draft length, or ``k`` where that is unknown or varies."""
        return float(speculator.k) if speculator.k else self.k

    def proposing_share(self, speculator: Speculator, k: float) -> ProposingShare:
        """The share of decode steps in which ``speculator`` is believed to propose, 0..1.

        1 for draft models and heads. One that drafts only when something matches is believed to propose just so often
        that a category at the alpha floor stands exactly at the floor of tokens per step: a category is then given a
        try on an n-gram node if, and only if, it would be given one on a node with a draft model. It comes to 0.26 at
        K = 3 and 0.23 at K = 4, inside the 0.085 to 0.37 fitted to published n-gram runs.
        """
        if always_proposes(speculator):
            return ProposingShare(1.0)
        at_floor = mean_acceptance_length_of(self.alpha_floor, k) - 1.0
        return ProposingShare(min(1.0, (self.tokens_per_step_floor - 1.0) / at_floor) if at_floor > 0.0 else 1.0)

    def tokens_per_step(self, category: str, speculator: Speculator, k: float) -> TokensPerStep:
        """Tokens per decode step believed of ``category`` at draft length ``k``."""
        share = self.proposing_share(speculator, k)
        gain = mean_acceptance_length_of(self.alpha(category), k) - 1.0
        if share == 1.0:
            return TokensPerStep(1.0 + gain)
        # The quotient first, so that a category exactly at the one floor is exactly at the other, and so not above it.
        at_floor = mean_acceptance_length_of(self.alpha_floor, k) - 1.0
        return TokensPerStep(1.0 + (self.tokens_per_step_floor - 1.0) * (gain / at_floor))
