"""An engine, step after step: admission, prompts in chunks, drafting, verification, and what if room runs out.

A step is planned by `Engine.begin_step` and takes effect in `Engine.end_step` (`Engine.next_step` does both); between
the two only `submit` and `abort` may be called, which touch nothing that runs. What is modelled and what is not:
docs/explanation/engine-model.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf, isnan
from typing import Final

from slipstream.enginemodel.batch import Batch
from slipstream.enginemodel.blocks import Blocks
from slipstream.enginemodel.sequence import ABORTED, ELSEWHERE, HELD, RUNNING, WAITING, Sequence
from slipstream.enginemodel.settings import EngineSettings, Speculation
from slipstream.enginemodel.step_times import Line, StepTimes

__all__ = ["Engine"]

_NO_SPECULATION: Final = Speculation(k=0, zero_draft_tax=0.0)


class Engine:
    """``times`` is what steps take; ``draw`` gives uniform numbers of 0..1.

    ``stepping``: a step has begun and not ended. ``cached_tokens``: those of the sequences that answer. Counters, from
    the start on: ``steps`` and the ``busy_s`` seconds that they took; ``prompt_tokens`` processed, those recomputed
    after a preemption included; ``generated_tokens`` emitted; ``drafted`` and ``accepted`` tokens; ``verify_steps``,
    one a sequence and step with a draft, and ``verified_tokens``, their query tokens (K + 1 each); ``preemptions``.
    """

    __slots__ = (
        "_aborting",
        "_batch",
        "_blocked",
        "_blocks",
        "_held",
        "_k",
        "_k_at",
        "_line",
        "_line_decoding",
        "_line_drafting",
        "_line_k",
        "_prefilling",
        "_queue_limit",
        "_slots",
        "_speculates",
        "_step_s",
        "_step_tokens",
        "_tax",
        "_times",
        "_waiting",
        "accepted",
        "busy_s",
        "cached_tokens",
        "drafted",
        "generated_tokens",
        "preemptions",
        "prompt_tokens",
        "stepping",
        "steps",
        "verified_tokens",
        "verify_steps",
    )

    def __init__(self, settings: EngineSettings, times: StepTimes, draw: Callable[[], float]) -> None:
        speculation = settings.speculation or _NO_SPECULATION
        longest = speculation.longest if speculation.proposing_share > 0.0 else 0
        self._times = times
        self._slots = settings.slots
        self._step_tokens = settings.step_tokens
        self._queue_limit = -1 if settings.queue_limit is None else settings.queue_limit
        self._speculates = longest > 0
        self._k_at: list[int] = [speculation.k_at(batch) for batch in range(self._slots + 1)] if longest > 0 else []
        self._tax = 1.0 + speculation.zero_draft_tax
        self._blocks = Blocks(settings.kv_tokens, settings.block_tokens, 1 + longest)
        self._batch = Batch(speculation, longest, self._blocks, draw)
        self._waiting: deque[Sequence] = deque()
        self._prefilling: list[Sequence] = []
        self._held: list[Sequence] = []
        self._k = 0
        self._aborting = 0
        self._blocked = False  # who is next waits for blocks
        self._step_s = 0.0
        self._line = Line(0.0, 0.0, 1.0, 0.0, 0.0)  # of the last step, and what it is for
        self._line_decoding = 0
        self._line_drafting = 0
        self._line_k = 0
        self.stepping = False
        self.cached_tokens = 0
        self.steps = 0
        self.busy_s = 0.0
        self.prompt_tokens = 0
        self.generated_tokens = 0
        self.drafted = 0
        self.accepted = 0
        self.verify_steps = 0
        self.verified_tokens = 0
        self.preemptions = 0

    @property
    def running(self) -> int:
        """Sequences admitted, those whose prompt is still being processed and those held included."""
        return len(self._batch.sequences) + len(self._prefilling) + len(self._held)

    @property
    def waiting(self) -> int:
        """Sequences that wait for a slot or for room, those preempted included."""
        return len(self._waiting)

    @property
    def kv_use(self) -> float | None:
        """Share of the blocks that is given out, 0..1; ``None`` where the cache has no limit."""
        return self._blocks.use

    @property
    def accepted_per_position(self) -> list[int]:
        """By draft position, in how many verify steps it was accepted."""
        steps = [outcome.steps for outcome in self._batch.outcomes]
        return [sum(steps[position:]) for position in range(1, len(steps))]

    def sequences(self) -> list[Sequence]:
        """Those admitted and not held, oldest first, with their counts up to date."""
        self._batch.update()
        return self._batch.sequences + self._prefilling

    def fits(self, prompt_tokens: int, output_tokens: int) -> bool:
        """Whether the cache, empty, has room for a sequence to its end, with a draft."""
        return self._blocks.fits(prompt_tokens + output_tokens - 1)

    def submit(self, sequence: Sequence, now: float) -> bool:
        """Queue a sequence. False: refused, because it would never fit or because the queue is full. Those for whom the
        next step has a slot do not count there.
        """
        if self._queue_limit >= 0:
            blocked = self._blocked and len(self._waiting) > 0
            if len(self._waiting) >= self._queue_limit + (0 if blocked else self._slots - self.running):
                return False
        if not self.fits(sequence.prompt_tokens, sequence.output_tokens):
            return False
        sequence.submitted_at = now
        sequence.place = WAITING
        self._waiting.append(sequence)
        return True

    def abort(self, sequence: Sequence) -> bool:
        """Take a sequence away, wherever it is. False: it is not here any more. One that the running step works on
        keeps its slot and blocks until that ends.
        """
        if sequence.place == WAITING:
            self._waiting.remove(sequence)
            sequence.place = ELSEWHERE
            return True
        if sequence.place == HELD:
            self._held.remove(sequence)
            self._release(sequence)
            return True
        if sequence.place != RUNNING:
            return False
        sequence.place = ABORTED
        self._aborting += 1
        if not self.stepping:
            self._drop_aborted()
        return True

    def hold(self, sequence: Sequence) -> bool:
        """Let no step work on a sequence until `go_on`; it keeps its slot and blocks. False: it is not admitted, or it
        is held already. RuntimeError while a step runs.
        """
        self._require_no_step()
        if sequence.place != RUNNING:
            return False
        if sequence.prefilled < sequence.to_prefill:
            self._prefilling.remove(sequence)
        else:
            self._batch.update()
            self._batch.sequences.remove(sequence)
            self.cached_tokens -= sequence.context
        sequence.place = HELD
        self._held.append(sequence)
        return True

    def go_on(self, sequence: Sequence) -> bool:
        """End a `hold`; the sequence is the youngest now. False: it is not held. RuntimeError while a step runs."""
        self._require_no_step()
        if sequence.place != HELD:
            return False
        self._held.remove(sequence)
        sequence.place = RUNNING
        if sequence.prefilled < sequence.to_prefill:
            self._prefilling.append(sequence)
        else:
            self._batch.join(sequence)
            self.cached_tokens += sequence.context
        return True

    def begin_step(self, now: float) -> float:
        """Admit, plan and begin a step; returns when it ends, ``inf`` when there is nothing to do. RuntimeError while a
        step runs.
        """
        self._require_no_step()
        decoding = len(self._batch.sequences)
        tokens = decoding
        drafting = k = 0
        seconds = 0.0
        if decoding > 0:
            if self._speculates:
                k = self._k_at[decoding + len(self._prefilling)]
                if k > 0:
                    drafting = self._batch.plan(k, self._step_tokens - decoding)
                    tokens += drafting * k
                    if drafting == 0:
                        k = 0
            seconds = self._decode_s(decoding, drafting, k)
            if drafting == 0:
                seconds *= self._tax
        self._k = k
        if self._prefilling or self._waiting:
            seconds += self._plan_prompts(tokens, now)
        if decoding == 0 and not self._prefilling:
            return inf
        self.stepping = True
        self._step_s = seconds
        return now + seconds

    def end_step(self, now: float) -> list[Sequence]:
        """Apply the step that ends now; returns those that finished with it, oldest first. RuntimeError without one."""
        finished: list[Sequence] = []
        self._end(now, finished)
        self._batch.update()
        return finished

    def next_step(self, now: float, finished: list[Sequence]) -> float:
        """Apply the step that ends now and begin the next; returns when that ends, ``inf`` when there is nothing to do.
        ``finished`` gets those that finished, oldest first. Others' counts are behind until `sequences` is asked for.
        """
        self._end(now, finished)
        return self.begin_step(now)

    def _end(self, now: float, finished: list[Sequence]) -> None:
        if not self.stepping:
            raise RuntimeError("no step is running")
        self.stepping = False
        self.steps += 1
        self.busy_s += self._step_s
        if self._aborting > 0:
            self._drop_aborted()
        batch = self._batch
        decoding = len(batch.sequences)
        if decoding > 0:
            generated = batch.step(self._k)
            self.generated_tokens += generated
            self.cached_tokens += generated
            if self._k > 0:
                drafts = batch.drafts
                self.drafted += drafts * self._k
                self.accepted += generated - decoding
                self.verify_steps += drafts
                self.verified_tokens += drafts * (self._k + 1)
            if batch.finished:
                for sequence in batch.finished:
                    self._finish(sequence, now)
                    self.cached_tokens -= sequence.context
                finished.extend(batch.finished)
                batch.finished.clear()
        if self._prefilling:
            self._prefill(finished, now)
        if batch.short:
            batch.short = False
            self._make_room()

    def _require_no_step(self) -> None:
        if self.stepping:
            raise RuntimeError("a step is running already")

    def _decode_s(self, decoding: int, drafting: int, k: int) -> float:
        """What decoding takes. From one step to the next that is mostly on the same line."""
        tokens = self.cached_tokens / decoding
        line = self._line
        if (
            tokens >= line.high
            or tokens < line.low
            or decoding != self._line_decoding
            or drafting != self._line_drafting
            or k != self._line_k
        ):
            line = self._line = self._times.decode_line(decoding, drafting, k, tokens)
            self._line_decoding, self._line_drafting, self._line_k = decoding, drafting, k
        return line.seconds(tokens)

    def _plan_prompts(self, tokens_beside: int, now: float) -> float:
        """Chunks of prompts for the tokens that decodes leave, and admission; returns the seconds that they add."""
        budget = left = self._step_tokens - tokens_beside
        pairs = 0.0
        for sequence in self._prefilling:
            chunk = min(left, sequence.to_prefill - sequence.prefilled)
            sequence.chunk = chunk
            pairs += chunk * (sequence.prefilled + 0.5 * chunk)
            left -= chunk
        while left > 0 and self._waiting and self._admits(self._waiting[0]):
            sequence = self._waiting.popleft()
            sequence.place = RUNNING
            if isnan(sequence.admitted_at):
                sequence.admitted_at = now
            self._prefilling.append(sequence)
            chunk = min(left, sequence.to_prefill)
            sequence.chunk = chunk
            pairs += chunk * (0.5 * chunk)
            left -= chunk
        if left == budget:
            return 0.0
        return self._times.prefill_s(budget - left, pairs, tokens_beside, self._speculates)

    def _admits(self, sequence: Sequence) -> bool:
        """Whether there is a slot and room for the sequence, and if so, takes the room."""
        if self.running >= self._slots:
            return False
        sequence.to_prefill = sequence.prompt_tokens + sequence.emitted
        self._blocked = not self._blocks.take(sequence, sequence.to_prefill)
        return not self._blocked

    def _prefill(self, finished: list[Sequence], now: float) -> None:
        """Apply the chunks; a prompt that is complete gives a token at once. Those come first: chunks go by age."""
        complete = 0
        for sequence in self._prefilling:
            sequence.prefilled += sequence.chunk
            self.prompt_tokens += sequence.chunk
            sequence.chunk = 0
            if sequence.prefilled < sequence.to_prefill:
                continue
            complete += 1
            sequence.emitted += 1
            self.generated_tokens += 1
            if isnan(sequence.first_token_at):
                sequence.first_token_at = now
            if sequence.emitted == sequence.output_tokens:
                self._finish(sequence, now)
                finished.append(sequence)
            else:
                self._batch.join(sequence)
                self.cached_tokens += sequence.context
        if complete > 0:
            del self._prefilling[:complete]

    def _make_room(self) -> None:
        """Blocks for all that decode, the oldest first, from the latest: they compute theirs anew later."""
        batch, index = self._batch, 0
        batch.update()
        while index < len(batch.sequences):
            sequence = batch.sequences[index]
            while sequence.room < 0 and sequence.place == RUNNING and not self._blocks.grow(sequence, sequence.room):
                self._preempt()
            index += 1

    def _preempt(self) -> None:
        """Send the sequence that was admitted last back to the head of the queue."""
        if self._prefilling:
            sequence = self._prefilling.pop()
        else:
            sequence = self._batch.sequences.pop()
            self.cached_tokens -= sequence.context
        self._release(sequence)
        sequence.prefilled = 0
        sequence.preemptions += 1
        self.preemptions += 1
        sequence.place = WAITING
        self._waiting.appendleft(sequence)

    def _finish(self, sequence: Sequence, now: float) -> None:
        sequence.finished_at = now
        self._release(sequence)

    def _release(self, sequence: Sequence) -> None:
        sequence.place = ELSEWHERE
        self._blocks.give_back(sequence)

    def _drop_aborted(self) -> None:
        """Take out those aborted."""
        self._aborting = 0
        for sequence in self.sequences():
            if sequence.place == ABORTED:
                if sequence.prefilled == sequence.to_prefill:
                    self.cached_tokens -= sequence.context
                self._release(sequence)
        batch = self._batch
        batch.sequences = [sequence for sequence in batch.sequences if sequence.place == RUNNING]
        self._prefilling = [sequence for sequence in self._prefilling if sequence.place == RUNNING]
