"""Acceptance by category, from what each answer says of itself or from counters around waves of one category."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slipstream.calibrate.waves import Wave
from slipstream.core.acceptance.estimate import AcceptanceEstimate, measured_estimate
from slipstream.core.acceptance.evidence import HALF_LIFE, NO_EVIDENCE
from slipstream.core.acceptance.sample import SpeculationSample, steps_of
from slipstream.core.node import Speculator

__all__ = ["ALL", "acceptance_of"]

ALL = "all"
"""The name of all categories together."""


def acceptance_of(waves: Iterable[Wave], speculator: Speculator) -> Mapping[str, AcceptanceEstimate]:
    """By category, and of all together under `ALL`. Categories that nothing is known of are left out. Where answers say
    nothing, the unit of the intervals is the wave.
    """
    waves = list(waves)
    per_drafted = _verify_steps_per_drafted(waves)
    evidence = {ALL: NO_EVIDENCE}
    for category, sample in _samples(waves):
        steps = steps_of(sample, speculator, per_drafted)
        if steps is not None:
            for name in (ALL, category):
                evidence[name] = evidence.get(name, NO_EVIDENCE).credited(sample, steps, 0.0, HALF_LIFE)
    return {name: measured_estimate(found) for name, found in evidence.items() if found.requests}


def _samples(waves: Iterable[Wave]) -> Iterable[tuple[str, SpeculationSample]]:
    for wave in waves:
        told = [(one.category, one.sample) for one in wave.decoded if one.sample is not None]
        if told:
            yield from told
        elif wave.counted is not None and len(set(wave.categories)) == 1:
            counted = wave.counted
            tokens = counted.output_tokens
            # Each answer's first token comes from its prompt, and the sample is of several answers.
            yield (
                wave.categories[0],
                SpeculationSample(
                    counted.drafted,
                    counted.accepted,
                    counted.verify_steps,
                    None if tokens is None else tokens - len(wave.categories) + 1,
                ),
            )


def _verify_steps_per_drafted(waves: Iterable[Wave]) -> float | None:
    counted = [wave.counted for wave in waves if wave.counted is not None]
    drafted = sum(one.drafted for one in counted)
    steps = [one.verify_steps for one in counted]
    known = [step for step in steps if step is not None]
    return sum(known) / drafted if drafted and len(known) == len(steps) else None
