"""Requests of a category differ, and together they are the category."""

from __future__ import annotations

import random
from itertools import pairwise
from statistics import fmean, pstdev, variance

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from enginemodel.made_steps import engine, run_out, sequence
from slipstream.core.acceptance import alpha_of
from slipstream.enginemodel.acceptance import CLASSES, RequestAcceptance, survival_of
from slipstream.enginemodel.settings import EngineSettings, ImpossibleEngine, Speculation

survivals = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8).map(lambda shares: tuple(sorted(shares)[::-1]))


def classes(acceptance: RequestAcceptance) -> list[tuple[float, ...]]:
    return [acceptance.at((number + 0.5) / CLASSES) for number in range(CLASSES)]


@given(survivals, st.floats(0.0, 0.5), st.integers(0, 10))
@settings(max_examples=150, deadline=None)
def test_the_mean_over_requests_is_the_category_s_at_each_position_and_every_request_s_survival_is_one(
    survival: tuple[float, ...], spread: float, k: int
) -> None:
    try:
        acceptance = RequestAcceptance(survival, spread, k)
    except ImpossibleEngine as refused:
        assert "can not have a spread" in str(refused)  # noqa: PT017 - whether it is refused depends on the spread
        assume(False)
    each = classes(acceptance)
    for position in range(min(k, len(survival))):
        assert fmean(one[position] for one in each) == pytest.approx(survival[position], abs=1e-9)
    for one in each:
        assert len(one) == k
        assert all(1.0 >= earlier >= later >= 0.0 for earlier, later in pairwise((1.0, *one)))
    for harder, easier in pairwise(each):
        assert all(low <= high + 1e-12 for low, high in zip(harder, easier, strict=True))


@pytest.mark.parametrize("spread", [0.03, 0.08, 0.12])
@pytest.mark.parametrize("alpha", [0.45, 0.6, 0.72, 0.8])
def test_the_spread_is_the_standard_deviation_of_alpha(alpha: float, spread: float) -> None:
    each = classes(RequestAcceptance(survival_of(alpha, 4), spread, 4))
    assert pstdev(alpha_of(1.0 + sum(one), 4) for one in each) == pytest.approx(spread, rel=0.15)


def test_without_spread_every_request_is_the_category() -> None:
    assert set(classes(RequestAcceptance((0.7, 0.5, 0.4), 0.0, 3))) == {(0.7, 0.5, 0.4)}


def test_at_the_ends_there_is_a_class_too() -> None:
    acceptance = RequestAcceptance(survival_of(0.7, 3), 0.1, 3)
    assert acceptance.at(0.0) == classes(acceptance)[0]
    assert acceptance.at(1.0) == classes(acceptance)[-1]


def test_a_longer_draft_goes_on_as_the_last_position_did_and_a_shorter_one_is_cut() -> None:
    assert RequestAcceptance((0.8, 0.4), 0.0, 4).at(0.5) == pytest.approx((0.8, 0.4, 0.2, 0.1))
    assert RequestAcceptance((0.5,), 0.0, 3).at(0.5) == pytest.approx((0.5, 0.25, 0.125))
    assert RequestAcceptance((0.8, 0.4), 0.0, 1).at(0.5) == (0.8,)
    assert RequestAcceptance((0.5, 0.0, 0.0), 0.0, 5).at(0.5) == (0.5, 0.0, 0.0, 0.0, 0.0)
    assert RequestAcceptance((), 0.1, 2).at(0.5) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("survival", "spread", "says"),
    [
        ((0.5, 0.6), 0.0, "never rise"),
        ((1.2,), 0.0, "shares of 0..1"),
        ((0.5,), -0.1, "a spread is 0 or more"),
        ((0.95, 0.9), 0.3, "can not have a spread of 0.3, but 0.1"),
        ((1.0, 1.0), 0.1, "but 0.000 at most"),
    ],
)
def test_what_can_not_be_is_said(survival: tuple[float, ...], spread: float, says: str) -> None:
    with pytest.raises(ImpossibleEngine, match=says):
        RequestAcceptance(survival, spread, len(survival))


def test_tokens_of_a_request_are_alike_so_requests_differ_by_more_than_their_tokens_do_by_chance() -> None:
    between = []
    for spread in (0.0, 0.05, 0.15):
        chance = random.Random(5)
        acceptance = RequestAcceptance(survival_of(0.7, 4), spread, 4)
        run = engine(EngineSettings(speculation=Speculation(k=4)))
        requests = [sequence(output_tokens=150, survival=acceptance.at(chance.random())) for _ in range(120)]
        for one in requests:
            run.submit(one, 0.0)
        run_out(run)
        between.append(variance([one.accepted / one.verify_steps for one in requests]))
    by_chance, little, much = between
    assert by_chance * 1.5 < little
    assert little * 2.0 < much
