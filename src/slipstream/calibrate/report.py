"""A calibration as one JSON object, and what there is to say of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from slipstream.calibrate.curve import CEILING_FLOOR, MeasuredCurve
from slipstream.calibrate.findings import Findings, SpeculativeArm
from slipstream.calibrate.measured_profile import fits_document
from slipstream.calibrate.run import Arm
from slipstream.core.acceptance.estimate import AcceptanceEstimate
from slipstream.core.speedup import CurveShape

__all__ = ["Status", "Verdict", "calibration_document", "verdict_of"]


class Status(IntEnum):
    """How a calibration ended, as the command's exit status."""

    MEASURED = 0
    UNUSABLE = 1
    IMPOSSIBLE = 2
    BUSY = 3
    TOO_FEW = 5
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Verdict:
    """``sentences`` say what is wrong with it; none when all is well."""

    status: Status
    sentences: tuple[str, ...]


def verdict_of(findings: Findings) -> Verdict:
    """Whether what was measured can be built on."""
    observed, first = findings.observed, findings.speculative[0]
    sentences = [observed.ended] if observed.interrupted or observed.busy else []
    for arm in (observed.standard, *observed.speculative):
        for error, count in arm.errors.items():
            sentences.append(f"{arm.node.name}: {error} ({count} times)")
    measured = [size for curve in first.curves for size in curve.batch_sizes]
    untold = sorted({size for curve in first.curves for size in curve.untold})
    if not measured:
        sentences.append("no batch size was measured on both nodes: give more time (--budget) or longer answers")
    elif untold:
        sentences.append(
            f"too few requests to tell at {', '.join(map(str, untold))} at once: give more time (--budget)"
        )
    if observed.interrupted:
        return Verdict(Status.INTERRUPTED, tuple(sentences))
    if observed.busy:
        return Verdict(Status.BUSY, tuple(sentences))
    if not measured or len(untold) == len(set(measured)):
        return Verdict(Status.TOO_FEW, tuple(sentences))
    return Verdict(Status.MEASURED, tuple(sentences))


def calibration_document(findings: Findings) -> dict[str, Any]:
    """Curves, acceptance, admitted concurrency, the ceiling and how good the fits are; ``None`` = not known."""
    observed = findings.observed
    return {
        "ceiling": findings.ceiling,
        "recommendation": recommendation(findings),
        "curves": [_curve(arm, curve) for arm in findings.speculative for curve in arm.curves],
        "acceptance": {
            arm.arm.node.name: {name: _acceptance(estimate) for name, estimate in arm.acceptance.items()}
            for arm in findings.speculative
        },
        "admitted": {
            "standard": observed.standard.running_p95(),
            "speculative": findings.speculative[0].arm.running_p95(),
        },
        "nodes": [_node(arm) for arm in (observed.standard, *observed.speculative)],
        "fits": fits_document(findings),
        "plan": observed.plan.fingerprint,
        "run": {"wall_s": observed.wall_s, "ended": observed.ended or None},
    }


def recommendation(findings: Findings) -> str:
    """The ceiling, or that there is none, in a sentence."""
    curves = [curve for curve in findings.speculative[0].curves if curve.batch_sizes]
    if not curves:
        return "Nothing was measured on both nodes, so nothing is proposed."
    ceiling = findings.ceiling
    if ceiling is not None:
        largest = max(size for curve in curves for size in curve.batch_sizes)
        more = ", the largest that was tested" if ceiling == largest else ""
        return f"Ceiling {ceiling}{more}: up to there speculation is surely at least {CEILING_FLOOR - 1.0:.0%} faster."
    if any(curve.gains[0].interval is None for curve in curves):
        return "Too few requests to propose a ceiling."
    if all(curve.shape is CurveShape.BELOW_THROUGHOUT for curve in curves):
        return "Speculation does not pay here: it is slower from the first batch size on. Keep it off."
    return (
        f"Speculation does not pay here: not even at {curves[0].batch_sizes[0]} at once is it surely "
        f"{CEILING_FLOOR - 1.0:.0%} faster. Keep it off."
    )


def _curve(arm: SpeculativeArm, curve: MeasuredCurve) -> dict[str, Any]:
    return {
        "node": arm.arm.node.name,
        "speculator": arm.arm.node.speculator.fingerprint,
        "k": arm.k,
        "context_tokens": curve.context_tokens,
        "shape": curve.shape,
        "crossovers": list(curve.crossovers),
        "ceiling": curve.ceiling,
        "rows": [
            {
                "batch_size": size,
                "speedup": gain.speedup,
                "speedup_interval": gain.interval,
                "standard_step_ms": standard.step_s * 1000.0,
                "speculative_step_ms": speculative.step_s * 1000.0,
                "standard_tps": 1.0 / standard.token_s,
                "speculative_tps": 1.0 / speculative.token_s,
                "tokens_per_step": speculative.tokens_per_step,
                "requests": {"standard": standard.requests, "speculative": speculative.requests},
            }
            for size, gain, standard, speculative in zip(
                curve.batch_sizes, curve.gains, curve.standard, curve.speculative, strict=True
            )
        ],
    }


def _acceptance(estimate: AcceptanceEstimate) -> dict[str, Any]:
    return {
        "alpha": estimate.alpha,
        "alpha_interval": estimate.alpha_interval,
        "k": estimate.k,
        "tau": estimate.tau,
        "tokens_per_step": estimate.tokens_per_step,
        "proposing_share": estimate.proposing_share,
        "requests": estimate.requests,
    }


def _node(arm: Arm) -> dict[str, Any]:
    node, prefill = arm.node, arm.prefill
    return {
        "name": node.name,
        "engine": node.engine_name,
        "version": node.facts.version,
        "model": node.model,
        "speculator": node.speculator.fingerprint if arm.drafts else None,
        "prefill_base_ms": None if prefill is None else prefill[0] * 1000.0,
        "prefill_token_ms": None if prefill is None else prefill[1] * 1000.0,
    }
