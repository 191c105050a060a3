"""Forecasts of the nodes of a fleet, out of the profiles that were measured on nodes like them.

A profile's times are means of an arm, so a forecast of a speculative node has the share of its steps that propose in
them already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from slipstream.core.forecast import Forecast
from slipstream.core.node import DEFAULT_MAX_IN_FLIGHT
from slipstream.core.node_state import NodeState
from slipstream.core.request import Pool
from slipstream.costmodel.profiles import LinearCosts, TableCosts, read_profile

__all__ = ["Profile", "ProfileForecasts", "draft_length", "forecast_of", "foretelling_profile"]

Profile: TypeAlias = LinearCosts | TableCosts

TOKENS: Final = (0.0, 1000.0)
"""Two lengths are enough for what lies on a line."""


@dataclass(frozen=True, slots=True)
class ProfileForecasts:
    """Of each node, by the file that its calibration was read from; alike where all profiles are. Not valid where
    ``outdated`` says that the node is no longer what was measured, or the profile has no times for what it drafts.
    """

    profiles: Mapping[str, Profile]
    outdated: Callable[[NodeState], bool]
    _made: dict[tuple[str, int], Forecast] = field(default_factory=dict, compare=False)

    def __call__(self, node: NodeState) -> Forecast | None:
        """The forecast of a node as it is equipped now; ``None`` = none is valid."""
        calibration = node.spec.calibration
        if calibration is None or self.outdated(node):
            return None
        profile = self.profiles.get(calibration.file)  # it may be of a configuration before
        k = None if profile is None else _drafts_now(profile, node)
        if profile is None or k is None:
            return None
        key = calibration.file, k
        if key not in self._made:
            self._made[key] = forecast_of(profile, k)
        return self._made[key]


def foretelling_profile(file: Path) -> Profile:
    """A profile from its file. Raises `ImpossibleInput` for one that can not be used, or not from one sequence on."""
    profile = read_profile(file)
    for k in (0,) if isinstance(profile, LinearCosts) else profile.step_s:
        forecast_of(profile, k)
    return profile


def forecast_of(profile: Profile, k: int) -> Forecast:
    """Of a node that drafts ``k`` tokens (0 = a standard one): as far as a table goes, and with a line as far as nodes
    go that do not say how many sequences they take.

    Raises `ImpossibleInput` for a draft length that a table does not have, or one without a batch size of 1.
    """
    if isinstance(profile, LinearCosts):
        most, contexts = DEFAULT_MAX_IN_FLIGHT, np.array(TOKENS)
        prompt_token_s = profile.prefill_token_s or profile.token_s
    else:
        points = profile.step_s.get(k, ((1.0, 0.0),))
        most, contexts = max(1, int(points[-1][0])), np.full(2, profile.context_tokens or 1.0)
        prompt_token_s = profile.prefill_token_s + (profile.drafter_prefill_token_s if k else 0.0)
    batches = np.arange(1.0, most + 1.0)[:, np.newaxis]
    seconds = profile.speculative_s(batches, k, contexts) if k else profile.standard_s(batches, contexts)
    return Forecast(
        TOKENS,
        tuple(tuple(row) for row in seconds.tolist()),
        (k,) * most,
        profile.proposing_share if k else 0.0,
        (0.0, prompt_token_s * TOKENS[1]),
        None,
    )


def draft_length(profile: Profile, k: int | None) -> int | None:
    """What a node drafts that says ``k``, as far as the profile has times for it; one that says nothing, or whose
    drafts vary, drafts what was measured, where that is one length. ``None`` = not known.
    """
    if isinstance(profile, LinearCosts):
        return k
    measured = [length for length in profile.step_s if length > 0]
    if k is None:
        return measured[0] if len(measured) == 1 else None
    return k if k in measured else None


def _drafts_now(profile: Profile, node: NodeState) -> int | None:
    if node.pool is Pool.STANDARD:
        return 0
    return None if node.speculator is None else draft_length(profile, node.speculator.k)
