"""Where step times come from: one protocol, so that a curve does not know whether it was computed, fitted or
measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slipstream.costmodel.arms import ZERO_DRAFT_TAX, speculative_step_s
from slipstream.costmodel.roofline import Deployment, prefill_s, standard_step_s
from slipstream.costmodel.speculator import Speculator, drafter_prefill_s

__all__ = ["Costs", "RooflineCosts"]

Seconds = NDArray[np.float64]


class Costs(Protocol):
    """Step times of one target with one speculator. All arguments broadcast; all results are seconds."""

    @property
    def proposing_share(self) -> float:
        """p, 0..1: share of a request's steps that propose anything."""

    def standard_s(self, batch_size: ArrayLike, context: ArrayLike) -> Seconds:
        """A decode step without speculation."""

    def speculative_s(self, batch_size: ArrayLike, k: ArrayLike, context: ArrayLike) -> Seconds:
        """A verify step at draft length ``k``, drafting included."""

    def prefill_s(self, prompt_tokens: ArrayLike) -> tuple[Seconds, Seconds]:
        """One prompt: in the standard arm, and what the drafter adds in the speculative arm."""


@dataclass(frozen=True, slots=True)
class RooflineCosts:
    """Computed from a datasheet and a model card. ``verified`` as in `speculative_step_s`: given for trees only."""

    deployment: Deployment
    speculator: Speculator
    verified: int | None = None
    zero_draft_tax: float = ZERO_DRAFT_TAX

    @property
    def proposing_share(self) -> float:
        return self.speculator.proposing_share

    def standard_s(self, batch_size: ArrayLike, context: ArrayLike) -> Seconds:
        return standard_step_s(self.deployment, batch_size, context)

    def speculative_s(self, batch_size: ArrayLike, k: ArrayLike, context: ArrayLike) -> Seconds:
        return speculative_step_s(
            self.deployment,
            self.speculator,
            batch_size,
            k,
            context,
            verified=self.verified,
            zero_draft_tax=self.zero_draft_tax,
        )

    def prefill_s(self, prompt_tokens: ArrayLike) -> tuple[Seconds, Seconds]:
        return (
            prefill_s(self.deployment, prompt_tokens),
            drafter_prefill_s(self.deployment, self.speculator, prompt_tokens),
        )
