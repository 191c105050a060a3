"""What a step does: who is admitted, what it takes, who gets a token, and who loses its cache."""

from __future__ import annotations

from itertools import pairwise
from math import inf, isnan

import pytest

from enginemodel.made_steps import MadeSteps, engine, run_out, sequence, step
from slipstream.enginemodel.sequence import Sequence
from slipstream.enginemodel.settings import EngineSettings, Speculation


def test_an_engine_without_work_has_no_step() -> None:
    run = engine()
    assert run.begin_step(3.0) == inf
    assert not run.stepping
    assert (run.running, run.waiting, run.steps, run.busy_s) == (0, 0, 0, 0.0)


def test_the_first_token_comes_with_the_step_that_ends_the_prompt_and_one_more_with_each_after() -> None:
    run = engine(rows=MadeSteps(step_s=0.5, prompt_token_s=0.25))
    one = sequence(prompt_tokens=4, output_tokens=3)
    assert run.submit(one, 10.0)
    assert run.begin_step(10.5) == 12.0
    assert run.stepping
    assert isnan(one.first_token_at)
    assert run.end_step(12.0) == []
    assert (one.emitted, one.first_token_at, one.context) == (1, 12.0, 4)
    assert step(run, 12.0) == (12.5, [])
    assert (one.emitted, one.context, one.steps) == (2, 5, 1)
    assert step(run, 12.5) == (13.0, [one])
    assert (one.submitted_at, one.admitted_at, one.first_token_at, one.finished_at) == (10.0, 10.5, 12.0, 13.0)
    assert (run.steps, run.busy_s, run.prompt_tokens, run.generated_tokens) == (3, 2.5, 4, 3)
    assert run.running == 0


def test_an_answer_of_one_token_is_finished_by_its_prompt() -> None:
    run = engine()
    one = sequence(output_tokens=1)
    run.submit(one, 0.0)
    assert step(run, 0.0)[1] == [one]
    assert (one.emitted, one.steps, one.first_token_at) == (1, 0, one.finished_at)


def test_a_long_prompt_goes_in_chunks_and_decodes_come_first() -> None:
    run = engine(EngineSettings(step_tokens=100), MadeSteps(step_s=1.0, prompt_token_s=0.01))
    early, late = sequence(prompt_tokens=10, output_tokens=50), sequence(prompt_tokens=250)
    run.submit(early, 0.0)
    now, _ = step(run, 0.0)
    assert now == pytest.approx(1.1)
    run.submit(late, now)
    filled = []
    for _ in range(3):
        before = now
        now, _ = step(run, now)
        filled.append(late.prefilled)
        assert now - before == pytest.approx(1.0 + 0.01 * (99 if late.prefilled < 250 else 52))
    assert filled == [99, 198, 250]
    assert (early.emitted, late.emitted) == (4, 1)


def test_attention_over_a_prompt_is_charged_for_every_pair_of_its_tokens_whatever_the_chunks() -> None:
    costs = []
    for step_tokens in (1000, 64):
        run = engine(EngineSettings(step_tokens=step_tokens), MadeSteps(step_s=0.0, pair_s=1e-3))
        run.submit(sequence(prompt_tokens=640, output_tokens=1), 0.0)
        run_out(run)
        costs.append(run.busy_s)
    assert costs == pytest.approx([0.5 * 640 * 640 * 1e-3] * 2)


def test_a_step_is_dearer_by_the_tokens_cached() -> None:
    run = engine(rows=MadeSteps(step_s=1.0, cached_token_s=0.001))
    for number in range(2):
        run.submit(sequence(prompt_tokens=100 + 100 * number, output_tokens=9), 0.0)
    ends = [0.0]
    for _ in range(3):
        ends.append(step(run, ends[-1])[0])
    assert [later - earlier for earlier, later in pairwise(ends)] == pytest.approx([1.0, 1.3, 1.302])


def test_sequences_beyond_the_slots_wait_their_turn() -> None:
    run = engine(EngineSettings(slots=2))
    several = [sequence(output_tokens=tokens, number=tokens) for tokens in (5, 2, 3, 4)]
    for each in several:
        run.submit(each, 0.0)
    assert run.waiting == 4
    now, _ = step(run, 0.0)
    assert (run.running, run.waiting, run.sequences()) == (2, 2, several[:2])
    assert [each.number for each in run_out(run, now)] == [2, 5, 3, 4]
    assert [each.admitted_at for each in several] == pytest.approx([0.0, 0.0, 0.02, 0.05])


