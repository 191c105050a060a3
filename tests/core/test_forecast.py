"""What is foretold of a request, reckoned by hand and held to its laws."""

from __future__ import annotations

import pytest

from slipstream.core.acceptance import AcceptanceEstimate, AcceptancePrior
from slipstream.core.acceptance.estimate import prior_estimate
from slipstream.core.forecast import Company, Forecast, Work, burden, predict
from slipstream.core.goodput import Target
from slipstream.core.node import Speculator, SpeculatorKind

TOKENS = (0.0, 1000.0, 10_000.0)


def forecast(
    step_ms: float = 20.0,
    sequence_ms: float = 1.0,
    *,
    most: int = 32,
    drafts: int = 0,
    prefill_ms: float = 100.0,
    cache: int | None = None,
) -> Forecast:
    """Steps of ``step_ms`` and ``sequence_ms`` for each sequence, whatever the context; 1000 tokens of a prompt take
    ``prefill_ms``.
    """
    steps = tuple(((step_ms + sequence_ms * n) / 1e3,) * 3 for n in range(1, most + 1))
    prefill = (0.0, prefill_ms / 1e3, prefill_ms / 1e2)
    return Forecast(TOKENS, steps, (drafts,) * most, 1.0, prefill, cache)


def work(
    target: Target | None = None,
    *,
    acceptance: AcceptanceEstimate | None = None,
    prompt: float = 500.0,
    output: float = 100.0,
) -> Work:
    return Work(prompt, output, Company(500.0, 100.0, 550.0, 600.0), acceptance, target or Target())


def accepted(alpha: float | None, tokens_per_step: float | None) -> AcceptanceEstimate:
    known = prior_estimate("code", AcceptancePrior(), Speculator(SpeculatorKind.DRAFT, 4))
    return known._replace(alpha=alpha, tokens_per_step=tokens_per_step)  # type: ignore[arg-type] # named floats


def test_a_token_takes_its_step_and_a_share_of_the_others_prompts() -> None:
    foretold = predict(forecast(), work(), 11)
    assert foretold.tpot_s == pytest.approx(0.031 + 10 * 0.050 / 100)
    assert foretold.ttft_s == pytest.approx(1.5 * 0.031 + 0.050)
    assert foretold.e2e_s == pytest.approx(foretold.ttft_s + 100 * foretold.tpot_s)


@pytest.mark.parametrize(
    ("estimate", "tokens"),
    [(accepted(0.5, 3.0), 1.9375), (accepted(None, 3.0), 3.0), (accepted(None, None), 1.0), (None, 1.0)],
)
def test_a_verify_step_gives_what_is_accepted(estimate: AcceptanceEstimate | None, tokens: float) -> None:
    foretold = predict(forecast(drafts=4), work(acceptance=estimate), 1)
    assert foretold.tpot_s == pytest.approx(0.021 / tokens)


def test_nothing_is_accepted_where_nothing_is_drafted() -> None:
    assert predict(forecast(drafts=0), work(acceptance=accepted(0.9, 4.0)), 1).tpot_s == pytest.approx(0.021)


def test_whom_the_cache_has_no_room_for_waits() -> None:
    tight = forecast(cache=6000)  # of ten sequences
    ten, twelve = predict(tight, work(), 10), predict(tight, work(), 12)
    assert twelve.tpot_s == ten.tpot_s
    assert twelve.ttft_s - ten.ttft_s == pytest.approx(2 / 10 * 100 * ten.tpot_s)
    assert predict(forecast(cache=100), work(), 2).tpot_s == pytest.approx(0.021)  # one always runs


def weight_s(of: Forecast, occupancy: int, wanted: Work) -> float:
    return burden(of, wanted, occupancy, predict(of, wanted, occupancy))


def test_an_average_sequence_burdens_for_about_as_long_as_it_stays() -> None:
    usual = weight_s(forecast(), 10, work())
    assert usual == pytest.approx(100 * predict(forecast(), work(), 10).tpot_s, rel=0.05)
    assert weight_s(forecast(), 10, work(prompt=1000.0)) > 1.25 * usual


def test_where_cache_is_short_a_sequence_burdens_by_the_room_that_it_takes() -> None:
    tight, large = forecast(cache=6000), work(prompt=1100.0)
    assert weight_s(tight, 8, large) == pytest.approx(2.0 * predict(tight, large, 8).e2e_s)


def test_steps_that_nobody_makes_longer_are_no_burden_but_for_the_time() -> None:
    free = forecast(sequence_ms=0.0, prefill_ms=0.0)
    assert weight_s(free, 3, work()) == predict(free, work(), 3).e2e_s
    assert weight_s(forecast(prefill_ms=0.0, most=1), 1, work()) > 0.0


@pytest.mark.parametrize(
    ("steps", "drafts", "prefill"),
    [
        ((), (), (0.0, 1.0)),
        (((1.0, 1.0),), (), (0.0, 1.0)),
        (((1.0,),), (0,), (0.0, 1.0)),
        (((1.0, 1.0),), (0,), (0.0,)),
        (((1.0, 0.0),), (0,), (0.0, 1.0)),
        (((1.0, 1.0),), (0,), (-1.0, 1.0)),
    ],
)
def test_rows_that_do_not_fit_one_another_are_refused(
    steps: tuple[tuple[float, ...], ...], drafts: tuple[int, ...], prefill: tuple[float, ...]
) -> None:
    with pytest.raises(ValueError, match="a forecast"):
        Forecast((0.0, 1.0), steps, drafts, 1.0, prefill, None)
