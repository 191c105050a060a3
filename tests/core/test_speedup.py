"""Speedup, crossovers and the published script, with every figure that its articles give."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.core.acceptance import mean_acceptance_length_of
from slipstream.core.speedup import (
    CurveShape,
    Recommendation,
    crossovers_of,
    latency_speedup,
    padded_mean_acceptance_length,
    published_row,
    published_speedup,
    recommendation_of,
    rejected_share,
    shape_of,
    speedup_of,
    verified_tokens,
)

alphas = st.floats(0.0, 1.0)
draft_lengths = st.integers(0, 16)
EVERY_BATCH = range(1, 513)


def script(acceptance_rate: float, speculative_steps: int, batch_size: int) -> dict[str, object]:
    """The article's arithmetic, kept apart from ours so that one can be compared with the other."""
    target = 35.0 + (batch_size * 0.45)
    draft = 6.0 + (batch_size * 0.12)
    if acceptance_rate == 1.0:
        tokens: float = speculative_steps + 1
    else:
        tokens = (1 - pow(acceptance_rate, speculative_steps + 1)) / (1 - acceptance_rate)
    user = tokens / ((target + speculative_steps * draft) / 1000.0)
    standard = 1.0 / (target / 1000.0)
    return {
        "speedup": round(user / standard, 2),
        "speculative": round(user * batch_size, 1),
        "standard": round(standard * batch_size, 1),
    }


@pytest.mark.parametrize(("batch", "speedup"), [(1, 1.70), (4, 1.69), (16, 1.65), (32, 1.60), (64, 1.55)])
def test_the_published_script_number_for_number(batch: int, speedup: float) -> None:
    row = published_row(0.72, 4, batch)
    assert round(row.speedup, 2) == speedup
    assert str(row) == f"Batch {batch:2d} -> Speedup: {speedup}x | Strategy: ENABLE_SPECULATIVE"


@given(alphas, draft_lengths, st.integers(1, 512))
def test_every_published_figure_is_the_scripts(alpha: float, k: int, batch: int) -> None:
    row = published_row(alpha, k, batch)
    expected = script(alpha, k, batch)
    # alpha just under 1 is where the script itself loses its digits
    assert row.speedup == pytest.approx(expected["speedup"], abs=0.006 if alpha < 0.9999999 else 1e9)
    assert round(row.standard_aggregate_tps, 1) == expected["standard"]


def test_what_the_text_says_needs_the_verify_width() -> None:
    assert round(published_speedup(0.72, 4, 32, verify_width=True), 2) == 0.97
    curve = [published_speedup(0.72, 4, batch, verify_width=True) for batch in EVERY_BATCH]
    assert [round(crossover, 1) for crossover in crossovers_of(EVERY_BATCH, curve)] == [29.2]
    assert shape_of(EVERY_BATCH, curve) is CurveShape.FALLS_BELOW


def test_without_the_verify_width_the_script_never_falls_below_its_limit() -> None:
    curve = [published_speedup(0.72, 4, batch) for batch in EVERY_BATCH]
    assert crossovers_of(EVERY_BATCH, curve) == ()
    assert shape_of(EVERY_BATCH, curve) is CurveShape.NEVER_BELOW
    assert round(published_speedup(0.72, 4, 1e9), 2) == 1.39


def test_the_articles_other_figures() -> None:
    assert round(mean_acceptance_length_of(0.75, 4), 2) == 3.05
    assert round(latency_speedup(1.0, 4, 0.15), 4) == round(5 / 1.60, 4)  # the articles' cost ratio
    assert round(latency_speedup(0.75, 4, 0.15), 2) == 1.91
    assert round(latency_speedup(0.72, 4, 0.15), 2) == 1.80
    assert round(latency_speedup(0.45, 4, 0.15), 2) == 1.12
    assert round(rejected_share(0.6, 4), 2) == 0.67


def test_the_second_half_of_the_rule_binds_only_where_the_arms_carry_different_loads() -> None:
    assert recommendation_of(1.2, 1.2, 1.0) is Recommendation.SPECULATIVE
    assert recommendation_of(1.2, 0.84, 1.0) is Recommendation.STANDARD
    assert recommendation_of(1.15, 2.0, 1.0) is Recommendation.STANDARD