def test_no_more_run_than_a_step_has_tokens() -> None:
    run = engine(EngineSettings(slots=8, step_tokens=3))
    assert run.submit(sequence(prompt_tokens=1, output_tokens=20), 0.0)
    now, _ = step(run, 0.0)
    for _ in range(5):
        run.submit(sequence(prompt_tokens=9, output_tokens=20), now)
    for _ in range(30):
        now, _ = step(run, now)
        assert run.running <= 3


def test_a_full_queue_refuses_but_free_slots_are_no_queue() -> None:
    run = engine(EngineSettings(slots=2, queue_limit=1))
    assert [run.submit(sequence(), 0.0) for _ in range(4)] == [True, True, True, False]
    now, _ = step(run, 0.0)
    assert run.waiting == 1
    assert not run.submit(sequence(), now)
    run_out(run, now)
    assert run.submit(sequence(), 9.0)


def test_an_engine_without_a_queue_takes_what_it_can_run() -> None:
    run = engine(EngineSettings(slots=1, queue_limit=0))
    assert run.submit(sequence(), 0.0)
    assert not run.submit(sequence(), 0.0)
    run_out(run)
    assert run.submit(sequence(), 1.0)


def test_a_queue_that_was_blocked_is_no_longer_when_it_is_empty() -> None:
    run = engine(EngineSettings(slots=50, kv_tokens=64, queue_limit=0))
    assert run.submit(sequence(prompt_tokens=40), 0.0)
    assert run.submit(sequence(prompt_tokens=10), 0.0)
    blocked = sequence(prompt_tokens=40)
    assert run.submit(blocked, 0.0)
    now, _ = step(run, 0.0)
    assert not run.submit(sequence(), now)
    assert run.abort(blocked)
    assert run.submit(sequence(), now)


def test_free_slots_without_room_do_not_make_the_queue_longer() -> None:
    run = engine(EngineSettings(slots=50, kv_tokens=64, queue_limit=1))
    now = 0.0
    taken = [sequence(prompt_tokens=40, output_tokens=8) for _ in range(2)]
    for each in taken:
        assert run.submit(each, now)
    now, _ = step(run, now)
    assert (run.running, run.waiting) == (1, 1)
    assert not run.submit(sequence(), now)
    assert run.abort(taken[1])
    assert run.submit(sequence(), now)


def test_what_can_never_fit_is_refused_at_once() -> None:
    run = engine(EngineSettings(kv_tokens=160))
    assert run.fits(100, 60)
    assert not run.fits(100, 61)
    assert not run.submit(sequence(prompt_tokens=100, output_tokens=61), 0.0)
    assert run.submit(sequence(prompt_tokens=100, output_tokens=60), 0.0)
    assert len(run_out(run)) == 1
    assert run.preemptions == 0


def test_a_draft_needs_room_too() -> None:
    run = engine(EngineSettings(kv_tokens=160, speculation=Speculation(k=4)))
    assert run.fits(100, 56)
    assert not run.fits(100, 57)


def test_the_next_in_the_queue_waits_for_room_and_nobody_passes_it() -> None:
    run = engine(EngineSettings(kv_tokens=160))
    for prompt_tokens in (90, 90, 10):
        run.submit(sequence(prompt_tokens=prompt_tokens, output_tokens=5, number=prompt_tokens), 0.0)
    now, _ = step(run, 0.0)
    assert (run.running, run.waiting) == (1, 2)
    assert run.kv_use == pytest.approx(0.6)  # 91 tokens are 6 of 10 blocks
    run_out(run, now)
    assert run.kv_use == 0.0


def test_a_cache_without_a_limit_has_no_use() -> None:
    assert engine().kv_use is None


def test_out_of_room_the_latest_starts_again_and_nothing_it_emitted_is_lost() -> None:
    run = engine(EngineSettings(kv_tokens=96), MadeSteps())
    first, second = sequence(40, 30, number=1), sequence(40, 30, number=2)
    run.submit(first, 0.0)
    run.submit(second, 0.0)
    now = 0.0
    while second.preemptions == 0:
        now, finished = step(run, now)
        assert finished == []
    # Both grew to 48 tokens, and there is no seventh block.
    assert (first.emitted, second.emitted) == (9, 9)
    assert (run.running, run.waiting, second.prefilled, second.context) == (1, 1, 0, 0)
    when_first = second.first_token_at
    assert run_out(run, now) == [first, second]
    assert (second.emitted, second.prefilled, run.prompt_tokens) == (30, 49, 40 + 40 + 49)
    assert (second.first_token_at, first.preemptions, run.preemptions) == (when_first, 0, 1)


