"""The pace of ``slipstream emulate``: step times out of a profile, or computed for a model on its hardware."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slipstream.cli.crossover_modelled import deployment_of, speculator_of
from slipstream.cli.crossover_question import Acceptance, Candidate
from slipstream.core.node import SpeculatorKind
from slipstream.costmodel.costs import RooflineCosts
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.memory import kv_token_capacity
from slipstream.costmodel.profiles import article_1, read_profile
from slipstream.costmodel.speculator import Speculator, ngram
from slipstream.costmodel.steps import step_rows
from slipstream.emulate import Pace

__all__ = ["Hardware", "paced_by_model", "paced_by_profile"]

NGRAM_SHARE = 0.5
"""Of the steps that draft where nothing is said, as at a constant pace."""
ANY_K = 1


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a model runs on; ``None`` = not said. ``replicated``: its draft model lies whole on each GPU."""

    hardware: str | None
    gpus: int
    engine: str
    weights: str | None
    kv_dtype: str
    replicated: bool


def paced_by_profile(profile: str, proposing_share: float | None, kv_tokens: int | None) -> tuple[Pace, float | None]:
    """The pace of a profile's file or of ``article-1``, and the share of steps that draft: the profile's where it is
    not given, ``None`` = neither says. Raises `ImpossibleInput` for a file that is no profile.
    """
    costs = article_1() if profile == "article-1" else read_profile(Path(profile))
    if proposing_share is None and costs.proposing_share < 1.0:
        proposing_share = costs.proposing_share
    return Pace(step_rows(costs), kv_tokens), proposing_share


def paced_by_model(
    target: str, on: Hardware, speculator: str, proposing_share: float | None, kv_tokens: int | None
) -> tuple[Pace, SpeculatorKind | None, float | None]:
    """The pace of ``target``, of what kind its speculator is, and the share of steps that draft.

    ``kv_tokens`` ``None``: what fits beside the weights. Raises `ImpossibleInput` for what no catalogue has, and for
    what does not fit.
    """
    deployment = deployment_of(target, on.hardware, on.engine, on.gpus, on.weights, on.kv_dtype)
    drafts: Speculator | None = None
    kind: SpeculatorKind | None = None
    if speculator == "ngram":
        kind, drafts = SpeculatorKind.NGRAM, ngram(NGRAM_SHARE if proposing_share is None else proposing_share)
    elif speculator != "none":
        candidate = Candidate(speculator, Acceptance(), ANY_K, proposing_share)
        kind, drafts = SpeculatorKind.DRAFT, speculator_of(candidate, deployment.model, sharded=not on.replicated)
    if on.replicated and kind is not SpeculatorKind.DRAFT:
        raise ImpossibleInput("--replicated only counts beside a draft model")
    rows = step_rows(deployment if drafts is None else RooflineCosts(deployment, drafts))
    return (
        Pace(rows, kv_token_capacity(deployment, drafts) if kv_tokens is None else kv_tokens),
        kind,
        proposing_share if drafts is None else drafts.proposing_share,
    )
