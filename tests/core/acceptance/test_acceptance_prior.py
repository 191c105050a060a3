from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.core.acceptance import (
    DEFAULT_ALPHAS,
    NO_EVIDENCE,
    AcceptancePrior,
    SpeculationSample,
    blended_estimate,
    measured_estimate,
    prior_estimate,
    steps_of,
    tokens_per_step_of,
)
from slipstream.core.node import Speculator, SpeculatorKind

PRIOR = AcceptancePrior()
DRAFT = Speculator(SpeculatorKind.DRAFT, 4)
NGRAM = Speculator(SpeculatorKind.NGRAM, 4)


@pytest.mark.parametrize(
    ("category", "alpha"),
    [*DEFAULT_ALPHAS.items(), ("translation", 0.6), ("other", 0.6), ("a category of the user's own", 0.6)],
)
def test_every_category_has_a_prior(category: str, alpha: float) -> None:
    estimate = prior_estimate(category, PRIOR, DRAFT)
    assert estimate.alpha == alpha
    assert estimate.source == "prior"
    assert estimate.tokens_per_step == pytest.approx(estimate.tau)
    assert (estimate.tau_interval, estimate.alpha_interval, estimate.tokens_per_step_interval) == (None, None, None)
    assert estimate.draft_acceptance_ratio is None
    assert estimate.effective_requests == 0.0


@given(st.one_of(st.sampled_from([*DEFAULT_ALPHAS, "other"])), st.one_of(st.none(), st.integers(1, 64)))
def test_a_category_is_tried_on_an_ngram_node_exactly_when_it_is_on_one_with_a_draft_model(
    category: str, k: int | None
) -> None:
    ngram = prior_estimate(category, PRIOR, Speculator(SpeculatorKind.NGRAM, k))
    assert ngram.alpha is not None
    assert ngram.tokens_per_step is not None
    assert (ngram.alpha > 0.6) == (ngram.tokens_per_step > 1.3)


def test_an_ngram_prior_proposes_as_often_as_published_runs_did() -> None:
    assert 0.085 < PRIOR.proposing_share(Speculator(SpeculatorKind.NGRAM, 3), 3) < 0.37


def test_a_share_can_not_pass_one_where_the_floors_leave_no_room() -> None:
    eager = AcceptancePrior(alpha_floor=0.1, tokens_per_step_floor=1.3)
    assert eager.proposing_share(NGRAM, 4.0) == 1.0
    assert eager.tokens_per_step("code", NGRAM, 4.0) == pytest.approx(prior_estimate("code", eager, NGRAM).tau)
    assert AcceptancePrior(alpha_floor=0.0).proposing_share(NGRAM, 4.0) == 1.0


def test_below_ten_requests_the_prior_holds_and_from_then_on_evidence_counts() -> None:
    sample = SpeculationSample(80, 10, 20, 31)
    steps = steps_of(sample, DRAFT)
    assert steps is not None
    evidence = NO_EVIDENCE
    for i in range(9):
        evidence = evidence.credited(sample, steps, float(i))
    thin = blended_estimate("code", PRIOR, DRAFT, evidence)
    assert (thin.source, thin.alpha, thin.requests) == ("prior", 0.75, 9)
    assert thin.evidence.total_drafted == 720
    evidence = evidence.credited(sample, steps, 9.0)
    enough = blended_estimate("code", PRIOR, DRAFT, evidence)
    measured = measured_estimate(evidence)
    assert enough.source == "blended"
    assert enough.tau is not None
    assert measured.tau is not None
    assert thin.tau is not None
    assert measured.tau == pytest.approx(1.5)
    # Ten requests of belief against ten, a little faded, of evidence: half way.
    assert enough.tau == pytest.approx((measured.tau + thin.tau) / 2, rel=0.01)
    assert enough.tau_interval is not None
    assert enough.tau_interval[0] <= measured.tau <= enough.tau <= enough.tau_interval[1]