@given(alphas, st.floats(0.1, 100.0))
def test_nothing_drafted_gains_nothing(alpha: float, step: float) -> None:
    assert speedup_of(mean_acceptance_length_of(alpha, 0), step, step) == pytest.approx(1.0, rel=1e-12)


@given(alphas, alphas, st.integers(1, 16))
def test_tau_lies_between_1_and_k_plus_1_and_rises_with_alpha(one: float, other: float, k: int) -> None:
    low, high = sorted((one, other))
    low_tau, high_tau = mean_acceptance_length_of(low, k), mean_acceptance_length_of(high, k)
    assert 1.0 <= low_tau <= high_tau + 1e-12
    assert high_tau <= k + 1.0
    assert 1.0 + sum(low**position for position in range(1, k + 1)) == pytest.approx(low_tau, rel=1e-9)


@given(st.lists(st.floats(0.5, 1.5).filter(lambda speedup: abs(speedup - 1.0) > 1e-6), min_size=1, max_size=40))
def test_a_crossover_is_a_sign_change(speedups: list[float]) -> None:
    batches = range(1, len(speedups) + 1)
    changes = [
        batch
        for batch, (before, after) in zip(batches, pairwise(speedups), strict=False)
        if (before - 1) * (after - 1) < 0
    ]
    found = crossovers_of(batches, speedups)
    assert len(found) == len(changes)
    assert all(batch <= crossover <= batch + 1 for batch, crossover in zip(changes, found, strict=True))


def test_a_point_on_1_is_a_crossover_only_if_the_curve_goes_through() -> None:
    assert crossovers_of([1, 2, 3], [1.5, 1.0, 0.5]) == (2.0,)
    assert crossovers_of([1, 2, 3], [1.5, 1.0, 1.5]) == ()
    assert crossovers_of([1, 2], [1.0, 1.0]) == ()


@pytest.mark.parametrize(
    ("speedups", "shape"),
    [
        ([1.2, 1.1], CurveShape.NEVER_BELOW),
        ([1.0, 1.0], CurveShape.NEVER_BELOW),
        ([0.9, 0.8], CurveShape.BELOW_THROUGHOUT),
        ([1.2, 0.8], CurveShape.FALLS_BELOW),
        ([1.0, 0.8], CurveShape.BELOW_THROUGHOUT),
        ([0.8, 1.2], CurveShape.RISES_ABOVE),
        ([1.2, 0.8, 1.2], CurveShape.CROSSES_REPEATEDLY),
    ],
)
def test_a_curve_is_told_by_its_shape(speedups: list[float], shape: CurveShape) -> None:
    assert shape_of(range(len(speedups)), speedups) is shape


def test_a_padded_batch_keeps_what_its_worst_request_keeps() -> None:
    assert padded_mean_acceptance_length([0.8], 4) == mean_acceptance_length_of(0.8, 4)
    assert padded_mean_acceptance_length([0.8, 0.5], 4) == pytest.approx(1 + sum(0.4**i for i in range(1, 5)))


def test_verify_width_counts_only_requests_that_propose() -> None:
    assert verified_tokens(8, 4) == 40
    assert verified_tokens(8, 4, 0.25) == 16


@pytest.mark.parametrize(
    ("impossible", "sentence"),
    [
        (lambda: published_row(1.2, 4, 1), "per-token acceptance must be 0..1"),
        (lambda: published_row(0.5, -1, 1), "draft length not negative"),
        (lambda: published_row(0.5, 1, 0), "batch size must be positive"),
        (lambda: rejected_share(0.5, 0), "draft length must be positive"),
        (lambda: speedup_of(1.0, 0.0, 1.0), "longer than nothing"),
        (lambda: crossovers_of([1], []), "do not go with"),
        (lambda: crossovers_of([2, 1], [1.0, 1.0]), "must rise"),
        (lambda: shape_of([], []), "at least one point"),
    ],
)
def test_impossible_input_is_told(impossible: object, sentence: str) -> None:
    assert callable(impossible)
    with pytest.raises(ValueError, match=sentence):
        impossible()
