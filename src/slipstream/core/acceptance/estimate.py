"""What is known about the acceptance of something: figures, how sure they are, and what they rest on."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from slipstream.core.acceptance.evidence import NO_EVIDENCE, Evidence, Ratio
from slipstream.core.acceptance.measures import (
    DraftAcceptanceRatio,
    MeanAcceptanceLength,
    PerTokenAcceptance,
    ProposingShare,
    TokensPerStep,
    alpha_of,
    mean_acceptance_length_from_counts,
    mean_acceptance_length_of,
    tokens_per_step_of,
)
from slipstream.core.acceptance.prior import AcceptancePrior
from slipstream.core.acceptance.sample import always_proposes
from slipstream.core.acceptance.student import t_quantile_97_5
from slipstream.core.node import Speculator

__all__ = [
    "AcceptanceEstimate",
    "Interval",
    "Source",
    "attributed_estimate",
    "blended_estimate",
    "measured_estimate",
    "prior_estimate",
]

Interval: TypeAlias = tuple[float, float]
"""Lower and upper end of a 95 % interval."""

Source: TypeAlias = Literal["prior", "blended", "measured", "attributed", "counters"]
"""What an estimate rests on.

``prior``: belief alone, evidence is too thin. ``blended``: per-request evidence and prior. ``measured``: per-request
evidence alone. ``attributed``: a node's counters, split over categories. ``counters``: a node's counters, not split.
"""


class AcceptanceEstimate(NamedTuple):
    """An estimate as of the last evidence; time alone never changes it. A named tuple for the reason that evidence is.

    ``tau`` (1..K+1), ``alpha`` (0..1, for the draft length ``k`` beside it), ``tokens_per_step`` (1..K+1) and
    ``proposing_share`` (0..1) are ``None`` when unknown. ``k`` is the mean draft length of the steps measured, so not
    always whole. ``evidence`` holds the sums over requests (or, of a node, over its counters); ``attributed`` is the
    ratio that a split of counters gave, ``None`` unless that is the source.
    """

    source: Source
    tau: MeanAcceptanceLength | None
    alpha: PerTokenAcceptance | None
    k: float | None
    tokens_per_step: TokensPerStep | None
    proposing_share: ProposingShare | None
    evidence: Evidence
    attributed: Ratio | None = None

    @property
    def accepted_per_verify_step(self) -> Ratio | None:
        """`tau − 1` of the evidence alone, without the prior; ``None`` where there is none, or it is not used."""
        if self.source == "prior":
            return None
        if self.source == "attributed":
            return self.attributed if self.tau is not None else None
        return self.evidence.accepted_per_verify_step()

    @property
    def accepted_per_decode_step(self) -> Ratio | None:
        """Tokens per step, less 1, of the evidence alone; ``None`` where there is none, or it is not used."""
        if self.source == "prior":
            return None
        return self.attributed if self.source == "attributed" else self.evidence.accepted_per_decode_step()

    @property
    def tau_interval(self) -> Interval | None:
        """95 % interval of ``tau``, the request as the unit; ``None`` below two effective requests or without evidence.

        It rests on the evidence alone, widened where needed to hold the blended figure: a prior adds no certainty.
        """
        return _interval(self.accepted_per_verify_step, self.tau, self.k)

    @property
    def alpha_interval(self) -> Interval | None:
        """95 % interval of ``alpha``: the ends of ``tau_interval`` at the same draft length."""
        ends = self.tau_interval
        if ends is None or self.k is None:
            return None
        return alpha_of(ends[0], self.k), alpha_of(ends[1], self.k)

    @property
    def tokens_per_step_interval(self) -> Interval | None:
        """95 % interval of ``tokens_per_step``, made like ``tau_interval``."""
        return _interval(self.accepted_per_decode_step, self.tokens_per_step, self.k)

    @property
    def draft_acceptance_ratio(self) -> DraftAcceptanceRatio | None:
        """Accepted over drafted tokens of the evidence, 0..1. Not ``alpha``. ``None`` when nothing was drafted."""
        drafted = self.evidence.drafted
        return DraftAcceptanceRatio(self.evidence.accepted / drafted) if drafted > 0.0 else None

    @property
    def requests(self) -> int:
        """Requests that ever gave evidence."""
        return self.evidence.requests

    @property
    def effective_requests(self) -> float:
        """As many equally long, equally recent requests would say as much on ``tau``; 0 without evidence."""
        ratio = self.accepted_per_verify_step
        return ratio.effective_requests if ratio is not None else 0.0


def measured_estimate(evidence: Evidence, source: Source = "measured") -> AcceptanceEstimate:
    """What the evidence says by itself; every figure it says nothing on is ``None``."""
    tau = mean_acceptance_length_from_counts(evidence.accepted, evidence.verify)
    k = evidence.drafted / evidence.verify if tau is not None else None
    return _estimate(source, tau, k, evidence.verify, evidence.decode, evidence)


def prior_estimate(
    category: str, prior: AcceptancePrior, speculator: Speculator, evidence: Evidence = NO_EVIDENCE
) -> AcceptanceEstimate:
    """What is believed of ``category``. ``evidence``, too thin to be used, is kept for its sums."""
    k = _draft_length(evidence, prior, speculator)
    alpha = prior.alpha(category)
    tau = mean_acceptance_length_of(alpha, k)
    tokens_per_step = prior.tokens_per_step(category, speculator, k)
    share = prior.proposing_share(speculator, k)
    return AcceptanceEstimate("prior", tau, PerTokenAcceptance(alpha), k, tokens_per_step, share, evidence)


def blended_estimate(
    category: str, prior: AcceptancePrior, speculator: Speculator, evidence: Evidence
) -> AcceptanceEstimate:
    """The evidence with the prior blended in: ``prior.requests`` requests more, of the mean length seen, that went as
    believed. Below that many requests of evidence, ever, or before any decoded a step, the prior holds alone.
    """
    if evidence.requests < prior.requests or evidence.decode <= 0.0:
        return prior_estimate(category, prior, speculator, evidence)
    k = _draft_length(evidence, prior, speculator)
    believed_decode = evidence.decode * prior.requests / evidence.weight
    believed_verify = believed_decode * prior.proposing_share(speculator, k)
    believed_accepted = believed_verify * (mean_acceptance_length_of(prior.alpha(category), k) - 1.0)
    verify = evidence.verify + believed_verify
    tau = mean_acceptance_length_from_counts(evidence.accepted + believed_accepted, verify)
    return _estimate("blended", tau, k, verify, evidence.decode + believed_decode, evidence)


def attributed_estimate(
    ratio: Ratio, speculator: Speculator, k: float | None, evidence: Evidence
) -> AcceptanceEstimate:
    """What a split of node counters says of a category: ``ratio`` tokens accepted per decode step, at mean draft
    length ``k``.

    How often a speculator that does not always propose did so for this category can not be told, so neither can
    ``tau``.
    """
    tokens_per_step = TokensPerStep(1.0 + ratio.value)
    if not always_proposes(speculator) or k is None or k <= 0.0:
        return AcceptanceEstimate("attributed", None, None, None, tokens_per_step, None, evidence, ratio)
    tau = MeanAcceptanceLength(tokens_per_step)
    share = ProposingShare(1.0)
    return AcceptanceEstimate("attributed", tau, alpha_of(tau, k), k, tokens_per_step, share, evidence, ratio)


def _estimate(
    source: Source,
    tau: MeanAcceptanceLength | None,
    k: float | None,
    proposing: float,
    steps: float,
    evidence: Evidence,
) -> AcceptanceEstimate:
    share = ProposingShare(min(1.0, proposing / steps)) if steps > 0.0 else None
    return AcceptanceEstimate(
        source,
        tau,
        alpha_of(tau, k) if tau is not None and k is not None and k > 0.0 else None,
        k,
        tokens_per_step_of(tau if tau is not None else 1.0, share) if share is not None else None,
        share,
        evidence,
    )


def _draft_length(evidence: Evidence, prior: AcceptancePrior, speculator: Speculator) -> float:
    return evidence.drafted / evidence.verify if evidence.verify > 0.0 else prior.draft_length(speculator)


def _interval(ratio: Ratio | None, figure: float | None, k: float | None) -> Interval | None:
    if ratio is None or ratio.error is None or figure is None:
        return None
    half_width = t_quantile_97_5(ratio.effective_requests - 1.0) * ratio.error
    low = max(1.0, 1.0 + ratio.value - half_width)
    high = 1.0 + ratio.value + half_width
    if k is not None:
        high = min(high, k + 1.0)
    return min(low, figure), max(high, figure)
