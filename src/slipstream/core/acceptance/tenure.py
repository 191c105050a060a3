"""What a node's acceptance was before and after a change of what runs there: another version, speculator, a restart."""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

from slipstream.core.acceptance.evidence import NO_EVIDENCE, Evidence
from slipstream.core.acceptance.sample import SpeculationSample, Steps

__all__ = ["AcceptanceFall", "Identity", "Tenure", "change_between", "fall"]

MINIMUM_REQUESTS = 50
LEAST_SHARE = 0.1
ERRORS_APART = 3.0


class Identity(NamedTuple):
    """What runs on a node, as it says itself. ``None`` = it does not say."""

    engine: str | None = None
    version: str | None = None
    speculator: str | None = None


class AcceptanceFall(NamedTuple):
    """Acceptance is lower than before a change.

    ``change`` says in words what changed and ``at`` when. ``tau`` is what is seen since; ``expected_tau`` is what the
    acceptance before would have given for the categories served since, so a change of traffic alone is no fall.
    ``requests_before`` and ``requests`` is the evidence on both sides.
    """

    change: str
    at: float
    expected_tau: float
    tau: float
    requests_before: int
    requests: int


class _Sums:
    __slots__ = ("accepted", "verify")

    def __init__(self) -> None:
        self.accepted = 0.0
        self.verify = 0.0


class Tenure:
    """The time between two changes: evidence as a whole, and accepted tokens and verify steps by category."""

    __slots__ = ("by_category", "change", "evidence", "since")

    def __init__(self, change: str = "", since: float = 0.0) -> None:
        self.change = change
        self.since = since
        self.evidence: Evidence = NO_EVIDENCE
        self.by_category: dict[str, _Sums] = {}

    def credit(
        self, category: str, sample: SpeculationSample, steps: Steps, now: float, half_life: float, weight: float
    ) -> None:
        """Take in one request. ``weight`` is that of a `FadingClock`."""
        self.evidence = self.evidence.credited(sample, steps, now, half_life)
        sums = self.by_category.get(category)
        if sums is None:
            sums = self.by_category[category] = _Sums()
        sums.accepted += weight * sample.accepted
        sums.verify += weight * steps.verify

    def scale(self, factor: float) -> None:
        """Multiply the sums by category, when the clock was rebased."""
        for sums in self.by_category.values():
            sums.accepted *= factor
            sums.verify *= factor

    @property
    def tells(self) -> bool:
        """Whether there is enough to compare with."""
        return self.evidence.requests >= MINIMUM_REQUESTS


def fall(before: Tenure, after: Tenure) -> AcceptanceFall | None:
    """``None`` unless acceptance fell: by a tenth or more of the accepted tokens per verify step, and by three standard
    errors (the request as the unit), with 50 requests on both sides.
    """
    was, now = before.evidence.accepted_per_verify_step(), after.evidence.accepted_per_verify_step()
    if not (before.tells and after.tells) or was is None or now is None or was.error is None or now.error is None:
        return None
    accepted = expected = 0.0
    verify = 0.0
    for category, seen in after.by_category.items():
        known = before.by_category.get(category)
        if known is not None and known.verify > 0.0:
            accepted += seen.accepted
            verify += seen.verify
            expected += seen.verify * known.accepted / known.verify
    if not verify > 0.0:
        return None
    lost = (expected - accepted) / verify
    if lost * verify < LEAST_SHARE * expected or lost < ERRORS_APART * sqrt(was.error**2 + now.error**2):
        return None
    return AcceptanceFall(
        after.change,
        after.since,
        1.0 + expected / verify,
        1.0 + accepted / verify,
        before.evidence.requests,
        after.evidence.requests,
    )


def change_between(old: Identity, new: Identity) -> str:
    """What differs, in words; empty when nothing does. What one of them does not say is no difference."""
    differences = [
        f"{name} {_shown(before)} became {_shown(after)}"
        for name, before, after in zip(Identity._fields, old, new, strict=True)
        if before is not None and after is not None and before != after
    ]
    return " and ".join(differences)


def _shown(text: str) -> str:
    """A node's own words, cut to what a line bears."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:40])
