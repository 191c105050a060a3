"""What a calibration comes to: curves, acceptance, and step times fitted in both forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slipstream.calibrate.acceptance import ALL, acceptance_of
from slipstream.calibrate.curve import MeasuredCurve, measured_curve
from slipstream.calibrate.figures import unrest_of
from slipstream.calibrate.fit import LinearFit, Step, TableFit, linear_fit, table_fit
from slipstream.calibrate.run import Arm, Observed
from slipstream.core.acceptance.estimate import AcceptanceEstimate

__all__ = ["Findings", "SpeculativeArm", "findings_of"]


@dataclass(frozen=True, slots=True)
class SpeculativeArm:
    """A speculative node: ``k`` is its draft length, or where that varies the mean of its verify steps, rounded.
    ``proposing_share`` is 0..1. ``curves`` are by context, the plan's first one first.
    """

    arm: Arm
    k: int
    proposing_share: float
    acceptance: Mapping[str, AcceptanceEstimate]
    curves: tuple[MeasuredCurve, ...]

    @property
    def ceiling(self) -> int | None:
        """The smallest of its contexts'; ``None`` = in one of them, speculation does not surely pay at any batch."""
        ceilings = [curve.ceiling for curve in self.curves if curve.batch_sizes]
        known = [ceiling for ceiling in ceilings if ceiling is not None]
        return min(known) if known and len(known) == len(ceilings) else None


@dataclass(frozen=True, slots=True)
class Findings:
    """What a calibration comes to. Fits are ``None`` where too little was measured for them."""

    observed: Observed
    speculative: tuple[SpeculativeArm, ...]
    table: TableFit | None
    linear: LinearFit | None

    @property
    def ceiling(self) -> int | None:
        """That of the first speculative node."""
        return self.speculative[0].ceiling


def findings_of(observed: Observed) -> Findings:
    """Curves, acceptance and fits."""
    arms = tuple(_speculative(observed, arm) for arm in observed.speculative)
    context = observed.plan.context_tokens[0]
    steps = _steps(observed.standard, 0, 0.0)
    for arm in arms:
        steps += _steps(arm.arm, arm.k, arm.proposing_share)
    prefill = observed.standard.prefill
    return Findings(
        observed,
        arms,
        table_fit([step for step, at in steps if at == context]),
        linear_fit([step for step, _ in steps], 0.0 if prefill is None else prefill[1]),
    )


def _speculative(observed: Observed, arm: Arm) -> SpeculativeArm:
    acceptance = acceptance_of((wave for waves in arm.waves.values() for wave in waves), arm.node.speculator)
    overall = acceptance.get(ALL)
    k = arm.node.speculator.k or (round(overall.k) if overall is not None and overall.k else 1)
    share = None if overall is None else overall.proposing_share
    unrest = unrest_of(observed.standard.waves.values())
    standard, own = observed.standard.figures(unrest), arm.figures(unrest)
    return SpeculativeArm(
        arm,
        max(1, k),
        1.0 if share is None else min(1.0, share),
        acceptance,
        tuple(measured_curve(context, standard, own) for context in observed.plan.context_tokens),
    )


def _steps(arm: Arm, k: int, proposing: float) -> list[tuple[Step, int]]:
    """Each with the context that it was asked at."""
    return [
        (
            Step(point.batch_size, k, figures.cached_tokens, proposing, figures.step_s, figures.requests),
            point.context_tokens,
        )
        for point, figures in arm.figures().items()
    ]
