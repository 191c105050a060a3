"""The measures of acceptance, one type each, and the only functions that turn one into another.

They are easily mistaken for one another: at a draft length of 4, a per-token acceptance of 0.75 is a mean acceptance
length of 3.05 tokens, and shows on an engine's counters as a draft acceptance ratio of 0.51.

Sources: the geometric form is Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative Decoding"
(2023), equation 1; the survival form needs no assumption and holds for every speculator with a fixed draft length.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import expm1, log
from typing import NewType

__all__ = [
    "DraftAcceptanceRatio",
    "MeanAcceptanceLength",
    "PerTokenAcceptance",
    "ProposingShare",
    "Survival",
    "TokensPerStep",
    "alpha_of",
    "draft_acceptance_ratio_of",
    "mean_acceptance_length_from_counts",
    "mean_acceptance_length_from_ratio",
    "mean_acceptance_length_from_survival",
    "mean_acceptance_length_of",
    "survival_of",
    "tokens_per_step_of",
]

MeanAcceptanceLength = NewType("MeanAcceptanceLength", float)
"""`tau`: tokens emitted per verify step, bonus token included, 1..K+1. Conditional on proposing."""

TokensPerStep = NewType("TokensPerStep", float)
"""Tokens emitted per decode step, over steps that propose and steps that do not, 1..K+1. What a user feels."""

PerTokenAcceptance = NewType("PerTokenAcceptance", float)
"""`alpha`, 0..1. Means something only beside its draft length K; compare alphas of different K through `tau`."""

DraftAcceptanceRatio = NewType("DraftAcceptanceRatio", float)
"""Accepted over drafted tokens, 0..1. What engines count; not `alpha`."""

ProposingShare = NewType("ProposingShare", float)
"""`p`: share of decode steps that propose anything, 0..1. 1 for draft models and heads that always propose."""

Survival = NewType("Survival", tuple[float, ...])
"""`s_i`: share of verify steps in which draft position i was accepted, each 0..1, never rising with i."""

_ROUNDS = 100  # bisection alone would need 53


def mean_acceptance_length_of(alpha: float, k: float) -> MeanAcceptanceLength:
    """`tau = (1 − alpha^(K+1)) / (1 − alpha)`, and its limit K + 1 at alpha 1.

    ``alpha`` is 0..1, ``k`` the draft length (0 or more, need not be whole). Raises ValueError outside.
    """
    if not (0.0 <= alpha <= 1.0 and k >= 0.0):
        raise ValueError(f"per-token acceptance must be 0..1 and draft length not negative, not {alpha} and {k}")
    return MeanAcceptanceLength(_geometric_length(alpha, k))


def alpha_of(tau: float, k: float) -> PerTokenAcceptance:
    """The `alpha` at which `mean_acceptance_length_of(alpha, k)` is ``tau``.

    A ``tau`` of 1 or less gives 0, one of K + 1 or more gives 1: a measured ratio may leave the range by rounding.
    Raises ValueError when ``k`` is not positive, since nothing drafted says nothing about acceptance.
    """
    if not k > 0.0:
        raise ValueError(f"draft length must be positive, not {k}")
    if tau <= 1.0:
        return PerTokenAcceptance(0.0)
    if tau >= k + 1.0:
        return PerTokenAcceptance(1.0)
    # 1/(1 − alpha) bounds tau from above, so alpha can not be lower than 1 − 1/tau. The first guess takes the mean of
    # the survivals for their geometric mean, which is a little too high: Newton then comes down on the root without
    # overshooting.
    low, high = 1.0 - 1.0 / tau, 1.0
    alpha: float = min(1.0, ((tau - 1.0) / k) ** (2.0 / (k + 1.0)))  # a power of floats may be complex, to types
    if alpha <= low or alpha >= high:
        alpha = 0.5 * (low + high)
    n = k + 1.0
    for _ in range(_ROUNDS):
        rest = 1.0 - alpha
        missing = -expm1(n * log(alpha))  # 1 − alpha^n
        length = missing / rest
        if length > tau:
            high = alpha
        else:
            low = alpha
        slope = (length - n * (1.0 - missing) / alpha) / rest
        before = alpha
        alpha -= (length - tau) / slope if slope > 0.0 else 1.0
        if not low < alpha < high:
            alpha = 0.5 * (low + high)
            if low < alpha < high:
                continue
            break
        if abs(alpha - before) <= 1e-8:  # Newton squares the error: what is left is beyond the precision of a float
            break
    return PerTokenAcceptance(alpha)


def mean_acceptance_length_from_counts(accepted: float, verify_steps: float) -> MeanAcceptanceLength | None:
    """`tau = 1 + accepted / verify steps`, both summed over the window. ``None`` when there was no verify step."""
    return MeanAcceptanceLength(1.0 + accepted / verify_steps) if verify_steps > 0.0 else None


def mean_acceptance_length_from_survival(survival: Sequence[float]) -> MeanAcceptanceLength:
    """`tau = 1 + Σ s_i`, for a fixed draft length of ``len(survival)``; assumes nothing about how acceptance decays."""
    return MeanAcceptanceLength(1.0 + sum(survival))


def mean_acceptance_length_from_ratio(ratio: float, k: float) -> MeanAcceptanceLength:
    """`tau = 1 + K · ratio`, where every verify step drafts ``k`` tokens (or ``k`` is the mean over the same steps)."""
    return MeanAcceptanceLength(1.0 + k * ratio)


def draft_acceptance_ratio_of(tau: float, k: float) -> DraftAcceptanceRatio:
    """`(tau − 1) / K`: what an engine's counters show. Raises ValueError when ``k`` is not positive."""
    if not k > 0.0:
        raise ValueError(f"draft length must be positive, not {k}")
    return DraftAcceptanceRatio((tau - 1.0) / k)


def tokens_per_step_of(tau: float, proposing_share: float) -> TokensPerStep:
    """`1 + p·(tau − 1)`: tokens per decode step when a share ``proposing_share`` (0..1) of the steps proposes."""
    return TokensPerStep(1.0 + proposing_share * (tau - 1.0))


def survival_of(accepted_per_position: Sequence[float], verify_steps: float) -> Survival | None:
    """Survival from counts per draft position and the verify steps of the same window. ``None`` without a verify
    step."""
    if not verify_steps > 0.0:
        return None
    return Survival(tuple(accepted / verify_steps for accepted in accepted_per_position))


def _geometric_length(alpha: float, k: float) -> float:
    if alpha == 0.0:
        return 1.0
    if alpha == 1.0:
        return k + 1.0
    # expm1 keeps full precision where alpha is close to 1 and both parts of the fraction vanish.
    return -expm1((k + 1.0) * log(alpha)) / (1.0 - alpha)
