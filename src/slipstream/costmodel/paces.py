"""How many tokens a second a node makes in either role, by the profile that was measured on nodes like it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from slipstream.core.forecast import Forecast
from slipstream.core.node_state import NodeState
from slipstream.core.request import Pool
from slipstream.costmodel.forecasts import Profile, draft_length, forecast_of

__all__ = ["ProfilePaces"]


@dataclass(frozen=True, slots=True)
class ProfilePaces:
    """Of each node, by the file that its calibration was read from. Not known where ``outdated`` says that the node is
    no longer what was measured.
    """

    profiles: Mapping[str, Profile]
    outdated: Callable[[NodeState], bool]
    _made: dict[tuple[str, int], Forecast] = field(default_factory=dict, compare=False)

    def __call__(self, node: NodeState, pool: Pool, sequences: int, tau: float | None) -> float | None:
        """Tokens a second with so many sequences in that role; ``None`` = not known. ``tau`` is the mean acceptance
        length that the fleet has (1 and up), ``None`` = it has none yet.
        """
        calibration = node.spec.calibration
        if calibration is None or sequences < 1 or self.outdated(node):
            return None
        profile = self.profiles.get(calibration.file)  # it may be of a configuration before
        if profile is None:
            return None
        k, tokens = 0, 1.0
        if pool is Pool.SPECULATIVE:
            drafts = draft_length(profile, None if node.speculator is None else node.speculator.k)
            if drafts is None or tau is None:
                return None
            k, tokens = drafts, 1.0 + profile.proposing_share * (tau - 1.0)
        key = calibration.file, k
        if key not in self._made:
            self._made[key] = forecast_of(profile, k)
        forecast = self._made[key]
        known = min(sequences, forecast.most)
        return known * tokens / forecast.step_s(known, 0.0)
