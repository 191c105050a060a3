"""An emulated engine that is paced by the engine model: the steps that `sim` runs in virtual time, in real time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf, isnan
from random import Random

from slipstream.costmodel.errors import ImpossibleInput
from slipstream.emulate.counters import Counters
from slipstream.emulate.engine import Load, OnStep
from slipstream.emulate.generation import Generation
from slipstream.emulate.lateness import Lateness
from slipstream.emulate.request import Problem, ProblemKind
from slipstream.emulate.settings import CONTEXT_TOKENS, CanNotEmulate, NodeSettings, Pace
from slipstream.enginemodel.acceptance import RequestAcceptance, survival_of
from slipstream.enginemodel.engine import Engine
from slipstream.enginemodel.sequence import HELD, RUNNING, WAITING, Sequence
from slipstream.enginemodel.settings import EngineSettings, ImpossibleEngine, Speculation
from slipstream.enginemodel.step_times import StepRows, StepTimes

__all__ = ["ModelledEngine"]

TIMER_S = 0.0005
"""Timers of event loops keep whole milliseconds: a step that is due within half of one is done now."""


class _Choice:
    """One answer of a generation, which is a sequence of the engine, and what of its drafts is counted already."""

    __slots__ = ("accepted", "drafted", "sequence", "work")

    def __init__(self, work: _Work, number: int, prompt_tokens: int, survival: tuple[float, ...]) -> None:
        self.work = work
        self.sequence = Sequence(number, prompt_tokens, work.generation.output_tokens, survival, self)
        self.drafted = 0
        self.accepted = 0


class _Work:
    """A generation in the engine. It gets on with the slowest of its choices."""

    __slots__ = ("choices", "generation", "held", "on_step")

    def __init__(self, generation: Generation, on_step: OnStep) -> None:
        self.generation = generation
        self.on_step = on_step
        self.choices: list[_Choice] = []
        self.held = False


class ModelledEngine:
    """One timer for the step that all running sequences share. The next step begins when the last was due, not when its
    timer came: a node that was late is in time again, and a machine that is too slow for the pace shows in
    ``lateness``. What counters say of times is the model's.

    Raises `CanNotEmulate` for a draft, a spread of acceptance or a number of slots that the model can not have.
    """

    def __init__(
        self,
        settings: NodeSettings,
        pace: Pace,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
        *,
        counters_at_request_end: bool,
        drafts_fit_output: bool,
    ) -> None:
        self.settings = settings
        self.counters = Counters.at_zero(settings, at_request_end=counters_at_request_end)
        self.lateness = Lateness()
        self.peak_running = 0
        self._loop = loop
        self._clock = clock
        self._drafts_fit_output = drafts_fit_output
        self._room = settings.slots * CONTEXT_TOKENS if pace.kv_tokens is None else pace.kv_tokens
        try:
            _check(pace.rows, settings)
            chance = Random(f"{settings.seed} engine")
            self._engine = Engine(_engine_settings(settings, pace), StepTimes(pace.rows), chance.random)
            self._acceptance = {
                category: _acceptance(alpha, settings) for category, alpha in settings.alphas.by_category.items()
            }
            self._others = _acceptance(settings.alphas.others, settings)
        except (ImpossibleEngine, ImpossibleInput) as error:
            raise CanNotEmulate(str(error)) from None
        self._works: dict[Generation, _Work] = {}
        self._changes: list[tuple[Callable[[Sequence], bool], Sequence]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._telling = False
        self._closed = False

    @property
    def running(self) -> int:
        return self._engine.running

    @property
    def waiting(self) -> int:
        return self._engine.waiting

    @property
    def load(self) -> Load:
        use = self._engine.kv_use
        if use is None:
            use = min(1.0, self._engine.cached_tokens / self._room)
        return Load(self.running, self.waiting, use, self._room)

    def generations(self) -> list[Generation]:
        return [
            generation
            for generation, work in self._works.items()
            if any(choice.sequence.place in (RUNNING, HELD) for choice in work.choices)
        ]

    def submit(self, generation: Generation, on_step: OnStep) -> None:
        """Raises `Problem` also for what the cache could never hold."""
        now = self._clock()
        self._catch_up(now)  # a step that was due before it came is not for it
        prompt_tokens = max(1, generation.request.prompt_tokens // generation.slots)  # choices share their prompt
        if not self._engine.fits(prompt_tokens, generation.output_tokens):
            wanted = f"{prompt_tokens} tokens and an answer of {generation.output_tokens}"
            raise Problem(ProblemKind.BAD_FIELD, f"A prompt of {wanted} do not fit into a cache of {self._room}.")
        survival = self._acceptance.get(generation.category, self._others).at(generation.chance.random())
        work = _Work(generation, on_step)
        for number in range(generation.slots):
            choice = _Choice(work, number, prompt_tokens, survival)
            if not self._engine.submit(choice.sequence, now):
                self._remove(work)
                self.counters.refused += 1
                raise Problem(ProblemKind.FULL, "The queue of requests is full.")
            work.choices.append(choice)
        self._works[generation] = work
        self._begin(now)

    def hold(self, generation: Generation) -> None:
        work = self._works.get(generation)
        if work is not None:
            work.held = True
            self._change(self._engine.hold, work)

    def go_on(self, generation: Generation) -> None:
        work = self._works.get(generation)
        if work is None or not work.held:
            return
        work.held = False
        self._change(self._engine.go_on, work)
        self._tell(work, self._clock())  # what came before the engine held
        self._begin(self._clock())

    def abort(self, generation: Generation, linger_s: float = 0.0) -> None:
        work = self._works.pop(generation)
        self.counters.left(generation, admitted=not isnan(work.choices[0].sequence.admitted_at))
        if linger_s > 0.0:
            for choice in work.choices:
                if choice.sequence.place == WAITING:
                    self._engine.abort(choice.sequence)
            self._change(self._engine.hold, work)
            self._loop.call_later(linger_s, self._drained, work)
        else:
            self._drained(work)

    def reset_counters(self) -> None:
        self.counters = Counters.at_zero(self.settings, at_request_end=self.counters.at_request_end)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _drained(self, work: _Work) -> None:
        self._remove(work)
        self._begin(self._clock())

    def _remove(self, work: _Work) -> None:
        for choice in work.choices:
            self._engine.abort(choice.sequence)

    def _change(self, change: Callable[[Sequence], bool], work: _Work) -> None:
        """Between two steps: now, or when the running one has ended."""
        for choice in work.choices:
            if self._engine.stepping:
                self._changes.append((change, choice.sequence))
            else:
                change(choice.sequence)

    def _begin(self, at: float) -> None:
        if self._timer is not None or self._telling or self._closed:
            return
        self._due = self._engine.begin_step(at)
        if self._due < inf:
            self.peak_running = max(self.peak_running, self._engine.running)
            self._set_timer()

    def _set_timer(self) -> None:
        self._timer = self._loop.call_later(max(0.0, self._due - self._clock()), self._end)

    def _catch_up(self, now: float) -> None:
        """End the steps that were due before now, if their timer is late."""
        while self._timer is not None and self._due <= now and not (self._telling or self._closed):
            self._timer.cancel()
            self._end()

    def _end(self) -> None:
        due, engine = self._due, self._engine
        if due - self._clock() > TIMER_S:
            self._set_timer()
            return
        stepped, preemptions = engine.sequences(), engine.preemptions
        engine.end_step(due)
        self.counters.steps += 1
        self.counters.preemptions += engine.preemptions - preemptions
        self._timer = None
        self._telling = True
        for work in self._progressed(stepped):
            self._tell(work, due)
        self._telling = False
        for change, sequence in self._changes:
            change(sequence)
        self._changes.clear()
        self._begin(due)

    def _progressed(self, stepped: list[Sequence]) -> list[_Work]:
        """Whose sequences these are, without those that left, and what was drafted for them is counted."""
        found: dict[_Work, None] = {}
        works, counters = self._works, self.counters
        for sequence in stepped:
            choice = sequence.owner
            assert isinstance(choice, _Choice)
            generation = choice.work.generation
            if generation not in works:
                continue
            found[choice.work] = None
            drafted = sequence.drafted - choice.drafted
            if drafted > 0:
                accepted = sequence.accepted - choice.accepted
                choice.drafted, choice.accepted = sequence.drafted, sequence.accepted
                if self._drafts_fit_output:
                    drafted = min(drafted, sequence.output_tokens - sequence.emitted + accepted)
                if drafted > 0:
                    counters.verified(generation, drafted, accepted)
        return list(found)

    def _tell(self, work: _Work, due: float) -> None:
        """Hand on what a generation has got since it was last heard of."""
        generation, choices = work.generation, work.choices
        before, emitted = generation.emitted, choices[0].sequence.emitted
        if len(choices) > 1:
            emitted = min(choice.sequence.emitted for choice in choices)
        if emitted == before or work.held:
            return
        if before == 0:
            generation.admitted_at = choices[0].sequence.admitted_at
        self.counters.emitted(generation, emitted - before, due)
        if generation.finished:
            del self._works[generation]
            self.counters.finished(generation, due)
        work.on_step(generation, before)
        self.lateness.observe(self._clock() - due)


def _engine_settings(settings: NodeSettings, pace: Pace) -> EngineSettings:
    speculation = None
    if settings.speculator is not None:
        speculation = Speculation(k=settings.k, proposing_share=settings.share_proposing)
    return EngineSettings(
        slots=settings.slots, kv_tokens=pace.kv_tokens, queue_limit=settings.queue_limit, speculation=speculation
    )


def _check(rows: StepRows, settings: NodeSettings) -> None:
    """Raises `ImpossibleInput` when steps would come for which there are no times."""
    for batch in (1, settings.slots):
        rows.decode_row(batch, 0, 0)
        if settings.share_proposing > 0.0:
            rows.decode_row(batch, batch, settings.k)


def _acceptance(alpha: float, settings: NodeSettings) -> RequestAcceptance:
    return RequestAcceptance(survival_of(alpha, settings.k), settings.alphas.spread, settings.k)
