"""An engine paced by the model: steps come when they are due, however late timers are, and slots are kept as said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.core.node import SpeculatorKind
from slipstream.costmodel.profiles import LinearCosts, Provenance, TableCosts
from slipstream.costmodel.steps import step_rows
from slipstream.emulate import CanNotEmulate, NodeSettings, Pace
from slipstream.emulate.alphas import Alphas
from slipstream.emulate.generation import Generation
from slipstream.emulate.lateness import Lateness
from slipstream.emulate.modelled import ModelledEngine
from slipstream.emulate.request import CHAT, Problem, ProblemKind, read_completion

MADE = Provenance("made", "1", "none", "m", "2026")
STEP_S, PROMPT_S = 0.020, 0.010
ROWS = step_rows(LinearCosts(MADE, step_s=STEP_S, token_s=0.0, prefill_token_s=PROMPT_S / 100))
"""A step takes 20 ms, a prompt of 100 tokens 10 ms more."""


@dataclass(order=True)
class Timer:
    at: float
    number: int
    callback: Callable[[], object] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


class Timers:
    """A loop's timers without a loop: time stands still until it is told to pass."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []
        self.set = 0

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> Timer:
        assert delay >= 0.0
        self.set += 1
        timer = Timer(self.now + delay, self.set, lambda: callback(*arguments))
        self.timers.append(timer)
        return timer

    def next(self, late: float = 0.0) -> bool:
        """Let the next timer come, so much later than it was set for. False: there is none."""
        self.timers = sorted(timer for timer in self.timers if not timer.cancelled)
        if not self.timers:
            return False
        timer = self.timers.pop(0)
        self.now = max(self.now, timer.at + late)
        timer.callback()
        return True

    def run(self, late: float = 0.0) -> None:
        while self.next(late):
            pass


class Bench:
    """An engine and what it told: the time, the request's number and its tokens, for every step of a request."""

    def __init__(self, *, at_request_end: bool = False, drafts_fit_output: bool = False, **given: Any) -> None:
        self.timers = Timers()
        self.settings = NodeSettings(**{"pace": Pace(ROWS)} | given)
        assert self.settings.pace is not None
        self.engine = ModelledEngine(
            self.settings,
            self.settings.pace,
            cast("asyncio.AbstractEventLoop", self.timers),
            lambda: self.timers.now,
            counters_at_request_end=at_request_end,
            drafts_fit_output=drafts_fit_output,
        )
        self.told: list[tuple[float, int, int]] = []
        self.made = 0

    def submit(
        self, output_tokens: int = 5, *, prompt_tokens: int = 100, choices: int = 1, on_step: Any = None
    ) -> Generation:
        number, self.made = self.made, self.made + 1
        content = "." * (4 * prompt_tokens - 4)
        request = read_completion(
            CHAT, f'{{"messages":[{{"role":"user","content":"{content}"}}],"n":{choices},"stream":true}}'.encode()
        )
        k = None if self.settings.speculator is None else self.settings.k
        generation = Generation(
            request, "", "m", 1, "chat", output_tokens, True, choices, k, Random(number), self.timers.now
        )

        def tell(told: Generation, before: int) -> None:
            self.told.append((self.timers.now, number, told.emitted))
            if on_step is not None:
                on_step(told, before)

        self.engine.submit(generation, tell)
        return generation

    def tokens(self, number: int) -> list[int]:
        return [emitted for _, one, emitted in self.told if one == number]


def test_steps_take_what_the_model_says_for_all_that_run() -> None:
    bench = Bench()
    bench.submit(3)
    bench.timers.next()
    bench.submit(2)
    bench.timers.run()
    assert [(round(at, 6), number, tokens) for at, number, tokens in bench.told] == [
        (0.03, 0, 1),  # a prompt alone
        (0.05, 0, 2),  # the other one came within this step
        (0.08, 0, 3),
        (0.08, 1, 1),  # the second's prompt beside it
        (0.10, 1, 2),
    ]
    counters = bench.engine.counters
    assert (counters.steps, counters.generated_tokens, counters.prompt_tokens, counters.stopped) == (4, 5, 200, 2)
    assert bench.engine.peak_running == 2


@settings(max_examples=30, deadline=None)
@given(late=st.lists(st.floats(0.0, 0.1), min_size=30, max_size=30))
def test_a_late_timer_makes_no_later_step_later(late: list[float]) -> None:
    """Each is told at once when its timer comes, and a node that caught up is where it would have been."""
    bench = Bench()
    bench.submit(30)
    for delay in late:
        bench.timers.next(delay)
    for step, (at, _, tokens) in enumerate(bench.told, 1):
        assert tokens == step
        assert at >= PROMPT_S + STEP_S * step - 0.001
    assert bench.engine.counters.end_to_end.total_s == pytest.approx(PROMPT_S + 30 * STEP_S)
    told = bench.engine.lateness.as_json()
    worst = max(at - PROMPT_S - STEP_S * step for step, (at, _, _) in enumerate(bench.told, 1))
    assert (told["steps"], told["max_ms"]) == (30, pytest.approx(max(0.0, 1e3 * worst), abs=1e-6))


