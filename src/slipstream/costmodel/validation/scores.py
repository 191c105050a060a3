"""Errors of the model beside those of three baselines that know nothing of hardware.

Persistence: the last known figure holds. Log-linear: a straight line through the two known points in the logarithms.
Both are told the two smallest loads of a curve, beside the unfitted model too, which is told neither. `k·tau`: a
constant share of the acceptance length, the best there is over all rows: it is fitted to what it is judged by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slipstream.core.speedup import crossovers_of
from slipstream.costmodel.acceptance import measured
from slipstream.costmodel.arms import request_s, speculative_step_s
from slipstream.costmodel.fit import corrected_speedups, corrected_step_s
from slipstream.costmodel.roofline import pass_s, prefill_s, standard_step_s
from slipstream.costmodel.validation.measurements import SpeedupRow, StepRow

__all__ = [
    "Compared",
    "Crossing",
    "computed_speedup",
    "computed_step_ms",
    "computed_steps_ms",
    "crossings",
    "fitted_speedups",
    "fitted_steps",
    "summary",
    "unfitted_speedups",
    "unfitted_steps",
]

Values = NDArray[np.float64]

_Row = TypeVar("_Row", StepRow, SpeedupRow)

NEAR_ONE = 0.05


@dataclass(frozen=True, slots=True)
class Compared:
    """One measured figure, and what the model and each baseline made of it; ``None`` where a baseline has no say."""

    source: str
    curve: tuple[str, ...]
    load: float
    measured: float
    model: float
    persistence: float | None = None
    log_linear: float | None = None
    k_tau: float | None = None

    def error(self, of: str = "model") -> float | None:
        """Relative error, signed."""
        value = getattr(self, of)
        return None if value is None else value / self.measured - 1.0


@dataclass(frozen=True, slots=True)
class Crossing:
    """Whether a measured curve falls below 1 within its range, and what the model and the baselines say.

    And where: ``None`` = nowhere. Persistence and `k·tau` are flat and cross nowhere.
    """

    curve: tuple[str, ...]
    measured: bool
    model: bool
    persistence: bool
    log_linear: bool
    k_tau: bool
    measured_at: float | None
    model_at: float | None
    log_linear_at: float | None


def summary(rows: Sequence[Compared], of: str = "model") -> tuple[float, float, int]:
    """Median and 90th percentile of the absolute relative error, and how many figures there are."""
    errors = np.array([abs(error) for row in rows if (error := row.error(of)) is not None])
    if not errors.size:
        return float("nan"), float("nan"), 0
    return float(np.median(errors)), float(np.quantile(errors, 0.9)), errors.size


def computed_step_ms(row: StepRow) -> float:
    """The model's step time: a step, and others' prompts in between where the measurement had them."""
    return float(computed_steps_ms(row, row.load))


def computed_steps_ms(row: StepRow, loads: ArrayLike) -> Values:
    """The same at other ``loads``: the curve that ``row`` is a point of."""
    deployment = row.deployment
    loads = np.asarray(loads, float)
    if row.kernels:
        return 1e3 * _kernels_s(row, loads)
    context = row.prompt_tokens + row.output_tokens / 2.0
    step = standard_step_s(deployment, loads, context)
    if row.prompt_tokens:
        waiting = (loads - 1.0) / row.output_tokens * prefill_s(deployment, row.prompt_tokens)
        step = step + deployment.engine.interference * waiting
    return 1e3 * step


def _kernels_s(row: StepRow, loads: Values) -> Values:
    """Linear layers alone: a pass less its output head and its collectives."""
    deployment = row.deployment
    bare = replace(
        deployment,
        model=replace(deployment.model, vocabulary=1),
        engine=replace(deployment.engine, collective_s=0.0),
        hardware=replace(deployment.hardware, link_bytes_per_s=float("inf")),
    )
    return pass_s(bare, loads, 1.0, 0.0)


def computed_speedup(row: SpeedupRow, tau: float) -> float:
    """The model's speedup at an acceptance length."""
    deployment, speculator = row.deployment, row.speculator
    context = row.prompt_tokens + row.output_tokens / 2.0
    standard = standard_step_s(deployment, row.load, context)
    speculative = speculative_step_s(deployment, speculator, row.load, row.k, context, verified=row.verified)
    tokens = 1.0 + speculator.proposing_share * (tau - 1.0)
    if row.decode_only:
        return float(tokens * standard / speculative)
    lengths = (row.load, row.prompt_tokens, row.output_tokens)
    without = request_s(deployment, standard, 1.0, *lengths)
    return float(without / request_s(deployment, speculative, tokens, *lengths, speculator))


def unfitted_steps(rows: Iterable[StepRow]) -> list[Compared]:
    """Every step time from datasheet and constants."""
    rows = list(rows)
    told = _told_the_smallest(rows, lambda row: row.step_ms)
    compared = []
    for row in rows:
        persisting, line = told.get((row.curve, row.load), (None, None))
        compared.append(Compared(row.source, row.curve, row.load, row.step_ms, computed_step_ms(row), persisting, line))
    return compared


