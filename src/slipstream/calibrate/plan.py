"""What is measured, in which order: first what a rough curve needs, then what makes it sure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b

__all__ = ["CalibrationPlan", "Point", "batch_sizes", "visits"]

FIRST, LATER = 2, 4
"""Requests a visit at least, in the first round and after it, so that small batches are as sure as large ones."""


@dataclass(frozen=True, slots=True)
class Point:
    """``batch_size`` requests at once with prompts of about ``context_tokens``."""

    context_tokens: int
    batch_size: int

    def repeats(self, number: int) -> int:
        """How often it is measured at the visit of a round."""
        return max(1, (LATER if number else FIRST) // self.batch_size)


@dataclass(frozen=True, slots=True)
class CalibrationPlan:
    """``batch_sizes`` rise. The first of ``context_tokens`` is what the ceiling and a table hold for. ``categories``
    take turns. Answers have ``output_tokens``. ``rounds`` is how often all points are visited at most.
    """

    batch_sizes: tuple[int, ...]
    context_tokens: tuple[int, ...]
    categories: tuple[str, ...]
    output_tokens: int
    rounds: int
    seed: int

    @property
    def fingerprint(self) -> str:
        """The same for the same plan, whatever made it."""
        return blake2b(json.dumps(asdict(self), sort_keys=True).encode(), digest_size=8).hexdigest()


def batch_sizes(largest: int) -> tuple[int, ...]:
    """1, 2, 4, … and ``largest``."""
    doubled = [1]
    while doubled[-1] * 2 <= largest:
        doubled.append(doubled[-1] * 2)
    return tuple(sorted({*doubled, largest}))


def visits(plan: CalibrationPlan) -> Iterator[tuple[int, Point]]:
    """Round and point: the ends first, then the middle of what lies furthest apart; other contexts after the first."""
    order = _ends_first(plan.batch_sizes)
    for number in range(plan.rounds):
        for context in plan.context_tokens:
            for batch_size in order:
                yield number, Point(context, batch_size)


def _ends_first(sizes: Sequence[int]) -> list[int]:
    order = [sizes[0], *([sizes[-1]] if len(sizes) > 1 else [])]
    spans = [(0, len(sizes) - 1)]
    while spans:
        low, high = spans.pop(0)
        middle = (low + high) // 2
        if low < middle < high:
            order.append(sizes[middle])
            spans += [(low, middle), (middle, high)]
    return order
