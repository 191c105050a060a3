"""Whether what was calibrated is still so: a node's live figures, and its traffic, against those of its profile.

A figure has left the profile when its whole 95 % interval is beyond the profile's by more than a stated factor, and is
back when its value is within a smaller one: so noise at the edge never makes a verdict change back and forth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from slipstream.core.acceptance import BUCKETS, LearnedTime
from slipstream.core.acceptance.book import AcceptanceBook
from slipstream.core.acceptance.student import NORMAL_97_5
from slipstream.core.calibration import Calibration, ExpectedTime
from slipstream.core.interval import Interval
from slipstream.core.node import Speculator
from slipstream.core.traffic import Traffic, mix_distance

__all__ = [
    "Learned",
    "Recheck",
    "SampledFingerprint",
    "acceptance_departures",
    "has_left",
    "time_departures",
    "traffic_departures",
]

LEAST_REQUESTS: Final = 50.0
"""Effective requests without which a figure says nothing about the profile."""
TIME_LEAVES, TIME_RETURNS = 1.25, 1.1
"""Factors beyond the profile's interval: prompts of others and a machine's moods are within the first."""
ACCEPTANCE_LEAVES, ACCEPTANCE_RETURNS = 1.1, 1.05
CONTEXT_LEAVES, CONTEXT_RETURNS = 2.0, 1.7
"""Beyond a factor of two in context, a table of step times is refused by the cost model too."""
MIX_LEAVES, MIX_RETURNS = 0.5, 0.4
"""Share of requests that are of other categories than those measured."""
MIX, CONTEXT = "mix of categories", "length of requests"
MIX_ANSWERS: Final = 100
"""Answers looked at (of eight times as many) before a mix is believed."""
LAST: Final = BUCKETS[-1][0]
"""Sequences that the last range of occupancies, which has no end, is taken to have."""
ALIKE: Final = 3
"""Answers in a row that must bear another fingerprint before it is the node's: one address may hide several engines."""


class Learned(NamedTuple):
    """What a node's traffic taught of one range of occupancies, and what its profile promises there (``None`` =
    nothing).
    """

    time: LearnedTime
    expected: ExpectedTime | None

    @property
    def ratio(self) -> float | None:
        """Live median over the profile's; ``None`` where the profile says nothing."""
        return None if self.expected is None else self.time.tpot_s / self.expected.tpot_s


class SampledFingerprint:
    """The ``system_fingerprint`` of a node's answers, looked at while ``wanted``; ``value`` is ``None`` until then."""

    __slots__ = ("_alike", "_last", "value", "wanted")

    def __init__(self) -> None:
        self.value: str | None = None
        self.wanted = False
        self._last = ""
        self._alike = 0

    def saw(self, found: str | None) -> None:
        """An answer bore ``found``, ``None`` = it bore none; no more is wanted for now."""
        self.wanted = False
        if found is None:
            return
        self._alike = self._alike + 1 if found == self._last else 1
        self._last = found
        if self.value is None or self._alike >= ALIKE:
            self.value = found


class Recheck:
    """What is known of one node's calibration.

    ``change``: what the node says to be other than the profile says, empty = nothing. ``departed``: by measure, how its
    live figures have left the profile. ``fallen_back``: whether ceilings that rest on the calibration are suspended.
    ``learned``: time per token as of the last look. ``traffic`` is that of all nodes with the same profile, ``None`` =
    it has none.
    """

    __slots__ = ("change", "departed", "fallen_back", "fingerprint", "learned", "traffic")

    def __init__(self) -> None:
        self.change = ""
        self.departed: dict[str, str] = {}
        self.fallen_back = False
        self.fingerprint = SampledFingerprint()
        self.learned: list[Learned] = []
        self.traffic: Traffic | None = None

    @property
    def stale(self) -> bool:
        """Whether the calibration no longer holds, as of the last look."""
        return bool(self.change or self.departed)

    @property
    def ratio(self) -> float | None:
        """Live time per token over the profile's, over all occupancies by their requests; ``None`` = not known."""
        weight = live = expected = 0.0
        for one in self.learned:
            if one.expected is not None:
                weight += one.time.effective
                live += one.time.effective * one.time.tpot_s
                expected += one.time.effective * one.expected.tpot_s
        return live / expected if weight > 0.0 else None

    def forget(self) -> None:
        """There is another profile: what departed from the last one says nothing about it."""
        self.change = ""
        self.departed = {}
        self.traffic = None