def test_a_timer_that_comes_too_early_is_set_again() -> None:
    bench = Bench()
    bench.submit(1)
    bench.timers.timers[0].at -= 0.002
    bench.timers.next()
    assert bench.told == []
    bench.timers.run()
    assert [round(at, 6) for at, _, _ in bench.told] == [0.03]


def test_counters_are_the_engines() -> None:
    bench = Bench(
        speculator=SpeculatorKind.DRAFT, k=3, alphas=Alphas(0.7, {"chat": 0.6}, 0.1), slots=3, proposing_share=0.8
    )
    made = [bench.submit(40) for _ in range(5)]
    bench.timers.run()
    counters, engine = bench.engine.counters, bench.engine._engine
    assert counters.per_position == engine.accepted_per_position
    assert (counters.drafted, counters.accepted, counters.verify_steps, counters.generated_tokens) == (
        engine.drafted,
        engine.accepted,
        engine.verify_steps,
        engine.generated_tokens,
    )
    assert sum(sum(one.accepted) for one in made) == counters.accepted
    assert all(one.finished for one in made)


@pytest.mark.parametrize("at_request_end", [False, True])
def test_tokens_are_counted_while_a_request_runs_or_when_it_ends(at_request_end: bool) -> None:
    bench = Bench(at_request_end=at_request_end, speculator=SpeculatorKind.DRAFT, k=2)
    bench.submit(9)
    bench.timers.next()
    bench.timers.next()
    assert (bench.engine.counters.drafted > 0) is not at_request_end
    bench.timers.run()
    assert (bench.engine.counters.generated_tokens, bench.engine.counters.prompt_tokens) == (9, 100)


def test_drafts_fit_the_output_where_engines_see_to_that() -> None:
    drafted = {}
    for fit in (False, True):
        bench = Bench(drafts_fit_output=fit, speculator=SpeculatorKind.DRAFT, k=4, alphas=Alphas(1.0))
        drafted[fit] = bench.submit(8).drafted
        bench.timers.run()
    assert drafted == {False: [4, 4], True: [4, 1]}  # 1 + 5 + 2 tokens
    bench = Bench(drafts_fit_output=True, speculator=SpeculatorKind.DRAFT, k=4, alphas=Alphas(1.0))
    generation = bench.submit(7)
    bench.timers.run()
    assert (generation.emitted, generation.drafted) == (7, [4])


def test_choices_are_sequences_and_get_on_with_the_slowest() -> None:
    bench = Bench(slots=4, speculator=SpeculatorKind.DRAFT, k=4, alphas=Alphas(0.6))
    both = bench.submit(40, choices=3)
    bench.timers.next()
    assert bench.engine.running == 3
    bench.timers.run()
    tokens = bench.tokens(0)
    assert tokens[-1] == 40
    assert tokens == sorted(set(tokens))
    assert len(both.drafted) == bench.engine.counters.verify_steps
    assert bench.engine.counters.generated_tokens == 120


def test_a_full_queue_refuses_a_request_with_all_its_choices() -> None:
    bench = Bench(slots=2, queue_limit=1)
    bench.submit()
    bench.timers.next()
    with pytest.raises(Problem, match="full"):
        bench.submit(choices=3)
    assert (bench.engine.running, bench.engine.waiting, bench.engine.counters.refused) == (1, 0, 1)
    bench.submit(choices=2)
    bench.timers.run()
    assert bench.engine.counters.stopped == 2


def test_what_the_cache_can_not_hold_is_a_bad_request() -> None:
    bench = Bench(pace=Pace(ROWS, kv_tokens=160))
    with pytest.raises(Problem, match="do not fit into a cache of 160") as raised:
        bench.submit(100)
    assert raised.value.kind is ProblemKind.BAD_FIELD


def test_preemptions_and_the_use_of_the_cache_are_told() -> None:
    bench = Bench(pace=Pace(ROWS, kv_tokens=256), slots=2)
    bench.submit(100)
    bench.submit(100)
    bench.timers.next()
    load = bench.engine.load
    assert load.kv_tokens == 256
    assert load.kv_use == pytest.approx(14 / 16)  # blocks: 7 hold a prompt and what comes next
    bench.timers.run()
    assert bench.engine.counters.preemptions == 1
    assert bench.tokens(1) == list(range(1, 101))
    unlimited = Bench(slots=2)
    unlimited.submit()
    unlimited.timers.next()
    assert unlimited.engine.load.kv_use == pytest.approx(100 / (2 * 8192))


