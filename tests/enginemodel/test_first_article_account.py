"""The account in which acceptance falls with load, beside the one in which it does not."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginemodel.made_steps import sequence
from slipstream.enginemodel.acceptance import survival_of
from slipstream.enginemodel.account import FULL_BATCH, alphas_kept
from slipstream.enginemodel.engine import Engine
from slipstream.enginemodel.sequence import Sequence
from slipstream.enginemodel.settings import Account, EngineSettings, Speculation
from slipstream.enginemodel.step_times import KNOTS, StepTimes

FIRST_ARTICLE = Speculation(k=4, account=Account.FIRST_ARTICLE)


@dataclass(frozen=True)
class SecondArticle:
    """The step times of the second article: nothing for the width of a verify step, and here nothing for prompts."""

    pair_s: float = 0.0

    def decode_row(self, decoding: int, drafting: int, k: int) -> tuple[float, ...]:
        draft_s = k * (0.006 + 0.00012 * drafting) if drafting else 0.0
        return (0.035 + 0.00045 * decoding + draft_s,) * len(KNOTS)

    def prefill_row(self, tokens_beside: int) -> tuple[float, ...]:
        return (0.0,) * len(KNOTS)

    def drafter_prefill_row(self) -> tuple[float, ...]:
        return (0.0,) * len(KNOTS)


def tokens_per_s(speculation: Speculation | None, batch: int, alpha: float) -> float:
    """Of ``batch`` sequences at all times, with lengths spread like an exponential distribution's."""
    times, lengths = StepTimes(SecondArticle()), random.Random(2)
    run = Engine(EngineSettings(slots=batch, speculation=speculation), times, random.Random(1).random)
    survival = survival_of(alpha, 4)
    now = 0.0
    for _ in range(8000 // batch):
        while run.running + run.waiting < batch:
            run.submit(Sequence(0, 100, 20 + int(lengths.expovariate(1.0 / 300.0)), survival), now)
        now = run.begin_step(now)
        run.end_step(now)
    return run.generated_tokens / run.busy_s


@pytest.mark.parametrize(
    ("batch", "alpha", "speedup"),
    [(4, 0.83, 2.1), (32, 0.83, 1.0), (4, 0.72, 1.7), (4, 0.45, 1.05)],
)
def test_it_gives_the_first_article_s_speedups_on_the_second_one_s_step_times(
    batch: int, alpha: float, speedup: float
) -> None:
    measured = tokens_per_s(FIRST_ARTICLE, batch, alpha) / tokens_per_s(None, batch, alpha)
    assert measured == pytest.approx(speedup, abs=0.08)


def test_by_default_acceptance_does_not_depend_on_the_batch() -> None:
    assert Speculation().account is Account.INDEPENDENT
    measured = tokens_per_s(Speculation(k=4), 32, 0.83) / tokens_per_s(None, 32, 0.83)
    assert measured == pytest.approx(2.0, abs=0.1)


@given(
    st.lists(st.integers(1, 4000), min_size=1, max_size=64),
    st.none() | st.floats(0.0, 1.0),
)
@settings(max_examples=60, deadline=None)
def test_what_is_left_is_a_share_that_falls_with_the_length_beyond_the_mean(
    lengths: list[int], kv_use: float | None
) -> None:
    kept = alphas_kept([sequence(output_tokens=tokens) for tokens in lengths], kv_use)
    assert len(kept) == len(lengths)
    if len(lengths) <= FULL_BATCH:
        assert set(kept) == {1.0}
        return
    assert all(0.0 < alpha < 1.0 for alpha in kept)
    by_length = sorted(zip(lengths, kept, strict=True))
    assert [alpha for _, alpha in by_length] == sorted(kept, reverse=True)


def test_it_falls_with_the_batch_with_the_cache_s_use_and_for_the_long_ones_of_a_mixed_batch() -> None:
    alike = [sequence(output_tokens=500) for _ in range(16)]
    mixed = [sequence(output_tokens=tokens) for tokens in (100, 900) for _ in range(8)]
    assert alphas_kept(alike, 0.1)[0] > alphas_kept(alike * 2, 0.1)[0]
    assert alphas_kept(alike, 0.1)[0] > alphas_kept(alike, 0.9)[0]
    assert alphas_kept(alike, None)[0] == alphas_kept(alike, 0.5)[0]
    short, long = alphas_kept(mixed, 0.1)[0], alphas_kept(mixed, 0.1)[-1]
    assert short == alphas_kept(alike, 0.1)[0] > long
