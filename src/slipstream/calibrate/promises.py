"""What a profile promises that a gateway can see for itself, and what it was measured with, to be held against it."""

from __future__ import annotations

from collections import Counter
from math import exp
from typing import Any

from slipstream.calibrate.acceptance import ALL
from slipstream.calibrate.figures import Figures, unrest_of
from slipstream.calibrate.findings import Findings, SpeculativeArm
from slipstream.core.acceptance.student import t_quantile_97_5

__all__ = ["promises_document"]


def promises_document(findings: Findings) -> dict[str, Any]:
    """Times per token at the plan's first context, acceptance by category, what was asked, and what answers and
    reports said of the nodes beside engine and version.
    """
    observed = findings.observed
    arms = [observed.standard, *(arm.arm for arm in findings.speculative)]
    fingerprints = dict.fromkeys(arm.system_fingerprint for arm in arms if arm.system_fingerprint is not None)
    replicas = {arm.node.facts.replicas for arm in arms}
    return {
        "times": _times(findings),
        "acceptance": [row for arm in findings.speculative for row in _acceptance(arm)],
        "traffic": _traffic(findings),
        "replicas": replicas.pop() if len(replicas) == 1 else None,
        "system_fingerprints": list(fingerprints),
    }


def _times(findings: Findings) -> list[dict[str, Any]]:
    observed = findings.observed
    context, unrest = observed.plan.context_tokens[0], unrest_of(observed.standard.waves.values())
    arms = [(0, observed.standard), *((arm.k, arm.arm) for arm in findings.speculative)]
    return [
        {
            "k": k,
            "batch_size": point.batch_size,
            "tpot_ms": figures.token_s * 1e3,
            "interval_ms": _interval_ms(figures),
        }
        for k, arm in arms
        for point, figures in sorted(arm.figures(unrest).items(), key=lambda item: item[0].batch_size)
        if point.context_tokens == context
    ]


def _interval_ms(figures: Figures) -> list[float] | None:
    if figures.error is None:
        return None
    width = exp(t_quantile_97_5(figures.requests - 1.0) * figures.error)
    return [figures.token_s * 1e3 / width, figures.token_s * 1e3 * width]


def _acceptance(arm: SpeculativeArm) -> list[dict[str, Any]]:
    speculator = arm.arm.node.speculator.fingerprint
    return [
        {
            "speculator": speculator,
            "category": name,
            "alpha": estimate.alpha,
            "tokens_per_step": estimate.tokens_per_step,
            "interval": estimate.tokens_per_step_interval,
            "requests": estimate.requests,
        }
        for name, estimate in arm.acceptance.items()
        if name != ALL and estimate.tokens_per_step is not None
    ]


def _traffic(findings: Findings) -> dict[str, Any] | None:
    """``None`` where nothing was measured."""
    observed = findings.observed
    arms = [observed.standard, *(arm.arm for arm in findings.speculative)]
    decoded = [one for arm in arms for waves in arm.waves.values() for wave in waves for one in wave.decoded]
    if not decoded:
        return None
    counts = Counter(one.category for one in decoded)
    contexts = [figures.cached_tokens for arm in arms for figures in arm.figures().values()]
    return {
        "categories": {name: count / len(decoded) for name, count in counts.items()},
        "prompt_tokens": list(observed.plan.context_tokens),
        "output_tokens": observed.plan.output_tokens,
        "context_tokens": [min(contexts), max(contexts)],
    }