def test_an_ngram_category_that_never_matches_loses_its_try_at_once() -> None:
    sample = SpeculationSample(0, 0, None, 60)
    steps = steps_of(sample, NGRAM)
    assert steps is not None
    evidence = NO_EVIDENCE
    for i in range(10):
        evidence = evidence.credited(sample, steps, float(i))
    estimate = blended_estimate("code", PRIOR, NGRAM, evidence)
    assert estimate.tokens_per_step is not None
    assert estimate.tokens_per_step < 1.3
    assert estimate.tau == prior_estimate("code", PRIOR, NGRAM).tau
    measured = measured_estimate(evidence)
    assert (measured.tau, measured.alpha, measured.k) == (None, None, None)
    assert (measured.tokens_per_step, measured.proposing_share) == (1.0, 0.0)


def test_high_alpha_does_not_hide_that_little_is_proposed() -> None:
    # 19 of 128 drafted tokens would be the trap; here nearly all are taken, but a step rarely proposes.
    sample = SpeculationSample(20, 19, 5, 120)
    steps = steps_of(sample, NGRAM)
    assert steps is not None
    estimate = measured_estimate(NO_EVIDENCE.credited(sample, steps, 0.0))
    assert estimate.alpha is not None
    assert estimate.alpha > 0.95
    assert estimate.tokens_per_step == pytest.approx(1.19)


def test_rare_drafts_that_are_nearly_always_taken_do_not_lift_a_category_over_the_floor() -> None:
    sample = SpeculationSample(8, 7, 1, 108)
    steps = steps_of(sample, NGRAM)
    assert steps is not None
    evidence = NO_EVIDENCE
    for i in range(40):
        evidence = evidence.credited(sample, steps, float(i))
    estimate = blended_estimate("code", PRIOR, NGRAM, evidence)
    assert estimate.alpha is not None
    assert estimate.alpha > 0.6
    assert estimate.tokens_per_step is not None
    # Between what was measured, 1.07, and what was believed, nearer to the larger of the two weights.
    assert 1.07 < estimate.tokens_per_step < 1.2


def test_answers_of_one_token_leave_the_prior_standing() -> None:
    sample = SpeculationSample(0, 0, None, 1)
    steps = steps_of(sample, DRAFT)
    assert steps is not None
    evidence = NO_EVIDENCE
    for i in range(20):
        evidence = evidence.credited(sample, steps, float(i))
    estimate = blended_estimate("code", PRIOR, DRAFT, evidence)
    assert (estimate.source, estimate.alpha, estimate.requests) == ("prior", 0.75, 20)


@pytest.mark.no_cover
@given(
    st.lists(st.tuples(st.integers(1, 50), st.floats(0.0, 1.0), st.integers(0, 50)), min_size=10, max_size=30),
    st.sampled_from([DRAFT, NGRAM]),
)
def test_tokens_per_step_is_always_what_tau_and_the_proposing_share_make_it(
    shapes: list[tuple[int, float, int]], speculator: Speculator
) -> None:
    evidence = NO_EVIDENCE
    for verify, acceptance, silent in shapes:
        accepted = round(4 * verify * acceptance)
        sample = SpeculationSample(4 * verify, accepted, verify, 1 + verify + silent + accepted)
        steps = steps_of(sample, speculator)
        assert steps is not None
        evidence = evidence.credited(sample, steps, 0.0)
    for estimate in (measured_estimate(evidence), blended_estimate("chat", PRIOR, speculator, evidence)):
        assert estimate.tau is not None
        assert estimate.proposing_share is not None
        assert estimate.alpha is not None
        assert estimate.tokens_per_step == pytest.approx(tokens_per_step_of(estimate.tau, estimate.proposing_share))
        assert 1.0 <= estimate.tau <= 5.0 + 1e-9
        assert 0.0 <= estimate.alpha <= 1.0
        assert_holds(estimate.tau_interval, estimate.tau)
        assert_holds(estimate.tokens_per_step_interval, estimate.tokens_per_step)


def assert_holds(interval: tuple[float, float] | None, figure: float | None) -> None:
    assert figure is not None
    if interval is not None:
        assert 1.0 <= interval[0] <= figure <= interval[1]
