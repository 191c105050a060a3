"""The answer of ``slipstream crossover`` as one document: what ``--json`` prints, tables show and a plot draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Any

from slipstream.cli.crossover_question import Candidate
from slipstream.core.acceptance.measures import alpha_of
from slipstream.core.speedup import CurveShape
from slipstream.costmodel.price import cost_per_million_tokens, gpu_tps
from slipstream.costmodel.rows import Curve

__all__ = ["Answered", "BestK", "Bill", "Found", "answer_of", "curve_document", "curve_name", "throughput"]

BestK = Callable[[int, Sequence[int], int], Sequence[int]]
"""Place of a curve, batch sizes, the most that may be drafted → the best K of each batch size; 0 = none."""


@dataclass(frozen=True, slots=True)
class Bill:
    """``gpus`` of a node, and the ``price`` of one for an hour in any currency; ``None`` = not told."""

    gpus: int | None = None
    price: float | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """One curve with what it was asked for. ``admitted``: requests that fit without and with the speculator."""

    candidate: Candidate
    curve: Curve
    best_k: Sequence[int]
    proposing_share: float = 1.0
    admitted_standard: int | None = None
    admitted_speculative: int | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """The document, its curves for a plot, and what more can be asked of them.

    ``hub_name``: a model's name as an engine finds it; ``None`` where models have no names.
    """

    answer: dict[str, Any]
    curves: Sequence[Curve]
    best_k: BestK
    hub_name: Callable[[str], str] | None = None


def answer_of(
    model: str,
    title: str,
    answered: Sequence[Answered],
    bill: Bill,
    notes: Sequence[str],
    at_admitted: dict[str, Any] | None = None,
    printed: Sequence[str] = (),
) -> dict[str, Any]:
    """The whole document; the first curve stands at its top again. ``printed``: the lines of the published script."""
    curves = [curve_document(one, bill) for one in answered]
    first = curves[0]
    return {
        "model": model,
        "title": title,
        "admitted": first["admitted"],
        "at_admitted": at_admitted,
        "rows": first["rows"],
        "crossovers": first["crossovers"],
        "curves": curves,
        "verdicts": [_verdict(curve) for curve in curves] if len(curves) > 1 else [],
        "best": _best(curves) if len({curve["speculator"] for curve in curves}) > 1 else [],
        "exclusions": [],
        "mixed": [],
        "printed": list(printed),
        "notes": [*notes, *_unreached(curves)],
    }


def curve_document(answered: Answered, bill: Bill) -> dict[str, Any]:
    """One entry of ``curves``. ``alpha`` is ``None`` where nothing is drafted and no alpha was given."""
    candidate, curve = answered.candidate, answered.curve
    tau = curve.rows[0].tau
    alpha = candidate.acceptance.alpha
    if alpha is None and candidate.k > 0:
        alpha = alpha_of(tau, candidate.k)
    batches, _ = curve.sampled
    return {
        "speculator": candidate.speculator,
        "category": candidate.category,
        "k": candidate.k,
        "alpha": alpha,
        "survival": candidate.acceptance.survival,
        "acceptance_source": candidate.acceptance.source,
        "proposing_share": answered.proposing_share,
        "tau": tau,
        "rows": [
            {
                "batch_size": _whole(row.batch_size),
                "speedup": row.speedup,
                "tau": row.tau,
                "standard_step_ms": row.standard_step_ms,
                "speculative_step_ms": row.speculative_step_ms,
                "standard_aggregate_tps": row.standard_aggregate_tps,
                "speculative_aggregate_tps": row.speculative_aggregate_tps,
                "best_k": best,
                "recommendation": row.recommendation.value,
            }
            for row, best in zip(curve.rows, answered.best_k, strict=True)
        ],
        "crossovers": list(curve.crossovers),
        "shape": curve.shape.value,
        "sentence": _sentence(curve, answered.proposing_share),
        "searched_from": _whole(batches[0]),
        "searched_to": _whole(batches[-1]),
        "admitted": {"standard": answered.admitted_standard, "speculative": answered.admitted_speculative},
        "throughput": [
            {
                "batch_size": _whole(row.batch_size),
                "standard_user_tps": row.standard_user_tps,
                "speculative_user_tps": row.speculative_user_tps,
            }
            | throughput("standard", row.standard_aggregate_tps, bill)
            | throughput("speculative", row.speculative_aggregate_tps, bill)
            for row in curve.rows
        ],
    }


def _sentence(curve: Curve, proposing_share: float) -> str:
    """Where the curve crosses 1; if nowhere, why."""
    found = ", ".join(f"{crossover:.1f}" for crossover in curve.crossovers)
    if curve.crossovers:
        return f"{'Crossovers' if len(curve.crossovers) > 1 else 'Crossover'} at batch {found}: {curve.shape.value}."
    never = curve.shape is CurveShape.NEVER_BELOW
    row = (min if never else max)(curve.rows, key=lambda one: one.speedup)
    longer = row.speculative_step_ms / row.standard_step_ms
    tokens = 1.0 + proposing_share * (row.tau - 1.0)
    batches, _ = curve.sampled
    what = f"No crossover from batch {batches[0]:g} to {batches[-1]:g}: {curve.shape.value}."
    gives = f"gives {'' if never else 'no more than '}{tokens:.2f} tokens"
    return f"{what} At batch {row.batch_size:g} a verify step takes {longer:.2f} times a standard one and {gives}."


def throughput(arm: str, tps: float, bill: Bill) -> dict[str, float | None]:
    """Tokens per second of a GPU and the cost of a million tokens, ``None`` where the bill does not tell."""
    gpus, price = bill.gpus, bill.price
    return {
        f"{arm}_gpu_tps": None if gpus is None else gpu_tps(tps, gpus),
        f"{arm}_cost_per_million": None if gpus is None or price is None else cost_per_million_tokens(tps, gpus, price),
    }


def curve_name(curve: dict[str, Any]) -> str:
    """What tells one curve from the others: category, speculator, acceptance, K."""
    geometric = curve["survival"] is None
    acceptance = f"alpha {curve['alpha']:.2f}" if geometric else f"tau {curve['tau']:.2f}"
    words = [curve["speculator"], acceptance, f"K = {curve['k']}"]
    if curve["proposing_share"] != 1.0:
        words.append(f"p = {curve['proposing_share']:.2g}")
    return ", ".join(words if curve["category"] is None else [curve["category"], *words])


def _whole(size: float) -> float:
    """Batch sizes are whole, but for those of a measured profile."""
    return int(size) if size == int(size) else size


def _verdict(curve: dict[str, Any]) -> str:
    """What to do with a curve's requests, in a sentence."""
    low, high, crossovers = curve["searched_from"], curve["searched_to"], curve["crossovers"]
    match CurveShape(curve["shape"]):
        case CurveShape.NEVER_BELOW:
            what = f"pays from batch {low:g} to {high:g}"
        case CurveShape.BELOW_THROUGHOUT:
            what = f"exclude it: at no batch size from {low:g} to {high:g} does it pay"
        case CurveShape.FALLS_BELOW:
            what = f"pays to batch {floor(crossovers[0])}; exclude it above"
        case CurveShape.RISES_ABOVE:
            what = f"exclude it below batch {ceil(crossovers[0])}; pays from there on"
        case CurveShape.CROSSES_REPEATEDLY:
            what = f"changes sides at batch {', '.join(f'{one:.0f}' for one in crossovers)}"
    return f"{curve_name(curve)}: {what}."


