"""What the requests of late are like, of those that go to nodes of one profile: their mix, and how long they are."""

from __future__ import annotations

from typing import Final

from slipstream.core.acceptance.evidence import HALF_LIFE
from slipstream.core.acceptance.fading import FadingClock
from slipstream.core.acceptance.fading_median import FadingMedian, bin_of
from slipstream.core.calibration import MeasuredTraffic

__all__ = ["Traffic", "mix_distance"]

ONE_IN: Final = 8
"""Of so many answers one is looked at: a mix needs no more, and requests should not pay for it."""


class Traffic:
    """Forgets with a half-life of ten minutes. ``seen`` answers since the start, of which one in eight counts."""

    __slots__ = ("_categories", "_clock", "_outputs", "_prompts", "seen")

    def __init__(self) -> None:
        self.seen = 0
        self._clock = FadingClock(HALF_LIFE)
        self._categories: dict[str, float] = {}
        self._prompts = FadingMedian()
        self._outputs = FadingMedian()

    def saw(self, category: str, prompt_tokens: int | None, output_tokens: int | None, now: float) -> None:
        """An answer came; token counts as it told, ``None`` = it did not."""
        self.seen += 1
        if self.seen % ONE_IN:
            return
        if self._clock.overdue(now):
            self._rebase(now)
        weight = self._clock.weight(now)
        self._categories[category] = self._categories.get(category, 0.0) + weight
        if prompt_tokens is not None and output_tokens is not None:
            self._prompts.add(bin_of(float(prompt_tokens)), weight)
            self._outputs.add(bin_of(float(output_tokens)), weight)

    @property
    def requests(self) -> int:
        """How many were looked at."""
        return self.seen // ONE_IN

    @property
    def shares(self) -> dict[str, float]:
        """Of requests by category, 0..1; empty before any."""
        whole = sum(self._categories.values())
        return {name: weight / whole for name, weight in self._categories.items()} if whole > 0.0 else {}

    @property
    def prompt_tokens(self) -> float | None:
        """Their median; ``None`` before any answer told."""
        return self._prompts.value

    @property
    def output_tokens(self) -> float | None:
        """Their median; ``None`` before any answer told."""
        return self._outputs.value

    @property
    def context_tokens(self) -> float | None:
        """What a sequence holds on average while it decodes: its prompt and half of its answer, by their medians;
        ``None`` before any answer told.
        """
        prompt, output = self.prompt_tokens, self.output_tokens
        return None if prompt is None or output is None else prompt + 0.5 * output

    def _rebase(self, now: float) -> None:
        factor = self._clock.rebase(now)
        for name, weight in self._categories.items():
            self._categories[name] = weight * factor
        self._prompts.scale(factor)
        self._outputs.scale(factor)


def mix_distance(shares: dict[str, float], measured: MeasuredTraffic) -> float:
    """Share of requests that would have to be of other categories for the mixes to be the same, 0..1: half the sum of
    the differences (total variation).
    """
    before = dict(measured.shares)
    names = {*before, *shares}
    return 0.5 * sum(abs(shares.get(name, 0.0) - before.get(name, 0.0)) for name in names)