def test_the_latest_may_have_to_give_up_its_own_room() -> None:
    run = engine(EngineSettings(kv_tokens=96))
    first, second = sequence(33, 15, number=1), sequence(40, 15, number=2)
    run.submit(first, 0.0)
    run.submit(second, 0.0)
    now = 0.0
    while run.preemptions == 0:
        now, _ = step(run, now)
    assert (run.sequences(), run.waiting, run.kv_use) == ([first], 1, 0.5)
    assert run_out(run, now) == [first, second]
    assert (first.preemptions, second.preemptions, run.kv_use) == (0, 1, 0.0)


def test_a_preempted_sequence_goes_before_those_that_wait() -> None:
    run = engine(EngineSettings(slots=2, kv_tokens=96))
    several = [sequence(40, 30, number=number) for number in range(3)]
    for each in several:
        run.submit(each, 0.0)
    assert [each.number for each in run_out(run)] == [0, 1, 2]
    assert several[1].preemptions == 1


def test_a_prompt_on_its_way_is_preempted_before_those_that_answer() -> None:
    run = engine(EngineSettings(kv_tokens=96, step_tokens=2))
    first, second = sequence(16, 40, number=1), sequence(60, 5, number=2)
    run.submit(first, 0.0)
    run.submit(second, 0.0)
    now = 0.0
    while run.preemptions == 0:
        now, _ = step(run, now)
    assert (first.preemptions, first.emitted, second.preemptions, second.prefilled) == (0, 17, 1, 0)
    assert (run.prompt_tokens, run.sequences()) == (16 + 16, [first])
    assert run_out(run, now) == [first, second]


def test_aborted_in_the_queue_it_is_gone_at_once() -> None:
    run = engine(EngineSettings(slots=1))
    first, second = sequence(), sequence()
    run.submit(first, 0.0)
    run.submit(second, 0.0)
    run.begin_step(0.0)
    assert run.abort(second)
    assert run.waiting == 0
    assert not run.abort(second)
    assert run.end_step(0.01) == []
    assert run_out(run, 0.01) == [first]


@pytest.mark.parametrize("steps_before", [0, 2])
def test_aborted_in_a_step_it_leaves_with_its_end(steps_before: int) -> None:
    run = engine(EngineSettings(kv_tokens=1000))
    one, other = sequence(), sequence()
    run.submit(one, 0.0)
    run.submit(other, 0.0)
    now = 0.0
    for _ in range(steps_before):
        now, _ = step(run, now)
    end = run.begin_step(now)
    emitted = one.emitted
    assert run.abort(one)
    assert not run.abort(one)
    assert run.running == 2
    run.end_step(end)
    assert run.sequences() == [other]
    assert (one.emitted, isnan(one.finished_at)) == (emitted, True)
    assert run_out(run, end) == [other]
    assert run.kv_use == 0.0


def test_aborted_between_two_steps_it_is_gone_at_once() -> None:
    run = engine(EngineSettings(kv_tokens=1000))
    one = sequence()
    run.submit(one, 0.0)
    step(run, 0.0)
    assert run.abort(one)
    assert (run.running, run.kv_use) == (0, 0.0)


def test_what_is_finished_or_was_never_here_can_not_be_aborted() -> None:
    run = engine()
    one = sequence()
    assert not run.abort(one)
    run.submit(one, 0.0)
    run_out(run)
    assert not run.abort(one)


def test_steps_do_not_overlap() -> None:
    run = engine()
    with pytest.raises(RuntimeError, match="no step"):
        run.end_step(0.0)
    run.submit(sequence(), 0.0)
    run.begin_step(0.0)
    with pytest.raises(RuntimeError, match="already"):
        run.begin_step(0.0)


@pytest.mark.parametrize(("prompt_tokens", "output_tokens"), [(0, 1), (1, 0)])
def test_a_sequence_has_a_prompt_and_an_answer(prompt_tokens: int, output_tokens: int) -> None:
    with pytest.raises(ValueError, match="a token at least"):
        Sequence(1, prompt_tokens, output_tokens, ())
