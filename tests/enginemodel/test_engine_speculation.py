"""How an engine drafts: how much, for whom, what of it is accepted, and what it costs."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import sqrt
from statistics import fmean, stdev

import pytest

from enginemodel.made_steps import SURVIVAL, MadeSteps, engine, run_out, sequence, step
from slipstream.enginemodel.batch import RECENT_STEPS
from slipstream.enginemodel.engine import Engine
from slipstream.enginemodel.settings import EngineSettings, ImpossibleEngine, Speculation


def answered(
    settings: EngineSettings, survival: tuple[float, ...], sequences: int = 4, output_tokens: int = 2000
) -> Engine:
    run = engine(settings)
    for number in range(sequences):
        run.submit(sequence(output_tokens=output_tokens, survival=survival, number=number), 0.0)
    run_out(run)
    return run


def test_tokens_per_verify_step_are_one_and_the_sum_of_the_survivals() -> None:
    run = engine(EngineSettings(speculation=Speculation(k=4)))
    answers = [sequence(output_tokens=300, number=number) for number in range(60)]
    for each in answers:
        run.submit(each, 0.0)
    run_out(run)
    # The last step of an answer can be cut short, so it is left out: it is one of about a hundred.
    means = [each.accepted / each.verify_steps for each in answers]
    within = 3.0 * stdev(means) / sqrt(len(means)) + 2.0 / 100.0
    assert fmean(means) == pytest.approx(sum(SURVIVAL), abs=within)
    assert run.accepted_per_position == sorted(run.accepted_per_position, reverse=True)
    for position, count in enumerate(run.accepted_per_position):
        assert count / run.verify_steps == pytest.approx(SURVIVAL[position], abs=0.03)


def test_what_is_accepted_of_one_draft_says_nothing_of_the_next() -> None:
    """Several drafts share a uniform number: pairs of outcomes one, and two, steps apart, against independent ones."""
    run = engine(EngineSettings(speculation=Speculation(k=4)), seed=3)
    one = sequence(output_tokens=25_000)
    run.submit(one, 0.0)
    now, outcomes = 0.0, [0]
    while one.output_tokens - one.emitted > 5:
        before = one.accepted
        now, _ = step(run, now)
        outcomes.append(one.accepted - before)
    shares = [1.0, *SURVIVAL, 0.0]
    chances = [high - low for high, low in pairwise(shares)]
    for apart in (1, 2):
        pairs = Counter(zip(outcomes[2:], outcomes[2 + apart :], strict=False))
        expected = {(a, b): chances[a] * chances[b] * pairs.total() for a in range(5) for b in range(5)}
        # 24 degrees of freedom: 51.2 is exceeded once in a thousand.
        assert sum((pairs[pair] - many) ** 2 / many for pair, many in expected.items()) < 51.2


def test_counters_add_up_over_sequences() -> None:
    run = engine(EngineSettings(slots=3, speculation=Speculation(k=4)))
    answers = [sequence(output_tokens=20 + 7 * number) for number in range(9)]
    for each in answers:
        run.submit(each, 0.0)
    assert len(run_out(run)) == 9
    assert run.generated_tokens == sum(each.output_tokens for each in answers)
    assert run.drafted == sum(each.drafted for each in answers) == 4 * run.verify_steps
    assert run.verified_tokens == 5 * run.verify_steps
    assert run.accepted == sum(each.accepted for each in answers) == sum(run.accepted_per_position)
    for each in answers:
        assert each.emitted == 1 + each.steps + each.accepted


def test_a_draft_is_never_accepted_beyond_the_end_of_the_answer() -> None:
    run = engine(EngineSettings(speculation=Speculation(k=4)))
    one = sequence(output_tokens=8, survival=(1.0, 1.0, 1.0, 1.0))
    run.submit(one, 0.0)
    now, emitted = 0.0, []
    for _ in range(3):
        now, _ = step(run, now)
        emitted.append(one.emitted)
    assert emitted == [1, 6, 8]
    assert (one.accepted, one.drafted, run.accepted_per_position) == (5, 8, [2, 1, 1, 1])


def test_positions_that_a_sequence_has_no_survival_for_are_never_accepted() -> None:
    run = answered(EngineSettings(speculation=Speculation(k=4)), (1.0, 1.0), sequences=1, output_tokens=301)
    assert run.accepted_per_position == [100, 100, 0, 0]


def test_a_verify_step_costs_by_its_drafts_and_the_drafter_has_prompts_too() -> None:
    rows = MadeSteps(step_s=1.0, draft_token_s=0.1, prompt_token_s=0.01, drafter_prompt_token_s=0.002)
    run = engine(EngineSettings(speculation=Speculation(k=3)), rows)
    for _ in range(2):
        run.submit(sequence(prompt_tokens=100, output_tokens=50), 0.0)
    now, _ = step(run, 0.0)
    assert now == pytest.approx(1.0 + 200 * 0.012)
    assert step(run, now)[0] - now == pytest.approx(1.0 + 2 * 3 * 0.1)


def test_where_nothing_is_drafted_decoding_is_dearer_than_a_standard_engine_s() -> None:
    rows = MadeSteps(step_s=1.0, prompt_token_s=0.01, drafter_prompt_token_s=0.002)
    ends = []
    for speculation in (None, Speculation(k=0, zero_draft_tax=0.25), Speculation(k=4, schedule=((1, 4),))):
        run = engine(EngineSettings(speculation=speculation), rows)
        for _ in range(2):
            run.submit(sequence(prompt_tokens=100, output_tokens=3), 0.0)
        now, _ = step(run, 0.0)
        ends.append((now, step(run, now)[0] - now))
    # An engine that never drafts has no drafter to show a prompt to; one that only does not draft now has.
    assert ends == [pytest.approx(pair) for pair in [(3.0, 1.0), (3.0, 1.25), (3.4, 1.12)]]


def test_the_schedule_goes_by_the_sequences_that_run() -> None:
    run = engine(EngineSettings(slots=4, speculation=Speculation(schedule=((1, 5), (3, 2)))))
    now, drafted = 0.0, []
    for _ in range(4):
        run.submit(sequence(output_tokens=1000), now)
        now, _ = step(run, now)  # its prompt
        before = run.drafted
        now, _ = step(run, now)
        drafted.append(run.drafted - before)
    assert drafted == [5, 4, 6, 0]


def test_a_prompt_on_its_way_counts_as_running_and_gets_the_tokens_that_drafts_leave() -> None:
    run = engine(EngineSettings(step_tokens=100, speculation=Speculation(schedule=((1, 5), (3, 2)))))
    run.submit(sequence(prompt_tokens=10, output_tokens=1000), 0.0)
    now, _ = step(run, 0.0)
    late = sequence(prompt_tokens=300)
    run.submit(late, now)
    filled = []
    for _ in range(2):
        now, _ = step(run, now)
        filled.append((late.prefilled, run.drafted))
    assert filled == [(94, 5), (94 + 97, 7)]


def test_only_a_share_of_the_sequences_proposes() -> None:
    run = answered(EngineSettings(speculation=Speculation(k=4, proposing_share=0.3)), SURVIVAL)
    steps = run.generated_tokens - run.accepted - 4
    assert run.verify_steps / steps == pytest.approx(0.3, abs=0.03)
    assert run.accepted / run.verify_steps == pytest.approx(sum(SURVIVAL), abs=0.15)


def test_drafts_that_a_step_has_no_tokens_for_are_left_out_the_oldest_first_served() -> None:
    run = engine(EngineSettings(step_tokens=14, speculation=Speculation(k=4)))
    several = [sequence(prompt_tokens=1, output_tokens=1000) for _ in range(3)]
    for each in several:
        run.submit(each, 0.0)
    now, _ = step(run, 0.0)
    for _ in range(5):
        now, _ = step(run, now)
    assert [each.verify_steps for each in several] == [5, 5, 0]
    assert [each.steps for each in several] == [5, 5, 5]


def test_a_sequence_whose_drafts_are_poor_drafts_no_more_and_the_others_go_on() -> None:
    run = engine(EngineSettings(speculation=Speculation(k=4, drop_below=1.5)))
    poor, good = sequence(output_tokens=100, survival=(0.0,) * 4), sequence(output_tokens=300, survival=(1.0,) * 4)
    run.submit(poor, 0.0)
    run.submit(good, 0.0)
    run_out(run)
    assert (poor.verify_steps, poor.drafted, poor.steps) == (RECENT_STEPS, 4 * RECENT_STEPS, 99)
    assert good.verify_steps == good.steps == 60


def test_recent_means_recent() -> None:
    run = engine(EngineSettings(speculation=Speculation(k=1, drop_below=1.5)))
    one = sequence(output_tokens=1000, survival=(1.0,))
    run.submit(one, 0.0)
    now, _ = step(run, 0.0)
    for _ in range(10 * RECENT_STEPS):
        now, _ = step(run, now)
    one.survival = (0.0,)
    run_out(run, now)
    assert one.verify_steps == 11 * RECENT_STEPS


def test_the_same_seed_gives_the_same_steps() -> None:
    def trace(seed: int) -> list[tuple[float, list[int], int, int]]:
        run = engine(EngineSettings(slots=4, speculation=Speculation(k=4, proposing_share=0.7)), seed=seed)
        for number in range(12):
            run.submit(sequence(output_tokens=10 + number, number=number), 0.0)
        now, steps = 0.0, []
        while run.running or run.waiting:
            now, finished = step(run, now)
            steps.append((now, [each.number for each in finished], run.accepted, run.drafted))
        return steps

    assert trace(1) == trace(1)
    assert trace(1) != trace(2)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"k": 65}, "0 to 64 tokens"),
        ({"proposing_share": 1.5}, "propose is 0..1"),
        ({"zero_draft_tax": -0.1}, "is a share"),
        ({"drop_below": 0.5}, "at least 1"),
        ({"schedule": ((4, 2), (2, 4))}, "that rise"),
        ({"schedule": ((0, 2),)}, "from 1 on"),
        ({"schedule": ((1, 65),)}, "0 to 64"),
    ],
)
def test_what_no_speculation_can_be_is_said(settings: dict[str, object], says: str) -> None:
    with pytest.raises(ImpossibleEngine, match=says):
        Speculation(**settings)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"slots": 0}, "slots must be at least 1"),
        ({"step_tokens": 0}, "step_tokens"),
        ({"block_tokens": 0}, "block_tokens"),
        ({"kv_tokens": 8}, "at least a block"),
        ({"queue_limit": -1}, "not be negative"),
    ],
)
def test_what_no_engine_can_be_is_said(settings: dict[str, int], says: str) -> None:
    with pytest.raises(ImpossibleEngine, match=says):
        EngineSettings(**settings)  # type: ignore[arg-type]  # wrong on purpose


def test_the_longest_draft_is_the_schedule_s_longest_or_k() -> None:
    assert Speculation(k=3).longest == 3
    assert Speculation(k=3, schedule=((4, 5), (8, 2))).longest == 5
    assert [Speculation(schedule=((4, 5), (8, 2))).k_at(size) for size in (1, 4, 5, 8, 9)] == [5, 5, 2, 2, 0]