def _told_the_smallest(
    rows: Iterable[_Row], figure: Callable[[_Row], float]
) -> dict[tuple[tuple[str, ...], float], tuple[float, float]]:
    """What persistence and the line make of every further load of a curve once its two smallest are known."""
    found = {}
    for curve in _curves(rows):
        truth = np.array([figure(row) for row in curve])
        line = _log_linear(np.array([row.load for row in curve]), truth, [0, 1])
        for index, row in enumerate(curve[2:], 2):
            found[row.curve, row.load] = (float(truth[1]), float(line[index]))
    return found


def _curves(rows: Iterable[_Row]) -> list[list[_Row]]:
    found: dict[tuple[str, ...], dict[float, _Row]] = {}
    for row in rows:
        found.setdefault(row.curve, {}).setdefault(row.load, row)
    return [[curve[load] for load in sorted(curve)] for curve in found.values() if len(curve) > 2]


def fitted_steps(rows: Iterable[StepRow], *, ends: bool) -> list[Compared]:
    """Step times of curves of three loads and more, fitted on the smallest and largest, or on the two smallest."""
    compared = []
    for curve in _curves(rows):
        known = [0, len(curve) - 1] if ends else [0, 1]
        truth = np.array([row.step_ms for row in curve])
        loads = np.array([row.load for row in curve])
        model = corrected_step_s([computed_step_ms(row) for row in curve], truth, known)
        line = _log_linear(loads, truth, known)
        for index, row in enumerate(curve):
            if index not in known:
                persisting = truth[known[0] if ends else known[1]]
                compared.append(
                    Compared(row.source, row.curve, row.load, row.step_ms, model[index], persisting, line[index])
                )
    return compared


def _log_linear(loads: Values, truth: Values, known: Sequence[int]) -> Values:
    first, last = known
    x, y = np.log(loads), np.log(truth)
    slope = (y[last] - y[first]) / (x[last] - x[first])
    return np.asarray(np.exp(y[first] + slope * (x - x[first])), float)


def unfitted_speedups(rows: Iterable[SpeedupRow]) -> list[Compared]:
    """Every speedup whose acceptance is known, from datasheet and constants."""
    rows = list(rows)
    known = [(row, row.tau) for row in rows if row.tau is not None]
    if not known:
        return []
    told = _told_the_smallest(rows, lambda row: row.speedup)
    share = float(np.exp(np.median([np.log(row.speedup / tau) for row, tau in known])))
    compared = []
    for row, tau in known:
        persisting, line = told.get((row.curve, row.load), (None, None))
        model = computed_speedup(row, tau)
        compared.append(Compared(row.source, row.curve, row.load, row.speedup, model, persisting, line, share * tau))
    return compared


def _tau_of(curve: Sequence[SpeedupRow]) -> float:
    """Known, or what makes the model agree at the smallest load."""
    first = curve[0]
    if first.tau is not None:
        return first.tau
    flat = computed_speedup(first, 2.0)
    return float(np.clip(2.0 * first.speedup / flat, 1.0, first.k + 1.0))


def _fitted(curve: Sequence[SpeedupRow]) -> tuple[Values, Values, Values, Values]:
    loads = np.array([row.load for row in curve])
    truth = np.array([row.speedup for row in curve])
    tau = _tau_of(curve)
    measured(tau, max(curve[0].k, tau - 1.0))
    computed = np.array([computed_speedup(row, tau) for row in curve])
    return loads, truth, computed, corrected_speedups(loads, computed, truth, [0, 1])


def fitted_speedups(rows: Iterable[SpeedupRow]) -> list[Compared]:
    """Speedups of curves of three loads and more, fitted on the two smallest."""
    compared = []
    for curve in _curves(rows):
        loads, truth, _, model = _fitted(curve)
        line = _log_linear(loads, truth, [0, 1])
        share = float(np.sqrt(truth[0] * truth[1]))
        for index, row in enumerate(curve[2:], 2):
            compared.append(
                Compared(row.source, row.curve, row.load, row.speedup, model[index], truth[1], line[index], share)
            )
    return compared


def crossings(rows: Iterable[SpeedupRow]) -> list[Crossing]:
    """Does a curve fall below 1 within its range? Fitted on the two smallest loads; curves within 5 % of 1 left out."""
    found = []
    for curve in _curves(rows):
        loads, truth, _, model = _fitted(curve)
        if abs(float(truth.min()) - 1.0) <= NEAR_ONE:
            continue
        line = _log_linear(loads, truth, [0, 1])
        known, predicted, straight = (
            next(iter(crossovers_of(loads.tolist(), values.tolist())), None) for values in (truth, model, line)
        )
        found.append(
            Crossing(
                curve[0].curve,
                bool(truth.min() < 1.0),
                bool(model.min() < 1.0 or truth[:2].min() < 1.0),
                bool(truth[:2].min() < 1.0),
                bool(line.min() < 1.0),
                bool(truth[0] * truth[1] < 1.0),
                known,
                predicted,
                straight,
            )
        )
    return found
