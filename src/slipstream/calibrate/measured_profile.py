"""The profile that a calibration gives, as the document that `slipstream.costmodel.profiles` reads."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from slipstream.calibrate.acceptance import ALL
from slipstream.calibrate.findings import Findings, SpeculativeArm
from slipstream.calibrate.promises import promises_document

__all__ = ["Form", "fits_document", "profile_document"]

Form: TypeAlias = Literal["table", "linear"]


def profile_document(
    findings: Findings,
    form: Form,
    *,
    hardware: str,
    date: str,
    engine_version: str | None = None,
    flags: str = "",
) -> dict[str, Any]:
    """A profile with all that it rests on. Raises ValueError, with a sentence, for what it can not do without."""
    observed = findings.observed
    first = findings.speculative[0]
    node = first.arm.node
    version = engine_version or node.facts.version or observed.standard.node.facts.version
    if node.engine_name is None or version is None:
        raise ValueError(f"{node.name} does not say what engine it is, in which version: give --engine-version")
    ks = [arm.k for arm in findings.speculative]
    if len(set(ks)) < len(ks):
        raise ValueError(f"two speculative nodes draft {max(ks, key=ks.count)} tokens: a profile holds one of each K")
    return {
        "form": form,
        "engine": node.engine_name,
        "version": version,
        "hardware": hardware,
        "model": node.model,
        "date": date,
        "note": f"measured by slipstream calibrate, plan {observed.plan.fingerprint}",
        "speculators": [arm.arm.node.speculator.fingerprint for arm in findings.speculative],
        "k": ks,
        "flags": flags,
        "plan": _plan(findings),
        "ceiling": findings.ceiling,
        "proposing_share": first.proposing_share,
        **_alpha(first),
        **(_table(findings) if form == "table" else _linear(findings)),
        "fits": fits_document(findings),
        **promises_document(findings),
    }


def _alpha(first: SpeculativeArm) -> dict[str, Any]:
    overall = first.acceptance.get(ALL)
    return {} if overall is None or overall.alpha is None else {"alpha": overall.alpha}


def _plan(findings: Findings) -> dict[str, Any]:
    plan = findings.observed.plan
    return {
        "fingerprint": plan.fingerprint,
        "batch_sizes": list(plan.batch_sizes),
        "context_tokens": list(plan.context_tokens),
        "categories": list(plan.categories),
        "output_tokens": plan.output_tokens,
        "seed": plan.seed,
    }


def _table(findings: Findings) -> dict[str, Any]:
    """Raises ValueError where nothing was measured to make a table of."""
    table, standard, first = findings.table, findings.observed.standard, findings.speculative[0]
    if table is None or len(table.points) < 1 + len(findings.speculative):
        raise ValueError("too little was measured for a table: give more time with --budget")
    curve = first.curves[0]
    cached = [figures.cached_tokens for figures in curve.standard] or [float(curve.context_tokens)]
    own = {
        "context_tokens": round(sum(cached) / len(cached)),
        "points": [
            {"k": k, "batch_size": batch_size, "step_ms": seconds * 1000.0}
            for k, points in table.points.items()
            for batch_size, seconds in points
        ],
    }
    if standard.prefill is not None:
        base_s, token_s = standard.prefill
        drafter = first.arm.prefill
        own["prefill_base_ms"], own["prefill_token_ms"] = base_s * 1000.0, token_s * 1000.0
        own["drafter_prefill_token_ms"] = 0.0 if drafter is None else max(0.0, drafter[1] - token_s) * 1000.0
    return own


def _linear(findings: Findings) -> dict[str, Any]:
    """Raises ValueError where too few batch sizes were measured for a line."""
    if findings.linear is None or not any(curve.batch_sizes for curve in findings.speculative[0].curves):
        raise ValueError("a line needs two batch sizes of both nodes: give more time with --budget")
    return {"coefficients": dict(findings.linear.coefficients)}


def fits_document(findings: Findings) -> dict[str, Any]:
    """How good each form is, with the line's coefficients, and where they hold; ``None`` = too little was measured."""
    table, linear = findings.table, findings.linear
    curves = [curve for arm in findings.speculative for curve in arm.curves]
    sizes = [size for curve in curves for size in curve.batch_sizes]
    cached = [figures.cached_tokens for curve in curves for figures in curve.standard]
    valid = {
        "batch_size": [min(sizes), max(sizes)] if sizes else None,
        "context_tokens": [round(min(cached)), round(max(cached))] if cached else None,
        "k": [0, *sorted(arm.k for arm in findings.speculative)],
    }
    fits: dict[str, Any] = {"valid": valid, "table": None, "linear": None}
    if table is not None:
        fits["table"] = {"residual": table.residual, "largest_residual": table.largest_residual}
    if linear is not None:
        fits["linear"] = {
            "residual": linear.residual,
            "largest_residual": linear.largest_residual,
            "coefficients": dict(linear.coefficients),
        }
    return fits
