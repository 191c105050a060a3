"""Corrections of computed curves from a few measured points.

A model that is right about the shape needs little: how dear the smallest load is, and how fast it grows from there.
Both start at what was computed and move only as far as the points demand (ridge regression towards 1): two noisy
points must not bend a curve that the datasheet knows better.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["corrected_speedups", "corrected_step_s"]

Values = NDArray[np.float64]

STEP_NOISE = 0.02
BASE_SPREAD = 0.5
GROWTH_SPREAD = 0.4
"""Relative: of a measured step time, of the computed smallest step, of the computed growth."""

SPEEDUP_NOISE = 0.02
SLOPE_SPREAD = 0.02
"""In the logarithm: of a measured speedup, and of the error's growth with the logarithm of the load."""

CHANGE_TRUST = 0.9
"""Share of a computed change beyond the known loads that is believed: the rest is persistence."""

_BASE_SHARE = 0.9
"""Of the smallest computed step, what is taken for independent of the load."""


def corrected_step_s(computed: ArrayLike, measured: ArrayLike, known: ArrayLike) -> Values:
    """Step times of a curve, corrected by the points that were measured.

    ``computed`` at every load, the smallest first; ``measured`` in the same unit and shape, read only where ``known``
    (indices). The result goes near, not through, the known points.
    """
    computed = np.asarray(computed, float)
    index = np.asarray(known, int)
    base = np.full_like(computed, computed[0] * _BASE_SHARE)
    parts = np.stack([base, computed - base], axis=1)
    rows = parts[index] / np.asarray(measured, float)[index, None]
    prior = np.array([1.0 / BASE_SPREAD**2, 1.0 / GROWTH_SPREAD**2])
    normal = rows.T @ rows / STEP_NOISE**2 + np.diag(prior)
    scales = np.linalg.solve(normal, rows.sum(axis=0) / STEP_NOISE**2 + prior)
    return np.asarray(parts @ np.maximum(scales, 0.0), float)


def corrected_speedups(
    loads: ArrayLike, computed: ArrayLike, measured: ArrayLike, known: ArrayLike, *, trust: float = CHANGE_TRUST
) -> Values:
    """Speedups of a curve, corrected by the points that were measured.

    The logarithm of the error is taken to be a constant plus a small slope in the logarithm of the load, anchored at
    the largest known load. ``trust`` is the share of the computed change beyond it that is believed, 0..1: 0 is
    persistence.
    """
    along = np.log(np.asarray(loads, float))
    logs = np.log(np.asarray(computed, float))
    index = np.asarray(known, int)
    last = index[-1]
    error = np.log(np.asarray(measured, float)[index]) - logs[index]
    rows = np.stack([np.ones(len(index)), along[index] - along[last]], axis=1)
    prior = np.diag([1e-6, 1.0 / SLOPE_SPREAD**2])
    constant, slope = np.linalg.solve(rows.T @ rows / SPEEDUP_NOISE**2 + prior, rows.T @ error / SPEEDUP_NOISE**2)
    change = logs - logs[last]
    return np.asarray(np.exp(logs[last] + constant + trust * (change + slope * (along - along[last]))), float)
