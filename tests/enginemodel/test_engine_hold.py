"""A sequence that is held keeps its slot and its room, and goes on as if nothing had been."""

from __future__ import annotations

from math import inf

import pytest

from enginemodel.made_steps import engine, run_out, sequence, step
from slipstream.enginemodel.settings import EngineSettings


def test_no_step_works_on_a_sequence_that_is_held() -> None:
    run = engine(EngineSettings(slots=2, kv_tokens=64))
    held, other, waiting = (sequence(number=number) for number in range(3))
    for one in (held, other, waiting):
        assert run.submit(one, 0.0)
    now, _ = step(run, 0.0)
    assert run.hold(held)
    assert not run.hold(held)
    used = run.kv_use
    now, _ = step(run, now)
    assert (held.emitted, other.emitted) == (1, 2)
    assert (run.running, run.waiting, run.kv_use) == (2, 1, used)
    assert run.sequences() == [other]
    assert run.go_on(held)
    assert not run.go_on(held)
    assert run.sequences() == [other, held]
    assert run_out(run, now) == [other, held, waiting]
    assert (run.running, run.kv_use, run.cached_tokens) == (0, 0.0, 0)


def test_a_prompt_that_is_held_goes_on_where_it_was() -> None:
    run = engine(EngineSettings(slots=2, step_tokens=4))
    held = sequence(prompt_tokens=10, output_tokens=1)
    assert run.submit(held, 0.0)
    now, _ = step(run, 0.0)
    assert run.hold(held)
    assert run.begin_step(now) == inf
    assert run.go_on(held)
    assert held.prefilled == 4
    assert run_out(run, now) == [held]


def test_what_is_held_can_be_aborted_even_while_others_are_worked_on() -> None:
    run = engine(EngineSettings(slots=2, kv_tokens=64))
    held, other = sequence(), sequence(number=1)
    for one in (held, other):
        assert run.submit(one, 0.0)
    now, _ = step(run, 0.0)
    assert run.hold(held)
    run.begin_step(now)
    assert run.abort(held)
    assert not run.abort(held)
    assert run.running == 1


def test_nothing_is_held_or_goes_on_within_a_step_or_from_the_queue() -> None:
    run = engine(EngineSettings(slots=1))
    one, waiting = sequence(), sequence(number=1)
    assert run.submit(one, 0.0)
    assert run.submit(waiting, 0.0)
    end = run.begin_step(0.0)
    for refused in (run.hold, run.go_on):
        with pytest.raises(RuntimeError, match="a step is running"):
            refused(one)
    run.end_step(end)
    assert not run.hold(waiting)
