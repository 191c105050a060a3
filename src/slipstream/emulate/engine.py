"""The emulated engine: slots, a queue before them, and steps that come when pacing says."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from slipstream.emulate.counters import Counters
from slipstream.emulate.generation import Generation
from slipstream.emulate.pacing import Step
from slipstream.emulate.request import Problem, ProblemKind
from slipstream.emulate.settings import CONTEXT_TOKENS, NodeSettings

__all__ = ["Engine", "Load"]

OnStep = Callable[[Generation, int], None]
"""Called with the generation and the number of tokens it had before the step."""


class Load(NamedTuple):
    """What the engine's pages say of now: sequences, and the share of KV cache in use (0..1)."""

    running: int
    waiting: int
    kv_use: float


class Engine:
    """Runs generations, first come first served: one waits until as many slots are free as it has choices.

    ``counters_at_request_end``: counts of tokens move only when a request ends, as in some engines.
    """

    def __init__(
        self, settings: NodeSettings, loop: asyncio.AbstractEventLoop, *, counters_at_request_end: bool
    ) -> None:
        self.settings = settings
        self.counters = self._new_counters()
        self.peak_running = 0
        self._loop = loop
        self._late = counters_at_request_end
        self._running: dict[Generation, OnStep] = {}
        self._waiting: deque[tuple[Generation, OnStep]] = deque()
        self._busy_slots = 0
        self._lingering = 0

    @property
    def running(self) -> int:
        """Slots in use, those of requests that were aborted and still drain included."""
        return self._busy_slots + self._lingering

    @property
    def waiting(self) -> int:
        """Sequences without a slot."""
        return sum(generation.slots for generation, _ in self._waiting)

    @property
    def load(self) -> Load:
        tokens = sum(one.request.prompt_tokens + one.emitted * one.slots for one in self._running)
        return Load(self.running, self.waiting, min(1.0, tokens / (self.settings.slots * CONTEXT_TOKENS)))

    def generations(self) -> list[Generation]:
        """Those that have a slot, oldest first."""
        return list(self._running)

    def submit(self, generation: Generation, on_step: OnStep) -> None:
        """Take a generation in. Raises `Problem` when as many wait as may."""
        self._waiting.append((generation, on_step))
        self._admit()
        limit = self.settings.queue_limit
        if limit is not None and len(self._waiting) > limit:
            self._waiting.pop()
            self.counters.refused += 1
            raise Problem(ProblemKind.FULL, "The queue of requests is full.")

    def hold(self, generation: Generation) -> None:
        """Let no further step of it come. It keeps its slot."""
        if generation.timer is not None:
            generation.timer.cancel()
            generation.timer = None

    def go_on(self, generation: Generation) -> None:
        """End a `hold`."""
        if generation in self._running and generation.timer is None:
            self._schedule(generation, generation.pending or next(generation.steps))

    def abort(self, generation: Generation, linger_s: float = 0.0) -> None:
        """The client is gone. The slot is kept for ``linger_s`` seconds more."""
        self.hold(generation)
        if self._running.pop(generation, None) is None:
            self._waiting = deque(entry for entry in self._waiting if entry[0] is not generation)
        else:
            if self._late:
                self._count_tokens(generation)
            self._busy_slots -= generation.slots
            if linger_s > 0.0:
                self._lingering += generation.slots
                self._loop.call_later(linger_s, self._drained, generation.slots)
        self.counters.aborted += 1
        self._admit()

    def reset_counters(self) -> None:
        self.counters = self._new_counters()

    def close(self) -> None:
        """No step comes any more."""
        for generation in self._running:
            self.hold(generation)
        self._running.clear()
        self._waiting.clear()

    def _new_counters(self) -> Counters:
        settings = self.settings
        return Counters(per_position=[0] * settings.k if settings.speculator is not None else [])

    def _drained(self, slots: int) -> None:
        self._lingering -= slots
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self.running + self._waiting[0][0].slots <= self.settings.slots:
            generation, on_step = self._waiting.popleft()
            self._running[generation] = on_step
            self._busy_slots += generation.slots
            self.peak_running = max(self.peak_running, self.running)
            generation.admitted_at = self._loop.time()
            self._schedule(generation, next(generation.steps))

    def _schedule(self, generation: Generation, step: Step) -> None:
        generation.pending = step
        generation.timer = self._loop.call_later(step.after_s, self._step, generation)

    def _step(self, generation: Generation) -> None:
        step, now, before = generation.pending, self._loop.time(), generation.emitted
        assert step is not None
        generation.pending = generation.timer = None
        emitted = min(1 + step.accepted, generation.output_tokens - before)
        generation.emitted = before + emitted
        if step.drafted:
            generation.drafted.append(step.drafted)
            generation.accepted.append(step.accepted)
        self._count_step(generation, step, emitted, now)
        generation.last_step_at = now
        on_step = self._running[generation]
        if generation.finished:
            self._finish(generation, now)
        else:
            self._schedule(generation, next(generation.steps))
        on_step(generation, before)

    def _finish(self, generation: Generation, now: float) -> None:
        del self._running[generation]
        self._busy_slots -= generation.slots
        counters = self.counters
        if self._late:
            self._count_tokens(generation)
        if generation.stopped_by_itself:
            counters.stopped += 1
        else:
            counters.cut += 1
        counters.end_to_end.observe(now - generation.received_at)
        if generation.emitted > 1:
            counters.per_output_token.observe(generation.decode_s / (generation.emitted - 1))
        self._admit()

    def _count_step(self, generation: Generation, step: Step, emitted: int, now: float) -> None:
        counters = self.counters
        counters.steps += 1
        if generation.last_step_at is None:
            generation.first_token_at = now
            counters.first_token.observe(now - generation.received_at)
            if not self._late:
                counters.prompt_tokens += generation.request.prompt_tokens
        else:
            gap = now - generation.last_step_at
            counters.inter_step.observe(gap)
            counters.inter_token.observe(gap / emitted, emitted)
        if not self._late:
            counters.generated_tokens += emitted * generation.slots
            if step.drafted:
                for _ in range(generation.slots):
                    counters.verified(step.drafted, step.accepted)

    def _count_tokens(self, generation: Generation) -> None:
        """What an engine counts at the end of a request that counts nothing before."""
        counters = self.counters
        counters.prompt_tokens += generation.request.prompt_tokens
        counters.generated_tokens += generation.emitted * generation.slots
        counters.prefill_s += generation.prefill_s
        counters.decode_s += generation.decode_s
        length = generation.request.prompt_tokens + generation.emitted
        counters.longest_sequence = max(counters.longest_sequence, length)
        for drafted, accepted in zip(generation.drafted, generation.accepted, strict=True):
            for _ in range(generation.slots):
                counters.verified(drafted, accepted)