def test_a_request_that_is_held_keeps_its_slot_and_goes_on_where_it_was() -> None:
    bench = Bench(slots=1)
    held, waiting = bench.submit(4), bench.submit(1)
    bench.timers.next()
    bench.engine.hold(held)  # within a step, which goes on to its end
    bench.timers.next()
    assert not bench.timers.next()
    assert (bench.tokens(0), bench.engine.running, bench.engine.waiting) == ([1], 1, 1)
    assert bench.engine.generations() == [held]
    bench.engine.go_on(held)
    bench.engine.go_on(held)
    assert bench.tokens(0) == [1, 2]
    bench.timers.run()
    assert bench.tokens(0) == [1, 2, 3, 4]
    assert waiting.finished
    bench.engine.hold(held)
    bench.engine.go_on(held)


def test_it_can_be_held_by_who_is_told_and_go_on_within_a_step_of_others() -> None:
    bench = Bench(slots=2)
    held = bench.submit(4, on_step=lambda told, before: bench.engine.hold(told) if before == 0 else None)
    bench.submit(6)
    for _ in range(3):
        bench.timers.next()
    assert (bench.tokens(0), bench.tokens(1)) == ([1], [1, 2])
    bench.engine.go_on(held)
    bench.timers.run()
    assert (bench.tokens(0)[-1], bench.tokens(1)[-1]) == (4, 6)


def test_who_leaves_gives_way_to_who_waits() -> None:
    bench = Bench(slots=1, at_request_end=True)
    first, second, third = (bench.submit(5) for _ in range(3))
    bench.timers.next()
    bench.engine.abort(first)
    bench.engine.abort(third)
    assert bench.engine.running == 1, "the step that works on it goes on"
    bench.timers.run()
    assert (bench.tokens(0), bench.tokens(2)) == ([1], [])
    assert second.finished
    counters = bench.engine.counters
    assert (counters.aborted, counters.prompt_tokens, counters.generated_tokens) == (2, 200, 6)


def test_a_slot_may_be_kept_when_its_client_has_left() -> None:
    bench = Bench(slots=2)
    first, second = bench.submit(5), bench.submit(5)
    bench.submit(1)
    waiting = bench.submit(1)
    bench.timers.next()
    bench.engine.abort(first, linger_s=1.0)
    bench.engine.abort(second, linger_s=1.0)
    bench.engine.abort(waiting, linger_s=1.0)
    bench.timers.next()
    assert (bench.engine.running, bench.engine.waiting) == (2, 1)
    bench.timers.run()
    assert (bench.engine.running, bench.engine.waiting) == (0, 0)
    (at,) = (at for at, number, _ in bench.told if number == 2)
    assert at == pytest.approx(0.03 + 1.0 + PROMPT_S + STEP_S)


def test_counters_begin_anew_and_no_step_comes_after_the_end() -> None:
    bench = Bench(speculator=SpeculatorKind.DRAFT, k=4)
    generation = bench.submit(50)
    for _ in range(3):
        bench.timers.next()
    bench.engine.reset_counters()
    counters = bench.engine.counters
    assert (counters.drafted, counters.steps, counters.per_position) == (0, 0, [0, 0, 0, 0])
    bench.engine.close()
    assert not bench.timers.next()
    bench.engine.hold(generation)
    bench.engine.go_on(generation)
    assert not bench.timers.next()
    Bench().engine.close()


def measured(*ks: int) -> Pace:
    return Pace(step_rows(TableCosts(MADE, dict.fromkeys(ks, ((1, 0.01), (8, 0.01))))))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"pace": measured(0, 2)}, "no draft length 4; it has 0, 2"),
        ({"pace": measured(0, 4), "slots": 16}, "size 1 to 8 only"),
        ({"alphas": Alphas(0.5, {"code": 0.9}, 0.29)}, "can not have a spread of 0.29"),
        ({"pace": Pace(ROWS, kv_tokens=1)}, "cache holds at least a block"),
    ],
    ids=["draft", "slots", "spread", "cache"],
)
def test_what_the_model_can_not_have_is_said_so(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CanNotEmulate, match=sentence):
        Bench(speculator=SpeculatorKind.DRAFT, **given)


def test_lateness_is_told_by_its_quantiles() -> None:
    lateness = Lateness()
    assert lateness.as_json() == {"steps": 0, "p50_ms": None, "p99_ms": None, "max_ms": None}
    for seconds in (-0.0004, 0.00105, 0.00105, 7.0):
        lateness.observe(seconds)
    told = lateness.as_json()
    assert (told["steps"], told["max_ms"]) == (4, 7000.0)
    assert told["p50_ms"] == pytest.approx(1.1)
    assert lateness.quantile(0.25) == pytest.approx(0.0001)
    assert told["p99_ms"] == pytest.approx(1000.1)


def test_who_comes_while_a_timer_is_late_is_not_in_a_step_that_was_due_before() -> None:
    bench = Bench()
    bench.submit(4)
    bench.timers.next()
    bench.timers.now = 0.065  # two steps are due at 0.05 and 0.07
    bench.submit(1)
    assert bench.tokens(0) == [1, 2]
    bench.timers.run()
    at, number, _ = bench.told[-1]
    assert (round(at, 6), number) == (0.10, 1)
