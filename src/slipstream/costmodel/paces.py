"""How many tokens a second a node makes in either role, by the profile that was measured on nodes like it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slipstream.core.node_state import NodeState
from slipstream.core.request import Pool
from slipstream.costmodel.forecasts import Profile, forecast_of
from slipstream.costmodel.profiles import LinearCosts

__all__ = ["ProfilePaces"]


@dataclass(frozen=True, slots=True)
class ProfilePaces:
    """Of each node, by the file that its calibration was read from. ``tau`` gives the mean acceptance length that the
    fleet has (1 and up), ``None`` = it has none yet. Not known where ``outdated`` says that the node is no longer what
    was measured.
    """

    profiles: Mapping[str, Profile]
    outdated: Callable[[NodeState], bool]

    def __call__(self, node: NodeState, pool: Pool, sequences: int, tau: float | None) -> float | None:
        """Tokens a second with so many sequences in that role; ``None`` = not known."""
        calibration = node.spec.calibration
        if calibration is None or sequences < 1 or self.outdated(node):
            return None
        profile = self.profiles[calibration.file]
        k, tokens = 0, 1.0
        if pool is Pool.SPECULATIVE:
            drafts = _draft_length(profile, node)
            if drafts is None or tau is None:
                return None
            k, tokens = drafts, 1.0 + profile.proposing_share * (tau - 1.0)
        forecast = forecast_of(profile, k)
        known = min(sequences, forecast.most)
        return known * tokens / forecast.step_s(known, 0.0)


def _draft_length(profile: Profile, node: NodeState) -> int | None:
    """What a node drafts, or would: what it says, or the one draft length that was measured."""
    k = None if node.speculator is None else node.speculator.k
    if isinstance(profile, LinearCosts):
        return k
    measured = [length for length in profile.step_s if length > 0]
    return k if k in measured else measured[0] if len(measured) == 1 else None
