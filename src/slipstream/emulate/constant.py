"""An emulated engine whose steps take what was set, whatever the load: each request has a pace of its own."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

from slipstream.emulate.counters import Counters
from slipstream.emulate.engine import Load, OnStep
from slipstream.emulate.generation import Generation
from slipstream.emulate.lateness import Lateness
from slipstream.emulate.pacing import Job, Pacing, Step
from slipstream.emulate.request import Problem, ProblemKind
from slipstream.emulate.settings import CONTEXT_TOKENS, NodeSettings

__all__ = ["ConstantEngine"]


class _Work:
    """A generation's steps: the one that comes next, when it is due, and what waits for that."""

    __slots__ = ("due", "on_step", "pending", "steps", "timer")

    def __init__(self, steps: Iterator[Step], on_step: OnStep) -> None:
        self.steps = steps
        self.on_step = on_step
        self.pending: Step | None = None
        self.due = 0.0
        self.timer: asyncio.TimerHandle | None = None


class ConstantEngine:
    """A request waits until as many slots are free as it has choices; those then have the same steps."""

    def __init__(
        self,
        settings: NodeSettings,
        pacing: Pacing,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
        *,
        counters_at_request_end: bool,
    ) -> None:
        self.settings = settings
        self.counters = Counters.at_zero(settings, at_request_end=counters_at_request_end)
        self.lateness = Lateness()
        self.peak_running = 0
        self._pacing = pacing
        self._loop = loop
        self._clock = clock
        self._running: dict[Generation, _Work] = {}
        self._waiting: deque[tuple[Generation, _Work]] = deque()
        self._busy_slots = 0
        self._lingering = 0

    @property
    def running(self) -> int:
        return self._busy_slots + self._lingering

    @property
    def waiting(self) -> int:
        return sum(generation.slots for generation, _ in self._waiting)

    @property
    def load(self) -> Load:
        tokens = sum(one.request.prompt_tokens + one.emitted * one.slots for one in self._running)
        room = self.settings.slots * CONTEXT_TOKENS
        return Load(self.running, self.waiting, min(1.0, tokens / room), room)

    def generations(self) -> list[Generation]:
        return list(self._running)

    def submit(self, generation: Generation, on_step: OnStep) -> None:
        request = generation.request
        job = Job(generation.category, request.prompt_tokens, generation.output_tokens, generation.chance)
        self._waiting.append((generation, _Work(self._pacing(job), on_step)))
        self._admit()
        limit = self.settings.queue_limit
        if limit is not None and len(self._waiting) > limit:
            self._waiting.pop()
            self.counters.refused += 1
            raise Problem(ProblemKind.FULL, "The queue of requests is full.")

    def hold(self, generation: Generation) -> None:
        work = self._running.get(generation)
        if work is not None and work.timer is not None:
            work.timer.cancel()
            work.timer = None

    def go_on(self, generation: Generation) -> None:
        work = self._running.get(generation)
        if work is not None and work.timer is None:
            self._schedule(generation, work, work.pending or next(work.steps))

    def abort(self, generation: Generation, linger_s: float = 0.0) -> None:
        self.hold(generation)
        admitted = self._running.pop(generation, None) is not None
        self.counters.left(generation, admitted=admitted)
        if admitted:
            self._busy_slots -= generation.slots
            if linger_s > 0.0:
                self._lingering += generation.slots
                self._loop.call_later(linger_s, self._drained, generation.slots)
        else:
            self._waiting = deque(entry for entry in self._waiting if entry[0] is not generation)
        self._admit()

    def reset_counters(self) -> None:
        self.counters = Counters.at_zero(self.settings, at_request_end=self.counters.at_request_end)

    def close(self) -> None:
        for generation in self._running:
            self.hold(generation)
        self._running.clear()
        self._waiting.clear()

    def _drained(self, slots: int) -> None:
        self._lingering -= slots
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self.running + self._waiting[0][0].slots <= self.settings.slots:
            generation, work = self._waiting.popleft()
            self._running[generation] = work
            self._busy_slots += generation.slots
            self.peak_running = max(self.peak_running, self.running)
            generation.admitted_at = self._clock()
            self._schedule(generation, work, next(work.steps))

    def _schedule(self, generation: Generation, work: _Work, step: Step) -> None:
        work.pending = step
        work.due = self._clock() + step.after_s
        work.timer = self._loop.call_later(step.after_s, self._step, generation, work)

    def _step(self, generation: Generation, work: _Work) -> None:
        step, now, before, due = work.pending, self._clock(), generation.emitted, work.due
        assert step is not None
        work.pending = work.timer = None
        counters = self.counters
        counters.steps += 1
        if step.drafted:
            for _ in range(generation.slots):
                counters.verified(generation, step.drafted, step.accepted)
        counters.emitted(generation, min(1 + step.accepted, generation.output_tokens - before), now)
        if generation.finished:
            del self._running[generation]
            self._busy_slots -= generation.slots
            counters.finished(generation, now)
            self._admit()
        else:
            self._schedule(generation, work, next(work.steps))
        work.on_step(generation, before)
        self.lateness.observe(self._clock() - due)
