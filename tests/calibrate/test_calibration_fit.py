"""Fits of step times that are known, and what noise does to them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.calibrate.fit import Step, linear_fit, table_fit

SECONDS = st.floats(1e-6, 1e-2)


def steps_of(
    step: float, token: float, cached: float, draft_pass: float, draft: float, ks: tuple[int, ...]
) -> list[Step]:
    found = []
    for k in ks:
        for context in (100.0, 1000.0):
            for batch in (1, 2, 4, 8, 16):
                seconds = step + batch * (token * (1 + k) + cached * context + draft * k) + draft_pass * k
                found.append(Step(batch, k, context, 1.0, seconds, 4))
    return found


@settings(max_examples=25, deadline=None)
@given(SECONDS, SECONDS, st.floats(0.0, 1e-6), SECONDS, SECONDS)
def test_a_line_is_found_again(step: float, token: float, cached: float, draft_pass: float, draft: float) -> None:
    fit = linear_fit(steps_of(step, token, cached, draft_pass, draft, (0, 4)))
    assert fit is not None
    assert fit.largest_residual < 0.01
    assert fit.residual <= fit.largest_residual
    assert min(fit.coefficients.values()) >= 0.0


def test_what_verifying_costs_besides_needs_two_draft_lengths() -> None:
    one = linear_fit(steps_of(0.01, 1e-4, 1e-7, 1e-3, 1e-5, (0, 4)), prefill_token_s=2e-5)
    two = linear_fit(steps_of(0.01, 1e-4, 1e-7, 1e-3, 1e-5, (0, 2, 4)))
    assert one is not None
    assert two is not None
    assert "overhead_s" not in one.coefficients
    assert one.coefficients["prefill_token_s"] == 2e-5
    assert two.coefficients["overhead_s"] == pytest.approx(0.0, abs=1e-5)
    assert two.coefficients["draft_pass_s"] == pytest.approx(1e-3, rel=0.01)
    assert two.coefficients["cached_token_s"] == pytest.approx(1e-7, rel=0.01)


def test_cached_tokens_have_no_price_where_all_had_as_many() -> None:
    steps = [step for step in steps_of(0.01, 1e-4, 0.0, 1e-3, 0.0, (0, 4)) if step.cached_tokens == 100.0]
    fit = linear_fit(steps)
    assert fit is not None
    assert "cached_token_s" not in fit.coefficients


def test_one_batch_size_makes_no_line_and_no_standard_arm_no_table() -> None:
    steps = steps_of(0.01, 1e-4, 0.0, 1e-3, 0.0, (4,))
    assert linear_fit(steps) is None
    assert table_fit(steps) is None


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(1e-4, 1.0), min_size=1, max_size=8))
def test_a_table_never_falls_and_moves_only_what_does(seconds: list[float]) -> None:
    fit = table_fit([Step(batch, 0, 100.0, 0.0, time, 4) for batch, time in enumerate(seconds, 1)])
    assert fit is not None
    fitted = [time for _, time in fit.points[0]]
    assert all(low <= high * (1 + 1e-12) for low, high in pairwise(fitted))
    if seconds == sorted(seconds):
        assert fitted == pytest.approx(seconds)
        assert fit.residual == pytest.approx(0.0, abs=1e-12)
