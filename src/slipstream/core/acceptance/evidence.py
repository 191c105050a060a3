"""What finished requests have said about acceptance, as sums that forget.

The request is the unit of observation: tokens of one request are accepted or rejected together (one prompt is easy,
another is not), so counting each token as a trial would claim certainty that is not there. Both ratios of interest,
accepted tokens per verify step and per decode step, are ratios of sums over requests, and their variance is that of a
ratio estimator: `Var(R) ≈ n/(n−1) · Σ (x_i − R·y_i)² / (Σ y_i)²` (Cochran, "Sampling Techniques", 3rd edition, section
6.4), here with weights.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

from slipstream.core.acceptance.counters import CounterDelta
from slipstream.core.acceptance.sample import SpeculationSample, Steps

__all__ = ["HALF_LIFE", "NO_EVIDENCE", "Evidence", "Ratio"]

HALF_LIFE = 600.0
"""Seconds after which a request weighs half of what it did."""


class Ratio(NamedTuple):
    """A ratio of sums over requests. ``error`` is its standard error, ``None`` below two effective requests."""

    value: float
    error: float | None
    effective_requests: float


class Evidence(NamedTuple):
    """Immutable sums over requests; a named tuple because one is built for every response, on the gateway's hot path.

    ``at`` is the time of the last request, in seconds. The plain sums are forgotten exponentially: ``weight`` of
    requests, ``drafted`` and ``accepted`` tokens, ``verify`` and ``decode`` steps. The others are sums of products, in
    which each request carries the square of its weight: ``accepted_accepted`` and so on. ``requests``,
    ``total_drafted`` and ``total_accepted`` are never forgotten.
    """

    at: float
    weight: float
    drafted: float
    accepted: float
    verify: float
    decode: float
    accepted_accepted: float
    accepted_verify: float
    verify_verify: float
    accepted_decode: float
    decode_decode: float
    requests: int
    total_drafted: int
    total_accepted: int

    def credited(self, sample: SpeculationSample, steps: Steps, now: float, half_life: float = HALF_LIFE) -> Evidence:
        """This evidence and one request more, finished at ``now`` (a time before the last counts as the last)."""
        (
            at, weight, drafted, accepted, verify, decode,
            accepted_accepted, accepted_verify, verify_verify, accepted_decode, decode_decode,
            requests, total_drafted, total_accepted,
        ) = self  # fmt: skip
        fade = 1.0
        if now > at:
            fade = 0.5 ** ((now - at) / half_life)
            at = now
        fade_squared = fade * fade
        x, y, z = sample.accepted, steps.verify, steps.decode
        return tuple.__new__(  # what Evidence(...) would do, without the detour through its keyword arguments
            Evidence,
            (
                at,
                weight * fade + 1.0,
                drafted * fade + sample.drafted,
                accepted * fade + x,
                verify * fade + y,
                decode * fade + z,
                accepted_accepted * fade_squared + x * x,
                accepted_verify * fade_squared + x * y,
                verify_verify * fade_squared + y * y,
                accepted_decode * fade_squared + x * z,
                decode_decode * fade_squared + z * z,
                requests + 1,
                total_drafted + sample.drafted,
                total_accepted + x,
            ),
        )

    def counted(self, delta: CounterDelta, now: float, half_life: float = HALF_LIFE) -> Evidence:
        """This evidence and what a node's counters moved by. They hide the single requests, so nothing is added to
        those.

        A delta that lacks one of drafted, accepted and verify steps adds nothing.
        """
        if delta.drafted is None or delta.accepted is None or delta.verify_steps is None:
            return self
        at = max(self.at, now)
        fade = 0.5 ** ((at - self.at) / half_life)
        return self._replace(
            at=at,
            drafted=self.drafted * fade + delta.drafted,
            accepted=self.accepted * fade + delta.accepted,
            verify=self.verify * fade + delta.verify_steps,
            decode=self.decode * fade + (delta.decode_steps or 0.0),
            total_drafted=self.total_drafted + round(delta.drafted),
            total_accepted=self.total_accepted + round(delta.accepted),
        )

    def merged(self, other: Evidence, half_life: float = HALF_LIFE) -> Evidence:
        """The evidence of both, as of the later of the two."""
        if self.requests == 0 or other.requests == 0:
            return self if other.requests == 0 else other
        old, new = (self, other) if self.at <= other.at else (other, self)
        fade = 0.5 ** ((new.at - old.at) / half_life)
        plain = (mine * fade + its for mine, its in zip(old[1:6], new[1:6], strict=True))
        squared = (mine * fade * fade + its for mine, its in zip(old[6:11], new[6:11], strict=True))
        counts = (mine + its for mine, its in zip(old[11:], new[11:], strict=True))
        return Evidence(new.at, *plain, *squared, *counts)

    def accepted_per_verify_step(self) -> Ratio | None:
        """`tau − 1`. ``None`` without a verify step."""
        return _ratio(self.accepted, self.verify, self.accepted_accepted, self.accepted_verify, self.verify_verify)

    def accepted_per_decode_step(self) -> Ratio | None:
        """Tokens per step, less 1. ``None`` without a decode step."""
        return _ratio(self.accepted, self.decode, self.accepted_accepted, self.accepted_decode, self.decode_decode)


NO_EVIDENCE = Evidence(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0, 0)


def _ratio(x: float, y: float, xx: float, xy: float, yy: float) -> Ratio | None:
    if not y > 0.0:
        return None
    value = x / y
    if not yy > 0.0:
        return Ratio(value, None, 0.0)
    # Long requests say more, and old ones less: as many requests of one size and age would say as much.
    effective = y * y / yy
    if effective < 2.0:
        return Ratio(value, None, effective)
    squared_residuals = max(0.0, xx - 2.0 * value * xy + value * value * yy)
    return Ratio(value, sqrt(squared_residuals * effective / (effective - 1.0)) / y, effective)
