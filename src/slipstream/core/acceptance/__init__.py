"""Acceptance: how much of what a speculator drafts its target keeps, measured, estimated and remembered.

`measures` names the quantities and converts between them; `sample` reads one request; `evidence` sums requests up;
`prior` says what is believed before; `estimate` puts them together; `book` keeps it all by model, speculator, category
and node, there also by occupancy (`by_occupancy`, `learned_times`) and across changes of what runs (`tenure`).
`counters` and `attribution` are for engines that count for the whole node only.
"""

from slipstream.core.acceptance.attribution import Attribution, AttributionWindow
from slipstream.core.acceptance.book import AcceptanceBook, AcceptanceKey
from slipstream.core.acceptance.by_occupancy import BUCKETS, OccupancyFigures
from slipstream.core.acceptance.counters import CounterDelta, CounterWindow
from slipstream.core.acceptance.estimate import (
    AcceptanceEstimate,
    Interval,
    Source,
    attributed_estimate,
    blended_estimate,
    measured_estimate,
    prior_estimate,
)
from slipstream.core.acceptance.evidence import HALF_LIFE, NO_EVIDENCE, Evidence, Ratio
from slipstream.core.acceptance.learned_times import LearnedTime
from slipstream.core.acceptance.measures import (
    DraftAcceptanceRatio,
    MeanAcceptanceLength,
    PerTokenAcceptance,
    ProposingShare,
    Survival,
    TokensPerStep,
    alpha_of,
    draft_acceptance_ratio_of,
    mean_acceptance_length_from_counts,
    mean_acceptance_length_from_ratio,
    mean_acceptance_length_from_survival,
    mean_acceptance_length_of,
    survival_of,
    tokens_per_step_of,
)
from slipstream.core.acceptance.prior import DEFAULT_ALPHAS, AcceptancePrior
from slipstream.core.acceptance.sample import SpeculationSample, Steps, steps_of
from slipstream.core.acceptance.tenure import AcceptanceFall, Identity, change_between

__all__ = [
    "BUCKETS",
    "DEFAULT_ALPHAS",
    "HALF_LIFE",
    "NO_EVIDENCE",
    "AcceptanceBook",
    "AcceptanceEstimate",
    "AcceptanceFall",
    "AcceptanceKey",
    "AcceptancePrior",
    "Attribution",
    "AttributionWindow",
    "CounterDelta",
    "CounterWindow",
    "DraftAcceptanceRatio",
    "Evidence",
    "Identity",
    "Interval",
    "LearnedTime",
    "MeanAcceptanceLength",
    "OccupancyFigures",
    "PerTokenAcceptance",
    "ProposingShare",
    "Ratio",
    "Source",
    "SpeculationSample",
    "Steps",
    "Survival",
    "TokensPerStep",
    "alpha_of",
    "attributed_estimate",
    "blended_estimate",
    "change_between",
    "draft_acceptance_ratio_of",
    "mean_acceptance_length_from_counts",
    "mean_acceptance_length_from_ratio",
    "mean_acceptance_length_from_survival",
    "mean_acceptance_length_of",
    "measured_estimate",
    "prior_estimate",
    "steps_of",
    "survival_of",
    "tokens_per_step_of",
]
