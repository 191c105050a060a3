"""Corrections go through what was measured and stay near what was computed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.costmodel.fit import corrected_speedups, corrected_step_s

COMPUTED = np.array([7.0, 7.2, 7.9, 10.0, 18.0])
LOADS = np.array([1.0, 8.0, 32.0, 128.0, 512.0])


@given(st.floats(0.7, 1.4), st.floats(0.7, 1.4))
def test_steps_that_are_dearer_by_a_factor_are_found(base: float, growth: float) -> None:
    truth = COMPUTED[0] * 0.9 * base + (COMPUTED - COMPUTED[0] * 0.9) * growth
    assert corrected_step_s(COMPUTED, truth, [0, 4]) == pytest.approx(truth, rel=0.03)


def test_two_noisy_points_do_not_bend_the_curve() -> None:
    noisy = COMPUTED * np.array([1.02, 0.98, 1.0, 1.0, 1.0])
    assert corrected_step_s(COMPUTED, noisy, [0, 1]) == pytest.approx(COMPUTED, rel=0.15)


def test_speedups_begin_at_the_last_known_one() -> None:
    computed = np.array([2.0, 1.9, 1.6, 1.2, 0.7])
    truth = computed * 0.9
    corrected = corrected_speedups(LOADS, computed, truth, [0, 1], trust=1.0)
    assert corrected == pytest.approx(truth, rel=0.01)
    assert corrected_speedups(LOADS, computed, truth, [0, 1], trust=0.0)[2:] == pytest.approx(truth[1], rel=0.01)
