"""What holds of an engine at every instant, whatever is asked of it and in whatever order."""

from __future__ import annotations

from dataclasses import replace
from math import isinf, isnan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginemodel.made_steps import SURVIVAL, MadeSteps, engine
from slipstream.enginemodel.engine import Engine
from slipstream.enginemodel.sequence import Sequence
from slipstream.enginemodel.settings import Account, EngineSettings, Speculation

ROWS = MadeSteps(0.01, 0.001, 0.0002, 1e-6, 1e-4, 2e-5, 1e-8)

speculations = st.builds(
    Speculation,
    k=st.integers(0, 5),
    proposing_share=st.sampled_from([0.0, 0.4, 1.0]),
    schedule=st.sampled_from([(), ((2, 4), (4, 1)), ((1, 0), (3, 2))]),
    drop_below=st.sampled_from([None, 2.0]),
    account=st.sampled_from(Account),
)
engines = st.builds(
    EngineSettings,
    slots=st.integers(1, 8),
    kv_tokens=st.sampled_from([None, 80, 112, 160]),
    block_tokens=st.sampled_from([1, 4, 16]),
    step_tokens=st.sampled_from([4, 20, 8192]),
    queue_limit=st.sampled_from([None, 0, 3]),
    speculation=st.none() | speculations,
)
requests = st.tuples(st.integers(1, 50), st.integers(1, 40))
deeds = st.lists(
    st.one_of(requests, requests, st.just("step"), st.just("hold"), st.just("go on"), st.integers(0, 30)),
    min_size=10,
    max_size=50,
)


class Books:
    """An engine and the sequences given to it, by what became of them."""

    def __init__(self, asked: EngineSettings, seed: int) -> None:
        self.settings = asked
        self.run: Engine = engine(asked, ROWS, seed)
        self.now = 0.0
        self.end = 0.0
        self.all: list[Sequence] = []
        self.refused: list[Sequence] = []
        self.aborted: list[Sequence] = []
        self.leaving: list[Sequence] = []
        self.held: list[Sequence] = []
        self.finished: list[Sequence] = []

    def submit(self, prompt_tokens: int, output_tokens: int) -> None:
        new = Sequence(len(self.all), prompt_tokens, output_tokens, SURVIVAL)
        self.all.append(new)
        if not self.run.submit(new, self.now):
            self.refused.append(new)

    def abort(self, which: int) -> None:
        if which < len(self.all):
            one = self.all[which]
            running = one in self.run.sequences()
            gone = one in self.finished or one in self.refused or one in self.aborted or one in self.leaving
            assert self.run.abort(one) is not gone
            if one in self.held:
                self.held.remove(one)
            if not gone:
                (self.leaving if running and self.run.stepping else self.aborted).append(one)

    def hold_one(self) -> None:
        """Between two steps, the oldest of those that run."""
        if not self.run.stepping and self.run.sequences():
            self.held.append(self.run.sequences()[0])
            assert self.run.hold(self.held[-1])

    def let_go_on(self) -> None:
        """Between two steps, whoever was held first."""
        if not self.run.stepping and self.held:
            assert self.run.go_on(self.held.pop(0))

    def step(self) -> None:
        """Begin a step, or end the one that runs."""
        if not self.run.stepping:
            self.end = self.run.begin_step(self.now)
            assert self.end > self.now
            assert isinf(self.end) is (not self.run.stepping)
            assert self.run.stepping is (len(self.run.sequences()) > 0)
            return
        self.now = self.end
        done = self.run.end_step(self.now)
        self.finished += done
        self.aborted += self.leaving
        self.leaving.clear()
        for one in done:
            assert one.emitted == one.output_tokens
            assert one.submitted_at <= one.admitted_at < one.first_token_at <= one.finished_at == self.now

    def agree(self) -> None:
        run, running = self.run, self.run.sequences()
        assert run.running == len(running) + len(self.held)
        assert len(self.all) == (len(self.finished) + run.running + run.waiting + len(self.aborted) + len(self.refused))
        assert run.running <= self.settings.slots
        if run.kv_use is not None:
            assert self.settings.kv_tokens is not None
            blocks = self.settings.kv_tokens // self.settings.block_tokens
            given = sum(one.blocks for one in self.all)
            assert given == sum(one.blocks for one in [*running, *self.held]) <= blocks
            assert abs(run.kv_use - given / blocks) < 1e-9
            assert all(one.context <= one.blocks * self.settings.block_tokens for one in running)
        assert run.cached_tokens == sum(one.context for one in running if one.prefilled == one.to_prefill)
        for name in ("drafted", "accepted", "verify_steps", "preemptions"):
            assert getattr(run, name) == sum(getattr(one, name) for one in self.all)
        assert run.generated_tokens == sum(one.emitted for one in self.all)
        assert run.accepted == sum(run.accepted_per_position) <= run.drafted
        assert all(one.emitted <= one.output_tokens for one in self.all)
        assert all((one.emitted == 0) is isnan(one.first_token_at) for one in self.all)
        assert all(one.accepted <= one.drafted and one.verify_steps <= one.steps for one in self.all)


