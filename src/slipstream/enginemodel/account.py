"""Acceptance that falls with load, as the first of Slipstream's sources tells it of its own fleet.

It reports a speedup of 2.1 at batch 4 and of 1.0 at batch 32 (70B target, 7B draft, A100), and gives three reasons for
what acceptance has to do with it: the batch, the drafter's cache that is evicted as it fills, and, for the long ones,
short and long answers in one batch. It gives no figure for any of the three, so this is the simplest form with all of
them: per-token acceptance is multiplied by

    exp(−FALL · max(0, batch − 4) · (1 + mixed + filled) / ORDINARY)

where ``mixed`` is by how much a sequence's answer is longer than the batch's mean (0 = not at all, 1 = twice as long
or more) and ``filled`` the cache's use (0..1). FALL is the one constant that makes both speedups come out of the step
times of the second source, 35 + 0.45·B ms and 6 + 0.12·B ms a draft token at K = 4, which charge nothing for
verifying; alpha is then 0.83 at batch 4. The same step times give 1.7 at alpha 0.72, where the first source has 1.8,
and 1.05 at 0.45, where it has "barely breaks even". Published measurements show no such fall: see
docs/explanation/engine-model.md.
"""

from __future__ import annotations

from math import exp
from typing import Final

from slipstream.enginemodel.sequence import Sequence

__all__ = ["FALL", "FULL_BATCH", "ORDINARY", "alphas_kept"]

FULL_BATCH: Final = 4
"""Up to that many sequences acceptance is whole."""

FALL: Final = 0.0216
"""A sequence more takes this share of per-token acceptance, in an ordinary batch."""

_ORDINARY_FILLED: Final = 0.5
ORDINARY: Final = 1.75
"""``1 + mixed + filled`` of an ordinary batch: lengths that are spread like an exponential distribution's (0.25), and a
cache half full."""


def alphas_kept(sequences: list[Sequence], kv_use: float | None) -> list[float]:
    """What is left of each sequence's per-token acceptance, 0..1, in a batch of these. ``kv_use`` ``None`` = a cache
    without a limit: an ordinary one is assumed.
    """
    batch = len(sequences)
    if batch <= FULL_BATCH:
        return [1.0] * batch
    filled = _ORDINARY_FILLED if kv_use is None else kv_use
    fall = FALL * (batch - FULL_BATCH) / ORDINARY
    total = 0
    for sequence in sequences:
        total += sequence.output_tokens
    mean = total / batch
    kept: list[float] = []
    for sequence in sequences:
        mixed = sequence.output_tokens / mean - 1.0
        if mixed < 0.0:
            mixed = 0.0
        elif mixed > 1.0:
            mixed = 1.0
        kept.append(exp(-fall * (1.0 + mixed + filled)))
    return kept
