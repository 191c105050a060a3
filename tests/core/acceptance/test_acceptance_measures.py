from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from slipstream.core.acceptance import (
    alpha_of,
    draft_acceptance_ratio_of,
    mean_acceptance_length_from_counts,
    mean_acceptance_length_from_ratio,
    mean_acceptance_length_from_survival,
    mean_acceptance_length_of,
    survival_of,
    tokens_per_step_of,
)
from slipstream.core.acceptance.student import NORMAL_97_5, t_quantile_97_5

alphas = st.floats(0.0, 1.0)
draft_lengths = st.one_of(st.integers(1, 64).map(float), st.floats(0.2, 64.0))


@pytest.mark.parametrize(
    ("alpha", "k", "cost", "figure"), [(0.75, 4, 1.0, 3.05), (0.72, 4, 1.6, 1.80), (0.45, 4, 1.6, 1.12)]
)
def test_the_articles_figures_come_out(alpha: float, k: int, cost: float, figure: float) -> None:
    assert round(mean_acceptance_length_of(alpha, k) / cost, 2) == figure


def test_alpha_is_not_what_counters_show() -> None:
    tau = mean_acceptance_length_of(0.75, 4)
    assert round(draft_acceptance_ratio_of(tau, 4), 2) == 0.51
    assert alpha_of(tau, 4) == pytest.approx(0.75, abs=1e-12)


@given(alphas, draft_lengths)
def test_alpha_survives_the_way_to_tau_and_back(alpha: float, k: float) -> None:
    tau = mean_acceptance_length_of(alpha, k)
    assert 1.0 <= tau <= k + 1.0 + 1e-12
    assert alpha_of(tau, k) == pytest.approx(alpha, abs=1e-9)


@given(st.floats(0.0, 1.0), draft_lengths)
def test_tau_survives_the_way_to_alpha_and_back(share: float, k: float) -> None:
    tau = 1.0 + share * k
    assert mean_acceptance_length_of(alpha_of(tau, k), k) == pytest.approx(tau, rel=1e-9)


@given(alphas, alphas, draft_lengths)
def test_tau_rises_with_alpha(low: float, high: float, k: float) -> None:
    assume(high - low > 1e-9)
    assert mean_acceptance_length_of(low, k) <= mean_acceptance_length_of(high, k)


@given(alphas, draft_lengths, draft_lengths)
def test_tau_rises_with_the_draft_length(alpha: float, short: float, long: float) -> None:
    assume(short < long)
    assert mean_acceptance_length_of(alpha, short) <= mean_acceptance_length_of(alpha, long) + 1e-12


@given(alphas, st.integers(1, 32))
def test_the_geometric_form_is_the_survival_form_with_powers_of_alpha(alpha: float, k: int) -> None:
    survival = [alpha**i for i in range(1, k + 1)]
    assert mean_acceptance_length_from_survival(survival) == pytest.approx(mean_acceptance_length_of(alpha, k))


@given(st.floats(1.0, 20.0), st.integers(1, 32))
def test_a_draft_acceptance_ratio_survives_the_way_to_tau_and_back(tau: float, k: int) -> None:
    assert mean_acceptance_length_from_ratio(draft_acceptance_ratio_of(tau, k), k) == pytest.approx(tau)


@pytest.mark.parametrize("k", [1.0, 3.94, 4.0, 16.0])
def test_the_ends_of_the_range_are_exact_and_clamped(k: float) -> None:
    assert mean_acceptance_length_of(1.0, k) == k + 1.0
    assert mean_acceptance_length_of(0.0, k) == 1.0
    assert alpha_of(k + 1.0, k) == alpha_of(k + 2.0, k) == 1.0
    assert alpha_of(1.0, k) == alpha_of(0.5, k) == 0.0


def test_nothing_drafted_says_nothing() -> None:
    assert mean_acceptance_length_of(0.7, 0) == pytest.approx(1.0)
    assert mean_acceptance_length_from_counts(0, 0) is None
    assert survival_of((), 0) is None
    with pytest.raises(ValueError, match="draft length must be positive"):
        alpha_of(1.0, 0)
    with pytest.raises(ValueError, match="draft length must be positive"):
        draft_acceptance_ratio_of(1.0, 0)


@pytest.mark.parametrize(("alpha", "k"), [(-0.1, 4), (1.1, 4), (0.5, -1), (float("nan"), 4)])
def test_impossible_acceptance_is_refused(alpha: float, k: float) -> None:
    with pytest.raises(ValueError, match="per-token acceptance must be"):
        mean_acceptance_length_of(alpha, k)


def test_recorded_counters_of_an_engine_agree_on_tau_by_counts_and_by_survival() -> None:
    survival = survival_of((96, 96, 96, 90), 96)
    assert survival == (1.0, 1.0, 1.0, 0.9375)
    assert mean_acceptance_length_from_survival(survival) == mean_acceptance_length_from_counts(378, 96)


@given(st.floats(1.0, 10.0), st.floats(0.0, 1.0))
def test_tokens_per_step_lie_between_none_and_tau(tau: float, share: float) -> None:
    assert 1.0 <= tokens_per_step_of(tau, share) <= tau + 1e-12
    assert tokens_per_step_of(tau, 1.0) == pytest.approx(tau)
    assert tokens_per_step_of(tau, 0.0) == 1.0


@pytest.mark.parametrize(
    ("degrees_of_freedom", "quantile"),  # from scipy.stats.t.ppf(0.975, …)
    [
        (1.0, 12.7062047), (1.5, 6.0166631), (2.0, 4.3026527), (3.7, 2.8675207), (9.0, 2.2621572), (11.9, 2.1808452),
        (30.0, 2.0422725), (250.5, 1.9694793), (1e5, 1.9599877),
    ],
)  # fmt: skip
def test_students_quantile_is_the_tabulated_one(degrees_of_freedom: float, quantile: float) -> None:
    assert t_quantile_97_5(degrees_of_freedom) == pytest.approx(quantile, rel=1e-4)


def test_students_quantile_is_the_normal_one_for_endless_freedom_and_that_of_one_below_one() -> None:
    assert t_quantile_97_5(float("inf")) == NORMAL_97_5
    assert t_quantile_97_5(0.2) == t_quantile_97_5(1.0)
