"""What speculation brings behind a gateway that holds some requests back, from those requests alone.

The gateway draws at random who of the eligible is held back on a standard node, so both groups are alike in all else:
category, length, time of day and load. Their difference is what speculation did, with no model of anything.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.bench.resampling import Distribution, blocks_of, difference, distribution
from slipstream.bench.samples import Samples
from slipstream.core.reason import Reason

__all__ = ["Holdback", "Latencies", "holdback_of"]


@dataclass(frozen=True, slots=True)
class Latencies:
    """In seconds."""

    ttft: Distribution
    tpot: Distribution
    e2e: Distribution


@dataclass(frozen=True, slots=True)
class Holdback:
    """Finished eligible requests that went ``speculative``, and that were ``held_back``; their numbers, latencies, and
    ``difference``: how much more those had that speculated, so that below 0 speculation was faster.
    """

    speculative_requests: int
    held_back_requests: int
    speculative: Latencies
    held_back: Latencies
    difference: Latencies


def holdback_of(samples: Samples) -> Holdback | None:
    """``None`` when no gateway said that it held anything back, or that anything speculated."""
    own = samples.counted & samples.finished
    reason = np.array([name or "" for name in samples.reason], dtype=object)
    speculative = np.flatnonzero(own & (reason == str(Reason.SPECULATIVE)))
    held_back = np.flatnonzero(own & (reason == str(Reason.HOLDBACK)))
    if not speculative.size or not held_back.size:
        return None
    blocks = blocks_of(len(samples))
    columns = (samples.ttft_s, samples.tpot_s, samples.e2e_s)
    return Holdback(
        speculative_requests=len(speculative),
        held_back_requests=len(held_back),
        speculative=Latencies(*(distribution(column[speculative], speculative, blocks) for column in columns)),
        held_back=Latencies(*(distribution(column[held_back], held_back, blocks) for column in columns)),
        difference=Latencies(
            *(
                difference(column[held_back], held_back, blocks, column[speculative], speculative, blocks)
                for column in columns
            )
        ),
    )
