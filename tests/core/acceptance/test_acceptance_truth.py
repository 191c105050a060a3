"""Estimators against simulated truth."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt

import numpy as np
import pytest

from core.acceptance.drafting_model import Beta, K, requests, requests_by_survival, true_tau
from slipstream.core.acceptance import (
    NO_EVIDENCE,
    AcceptanceBook,
    AcceptancePrior,
    Evidence,
    SpeculationSample,
    alpha_of,
    blended_estimate,
    measured_estimate,
    steps_of,
)
from slipstream.core.node import Speculator, SpeculatorKind

DRAFT = Speculator(SpeculatorKind.DRAFT, K)
REPETITIONS = 400


def evidence_of(samples: Iterable[SpeculationSample], pause: float = 0.0) -> Evidence:
    evidence, now = NO_EVIDENCE, 0.0
    for sample in samples:
        steps = steps_of(sample, DRAFT)
        assert steps is not None
        now += pause
        evidence = evidence.credited(sample, steps, now)
    return evidence


def covers(interval: tuple[float, float] | None, truth: float) -> bool:
    assert interval is not None
    return interval[0] <= truth <= interval[1]


@pytest.mark.parametrize("acceptance", [Beta(0.75, 1e6), Beta(0.75, 8.0), Beta(0.45, 8.0)])
def test_tau_and_alpha_are_recovered_from_many_requests(acceptance: Beta) -> None:
    truth = true_tau(acceptance)
    estimate = measured_estimate(evidence_of(requests(np.random.default_rng(1), acceptance, 3000)))
    assert estimate.tau == pytest.approx(truth, rel=0.02)
    assert estimate.alpha == pytest.approx(alpha_of(truth, K), abs=0.01)
    assert estimate.k == K
    assert covers(estimate.tau_interval, truth)


def test_acceptance_that_does_not_decay_geometrically_is_recovered() -> None:
    survival = (0.8, 0.7, 0.3, 0.28)
    estimate = measured_estimate(evidence_of(requests_by_survival(np.random.default_rng(2), survival, 2000)))
    assert estimate.tau == pytest.approx(1.0 + sum(survival), rel=0.01)
    assert estimate.draft_acceptance_ratio == pytest.approx(sum(survival) / K, rel=0.01)


@pytest.mark.no_cover
@pytest.mark.parametrize(("count", "pause"), [(15, 0.0), (60, 0.0), (60, 20.0)])
def test_intervals_keep_their_promise_where_tokens_of_a_request_go_together(count: int, pause: float) -> None:
    acceptance = Beta(0.7, 8.0)
    truth = true_tau(acceptance)
    rng = np.random.default_rng(3)
    tau = alpha = tokens_per_step = blended = 0
    for _ in range(REPETITIONS):
        evidence = evidence_of(requests(rng, acceptance, count), pause)
        estimate = measured_estimate(evidence)
        tau += covers(estimate.tau_interval, truth)
        alpha += covers(estimate.alpha_interval, alpha_of(truth, K))
        tokens_per_step += covers(estimate.tokens_per_step_interval, truth)
        blended += covers(blended_estimate("chat", AcceptancePrior(), DRAFT, evidence).tau_interval, truth)
    assert min(tau, alpha, tokens_per_step, blended) >= 0.9 * REPETITIONS


def test_intervals_that_count_tokens_as_trials_would_not() -> None:
    acceptance = Beta(0.7, 8.0)
    truth = (true_tau(acceptance) - 1.0) / K
    rng = np.random.default_rng(4)
    covered = 0
    for _ in range(REPETITIONS):
        evidence = evidence_of(requests(rng, acceptance, 60))
        ratio = evidence.accepted / evidence.drafted
        half_width = 1.96 * sqrt(ratio * (1.0 - ratio) / evidence.drafted)
        covered += abs(ratio - truth) <= half_width
    assert covered < 0.6 * REPETITIONS


def test_a_ratio_of_sums_is_not_a_mean_of_ratios() -> None:
    # Long answers accept much and short ones little: what a step gives is what the long ones give.
    samples = [SpeculationSample(400, 300, 100, 401), SpeculationSample(8, 0, 2, 3)] * 10
    estimate = measured_estimate(evidence_of(samples))
    assert estimate.tau == pytest.approx(1.0 + 300 / 102)


def test_a_change_is_followed_within_a_few_half_lives() -> None:
    rng = np.random.default_rng(5)
    book = AcceptanceBook(AcceptancePrior())
    for i, sample in enumerate(requests(rng, Beta(0.8, 50.0), 400)):
        book.credit("m", DRAFT, "code", "n", sample, i * 5.0)
    before = book.estimate("m", DRAFT, "code").alpha
    for i, sample in enumerate(requests(rng, Beta(0.4, 50.0), 400)):
        book.credit("m", DRAFT, "code", "n", sample, 2000.0 + i * 5.0)
    after = book.estimate("m", DRAFT, "code").alpha
    assert before == pytest.approx(0.8, abs=0.03)
    assert after is not None
    assert after < 0.5


def test_no_evidence_gives_no_figure() -> None:
    estimate = measured_estimate(NO_EVIDENCE)
    assert (estimate.tau, estimate.tau_interval, estimate.tokens_per_step_interval) == (None, None, None)
    assert estimate.effective_requests == 0.0