def _best(curves: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each category, or all requests, the curve that gains most at each batch size; ``None`` where none gains."""
    found: list[dict[str, Any]] = []
    for category in dict.fromkeys(curve["category"] for curve in curves):
        places = [place for place, curve in enumerate(curves) if curve["category"] == category]
        for at, batch in enumerate(row["batch_size"] for row in curves[places[0]]["rows"]):
            speedups = {place: curves[place]["rows"][at]["speedup"] for place in places}
            most = max(places, key=speedups.__getitem__)
            chosen = most if speedups[most] > 1.0 else None
            found.append({"category": category, "batch_size": batch, "curve": chosen, "speedup": speedups[most]})
    return found


def _unreached(curves: Sequence[dict[str, Any]]) -> list[str]:
    """What lies above the number of requests that fit is never met: memory ends the batch first."""
    notes = []
    for curve in curves:
        fits = curve["admitted"]["speculative"]
        if fits is None:
            continue
        above = [f"the crossover at {one:.1f}" for one in curve["crossovers"] if one > fits][:1]
        if curve["rows"][-1]["batch_size"] > fits:
            above.insert(0, "the rows above that")
        if above:
            who = f"{curve_name(curve)}: no" if len(curves) > 1 else "No"
            notes.append(f"{who} more than {fits} requests fit, so {' and '.join(above)} can not be had.")
    return notes