def has_left(
    before: bool,  # noqa: FBT001 - a state, as the figures beside it
    value: float,
    live: Interval,
    profile: Interval,
    leaves: float,
    returns: float,
) -> bool:
    """Whether a figure is away from its profile, having been so ``before`` or not. All above 0; factors above 1,
    ``returns`` the smaller.
    """
    if before:
        return not profile[0] / returns <= value <= profile[1] * returns
    return live[0] > profile[1] * leaves or live[1] < profile[0] / leaves


def time_departures(
    learned: Iterable[Learned], calibration: Calibration, traffic: Traffic | None, before: Mapping[str, str]
) -> dict[str, str]:
    """Ranges of occupancy at which tokens take longer or shorter than the profile's, each with a sentence about it.

    ``before``: what had departed at the last look. The profile's upper end is given what the prompts of the others
    there add to a token, which a calibration keeps out.
    """
    found: dict[str, str] = {}
    for time, expected in learned:
        if expected is None or time.interval is None or time.effective < LEAST_REQUESTS:
            continue
        name = f"time per token at {_sequences(time.least, time.most)}"
        others = (LAST if time.most is None else time.most) - 1
        profile = (expected.low_s, expected.high_s + others * _prompt_s(calibration, traffic))
        if has_left(name in before, time.tpot_s, time.interval, profile, TIME_LEAVES, TIME_RETURNS):
            found[name] = f"{name} is {_ms(time.tpot_s)} ms ({_shown(time.interval, 1e3)}), not {_ends(profile, 1e3)}"
    return found


def acceptance_departures(
    calibration: Calibration, speculator: Speculator, model: str, book: AcceptanceBook, before: Mapping[str, str]
) -> dict[str, str]:
    """Categories that give more or fewer tokens per step with a speculator than the profile says, each with a sentence.

    Of categories that too little is known of, nothing; ``before`` as in `time_departures`.
    """
    found: dict[str, str] = {}
    for measured in calibration.acceptance:
        if measured.speculator != speculator.fingerprint:
            continue
        ratio = book.estimate(model, speculator, measured.category).accepted_per_decode_step
        if ratio is None or ratio.error is None or ratio.effective_requests < LEAST_REQUESTS:
            continue
        value, width = 1.0 + ratio.value, NORMAL_97_5 * ratio.error
        live = (value - width, value + width)
        name = f"acceptance of {measured.category}"
        if has_left(name in before, value, live, measured.interval, ACCEPTANCE_LEAVES, ACCEPTANCE_RETURNS):
            told = f"{value:.2f} tokens per step ({_shown(live, 1.0)}), not {_ends(measured.interval, 1.0)}"
            found[name] = f"{name} is {told}"
    return found


def traffic_departures(calibration: Calibration, traffic: Traffic, before: Mapping[str, str]) -> dict[str, str]:
    """How requests are not those that were measured: their mix of categories, and how long they are."""
    found: dict[str, str] = {}
    measured = calibration.traffic
    if measured is None or traffic.requests < MIX_ANSWERS:
        return found
    shares = traffic.shares
    distance = mix_distance(shares, measured)
    if distance > (MIX_RETURNS if MIX in before else MIX_LEAVES):
        most = max(shares, key=lambda name: shares[name])
        found[MIX] = (
            f"{distance:.0%} of the requests are of other categories than those measured: {shares[most]:.0%} are {most}"
        )
    context = traffic.context_tokens
    if context is not None:
        factor = CONTEXT_RETURNS if CONTEXT in before else CONTEXT_LEAVES
        if not measured.least_context / factor <= context <= measured.most_context * factor:
            ends = _ends((measured.least_context, measured.most_context), 1.0, 0)
            found[CONTEXT] = f"sequences hold about {context:,.0f} tokens, not {ends}"
    return found


def _prompt_s(calibration: Calibration, traffic: Traffic | None) -> float:
    """What one other sequence's prompt adds to a token, where as many come as end; 0 where that is not known."""
    prompt = None if traffic is None else traffic.prompt_tokens
    output = None if traffic is None else traffic.output_tokens
    if prompt is None or output is None or output < 1.0:
        return 0.0
    base_s, token_s = calibration.prefill
    return (base_s + token_s * prompt) / output


def _sequences(least: int, most: int | None) -> str:
    if most is None:
        return f"{least} sequences or more"
    if least < most:
        return f"{least} to {most} sequences"
    return f"{least} sequence{'s' * (least > 1)}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"


def _shown(interval: Interval, unit: float) -> str:
    return f"95 % interval {_ends(interval, unit)}"


def _ends(interval: Interval, unit: float, digits: int = -1) -> str:
    places = digits if digits >= 0 else 1 if unit > 1.0 else 2
    return f"{interval[0] * unit:,.{places}f} to {interval[1] * unit:,.{places}f}"