@pytest.mark.no_cover
@given(engines, deeds, st.integers(0, 1000))
@settings(max_examples=120, deadline=None)
def test_every_sequence_is_somewhere_and_the_books_agree_at_every_instant(
    asked: EngineSettings, done: list[tuple[int, int] | str | int], seed: int
) -> None:
    books = Books(asked, seed)
    for deed in done:
        if isinstance(deed, tuple):
            books.submit(*deed)
        elif isinstance(deed, int):
            books.abort(deed)
        else:
            {"step": books.step, "hold": books.hold_one, "go on": books.let_go_on}[deed]()
        books.agree()
    while books.run.stepping or books.run.running or books.run.waiting:
        books.let_go_on()
        books.step()
        books.agree()
    assert len(books.all) == len(books.finished) + len(books.aborted) + len(books.refused)
    assert books.run.kv_use in (None, 0.0)


@pytest.mark.no_cover
@given(
    engines,
    st.sampled_from([Speculation(k=0), Speculation(k=4, proposing_share=0.0), Speculation(schedule=((3, 0),))]),
    st.lists(requests, min_size=1, max_size=12),
)
@settings(max_examples=60, deadline=None)
def test_an_engine_that_never_drafts_is_a_standard_one_but_for_what_its_decoding_costs(
    asked: EngineSettings, speculation: Speculation, wanted: list[tuple[int, int]]
) -> None:
    """Step for step the same sequences and tokens. Without the tax, also the same time."""
    untaxed = replace(speculation, zero_draft_tax=0.0)
    runs = [engine(replace(asked, speculation=each), ROWS) for each in (None, untaxed, speculation)]
    for run in runs:
        for number, (prompt_tokens, output_tokens) in enumerate(wanted):
            run.submit(Sequence(number, prompt_tokens, output_tokens, SURVIVAL), 0.0)
    standard, free, taxed = runs
    while standard.running or standard.waiting:
        spent = [run.begin_step(0.0) for run in runs]
        decoding = any(one.emitted > 0 and one.prefilled == one.to_prefill for one in standard.sequences())
        assert spent[1] == spent[0]
        assert spent[2] > spent[0] if decoding else spent[2] == spent[0]
        finished = [[one.number for one in run.end_step(end)] for run, end in zip(runs, spent, strict=True)]
        assert finished[0] == finished[1] == finished[2]
        assert [[one.emitted for one in run.sequences()] for run in runs[1:]] == [
            [one.emitted for one in standard.sequences()]
        ] * 2
    for name in ("steps", "generated_tokens", "prompt_tokens", "preemptions", "drafted"):
        assert getattr(free, name) == getattr(taxed, name) == getattr(standard, name)


@given(engines, st.lists(st.tuples(requests, st.integers(0, 6)), min_size=1, max_size=12), st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_counts_that_are_behind_are_the_same_once_they_are_asked_for(
    asked: EngineSettings, wanted: list[tuple[tuple[int, int], int]], most: int
) -> None:
    """One engine tells after every step, the other at the end; requests come some steps after one another."""
    seed = most
    told, asked_late = engine(asked, ROWS, seed), engine(asked, ROWS, seed)
    finished: list[list[Sequence]] = [[], []]
    all_of = [[Sequence(n, *request, SURVIVAL) for n, (request, _) in enumerate(wanted)] for _ in range(2)]
    ends = [0.0, 0.0]
    due = list(zip(*all_of, [steps for _, steps in wanted], strict=True))
    while told.steps < most and (due or not isinf(ends[0])):
        wait = due[0][2] if due else 1
        while wait and told.stepping:
            finished[0] += told.end_step(ends[0])
            ends = [told.begin_step(ends[0]), asked_late.next_step(ends[1], finished[1])]
            assert ends[0] == ends[1]
            wait -= 1
        if due:
            one, other, _ = due.pop(0)
            now = 0.0 if isinf(ends[0]) else ends[0]
            assert told.submit(one, now) is asked_late.submit(other, now)
            if not told.stepping:
                ends = [told.begin_step(now), asked_late.begin_step(now)]
    assert [one.number for one in finished[0]] == [one.number for one in finished[1]]
    assert [one.number for one in told.sequences()] == [one.number for one in asked_late.sequences()]
    assert (told.kv_use, told.cached_tokens, told.busy_s) == (asked_late.kv_use, asked_late.cached_tokens, told.busy_s)
    assert told.accepted_per_position == asked_late.accepted_per_position
    names = ("emitted", "steps", "verify_steps", "drafted", "accepted", "preemptions", "prefilled", "blocks", "room",
             "first_token_at", "finished_at")  # fmt: skip
    for one, other in zip(*all_of, strict=True):
        for name in names:
            assert repr(getattr(one, name)) == repr(getattr(other, name)), name
