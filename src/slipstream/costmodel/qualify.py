"""Whether one model may draft for another: the same tokenizer, enough accepted, and fast enough."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from slipstream.core.acceptance.measures import mean_acceptance_length_of
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.tokenizers import Tokenizer, first_difference

__all__ = [
    "ALPHA_FLOOR",
    "SPEED_FLOOR",
    "Finding",
    "Qualification",
    "Verdict",
    "alpha_finding",
    "qualification_of",
    "speed_finding",
    "tokenizer_finding",
]

ALPHA_FLOOR = 0.65
SPEED_FLOOR = 4.0
"""What the second article asks of a draft model: per-token acceptance, and how many times faster than its target."""


class Verdict(StrEnum):
    """``UNDECIDED``: nothing speaks against it, and something is not known."""

    QUALIFIED = "qualified"
    UNDECIDED = "undecided"
    NOT_QUALIFIED = "not qualified"


@dataclass(frozen=True, slots=True)
class Finding:
    """One condition. ``passed`` is ``None`` where nothing tells; ``reason`` says why, in a sentence."""

    check: str
    passed: bool | None
    reason: str


@dataclass(frozen=True, slots=True)
class Qualification:
    """The verdict, and a finding for each condition."""

    verdict: Verdict
    findings: tuple[Finding, ...]


def qualification_of(*findings: Finding) -> Qualification:
    """One condition that fails decides; otherwise one that is not known leaves it open."""
    passed = {finding.passed for finding in findings}
    if False in passed:
        return Qualification(Verdict.NOT_QUALIFIED, findings)
    return Qualification(Verdict.UNDECIDED if None in passed else Verdict.QUALIFIED, findings)


def tokenizer_finding(target: Tokenizer, draft: Tokenizer) -> Finding:
    """Whether both have the same vocabulary, merges and special tokens; if not, the first difference."""
    difference = first_difference(target, draft)
    if difference is not None:
        return Finding("tokenizer", passed=False, reason=difference)
    merges = (target.merges, draft.merges)
    compared = "" if None not in merges or merges == (None, None) else "; merges are told by one of the two only"
    reason = f"both have the same {len(target.vocabulary):,} tokens, {len(target.special):,} special ones among them"
    return Finding("tokenizer", passed=True, reason=reason + compared)


def alpha_finding(alpha: float | None, k: int, source: str) -> Finding:
    """Whether the per-token acceptance reaches 0.65. ``source`` says where ``alpha`` comes from; ``None`` = not known.

    Raises `ImpossibleInput` for an ``alpha`` outside 0..1 or a ``k`` below 1.
    """
    if alpha is None:
        return Finding("alpha", passed=None, reason=f"per-token acceptance is not known: {source}")
    if not 0.0 <= alpha <= 1.0:
        raise ImpossibleInput(f"alpha is a share, 0 to 1, not {alpha:g}")
    if k < 1:
        raise ImpossibleInput(f"a draft has at least 1 token, not {k}")
    tau = mean_acceptance_length_of(alpha, k)
    side = "at least" if alpha >= ALPHA_FLOOR else "below"
    reason = f"per-token acceptance {alpha:.2f} ({source}) is {side} {ALPHA_FLOOR}; at K = {k} tau is {tau:.2f}"
    return Finding("alpha", passed=alpha >= ALPHA_FLOOR, reason=reason)


def speed_finding(target_step_s: float | None, draft_step_s: float | None, source: str) -> Finding:
    """Whether a pass of the draft takes at most a quarter of the target's. Both in seconds, ``None`` = not known.

    Raises `ImpossibleInput` for a time that is not positive.
    """
    if target_step_s is None or draft_step_s is None:
        return Finding("speed", passed=None, reason=f"how fast the two are is not known: {source}")
    if not (target_step_s > 0.0 and draft_step_s > 0.0):
        raise ImpossibleInput(f"a pass takes longer than nothing, not {target_step_s:g} s and {draft_step_s:g} s")
    ratio = target_step_s / draft_step_s
    side = "at least" if ratio >= SPEED_FLOOR else "less than"
    times = f"{draft_step_s * 1e3:.2f} ms a pass against {target_step_s * 1e3:.2f} ms"
    reason = f"the draft is {ratio:.1f} times faster, {side} {SPEED_FLOOR:g}: {times} ({source})"
    return Finding("speed", passed=ratio >= SPEED_FLOOR, reason=reason)
