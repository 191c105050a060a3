"""Profiles out of measured steps: a line through them, and a table that never falls as the batch grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression, nnls

__all__ = ["LinearFit", "Step", "TableFit", "linear_fit", "table_fit"]


SEVERAL_CONTEXTS: Final = 1.5
"""The longest over the shortest, from which a price of cached tokens can be told from noise."""


@dataclass(frozen=True, slots=True)
class Step:
    """A measured step of ``batch_size`` sequences with ``cached_tokens`` each, at draft length ``k`` (0 = the standard
    arm) of which a share ``proposing`` (0..1) of the sequences used it. ``requests`` it was measured with.
    """

    batch_size: int
    k: int
    cached_tokens: float
    proposing: float
    seconds: float
    requests: int


@dataclass(frozen=True, slots=True)
class LinearFit:
    """``coefficients`` by the names of a linear profile. Residuals are relative to what was measured: their root mean
    square, and the largest.
    """

    coefficients: Mapping[str, float]
    residual: float
    largest_residual: float


@dataclass(frozen=True, slots=True)
class TableFit:
    """``points``: k → (batch size, seconds), rising in both. Residuals as of `LinearFit`: how far
    measured times had to be moved for that.
    """

    points: Mapping[int, tuple[tuple[int, float], ...]]
    residual: float
    largest_residual: float


def linear_fit(steps: Sequence[Step], prefill_token_s: float = 0.0) -> LinearFit | None:
    """No coefficient is negative, and each time counts by its relative error. Cached tokens have a price of their own
    only where several contexts were measured, a verify step only where several draft lengths were: with one, it is in
    the price of a draft's passes. ``None`` without two batch sizes of the standard arm.
    """
    if len({step.batch_size for step in steps if step.k == 0}) < 2:
        return None
    batch = np.array([step.batch_size for step in steps], np.float64)
    k = np.array([step.k for step in steps], np.float64)
    drafted = batch * k * np.array([step.proposing for step in steps])
    seconds = np.array([step.seconds for step in steps])
    columns = {"step_s": np.ones_like(batch), "token_s": batch + drafted}
    cached = [step.cached_tokens for step in steps]
    if max(cached) > SEVERAL_CONTEXTS * min(cached):
        columns["cached_token_s"] = batch * np.array(cached)
    if np.any(k > 0):
        columns |= {"draft_pass_s": k, "draft_token_s": drafted}
        if len(set(k[k > 0].tolist())) > 1:
            columns["overhead_s"] = (k > 0).astype(np.float64)
    weight = np.sqrt([step.requests for step in steps]) / seconds
    matrix = np.column_stack(list(columns.values()))
    scale = np.maximum(matrix.max(axis=0), 1e-12)  # all of a size, or the solver's tolerance forgets small ones
    found = nnls(matrix / scale * weight[:, None], seconds * weight)[0] / scale
    residuals = matrix @ found / seconds - 1.0
    coefficients = {name: float(value) for name, value in zip(columns, found, strict=True)}
    coefficients["prefill_token_s"] = prefill_token_s
    return LinearFit(coefficients, *_sizes(residuals))


def table_fit(steps: Sequence[Step]) -> TableFit | None:
    """By isotonic regression, weighed by requests, over steps of one context. ``None`` without the standard arm."""
    by_k: dict[int, list[Step]] = {}
    for step in sorted(steps, key=lambda step: (step.k, step.batch_size)):
        by_k.setdefault(step.k, []).append(step)
    if 0 not in by_k:
        return None
    points: dict[int, tuple[tuple[int, float], ...]] = {}
    residuals: list[NDArray[np.float64]] = []
    for k, own in by_k.items():
        seconds = np.array([step.seconds for step in own])
        fitted = isotonic_regression(seconds, weights=[step.requests for step in own]).x
        points[k] = tuple((step.batch_size, float(value)) for step, value in zip(own, fitted, strict=True))
        residuals.append(fitted / seconds - 1.0)
    return TableFit(points, *_sizes(np.concatenate(residuals)))


def _sizes(residuals: NDArray[np.float64]) -> tuple[float, float]:
    return float(np.sqrt((residuals**2).mean())), float(np.abs(residuals).max())
