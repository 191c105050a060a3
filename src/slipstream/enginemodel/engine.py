"""An engine, step after step: admission, prompts in chunks, drafting, verification, and what if room runs out.

A step is planned by `Engine.begin_step` and takes effect in `Engine.end_step`; between the two only `submit` and
`abort` may be called, which touch nothing that runs. What is modelled and what is not:
docs/explanation/engine-model.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf, isnan
from typing import Final

from slipstream.enginemodel.account import alphas_kept
from slipstream.enginemodel.blocks import Blocks
from slipstream.enginemodel.sequence import ABORTED, ELSEWHERE, HELD, RUNNING, WAITING, Sequence
from slipstream.enginemodel.settings import Account, EngineSettings, Speculation
from slipstream.enginemodel.step_times import StepTimes

__all__ = ["RECENT_STEPS", "Engine"]

RECENT_STEPS: Final = 16
"""Verify steps after which a sequence is judged by `Speculation.drop_below`, and then by the next so many."""

_NO_SPECULATION: Final = Speculation(k=0, zero_draft_tax=0.0)


class Engine:
    """``times`` is what steps take; ``draw`` gives uniform numbers of 0..1, one a verify step and sequence, and one
    more a step and sequence where not all propose.

    ``stepping``: a step has begun and not ended. ``cached_tokens``: those of the sequences that answer. Counters, from
    the start on: ``steps`` and the ``busy_s`` seconds that they took; ``prompt_tokens`` processed, those recomputed
    after a preemption included; ``generated_tokens`` emitted; ``drafted`` and ``accepted`` tokens; ``verify_steps``,
    one a sequence and step with a draft, and ``verified_tokens``, their query tokens (K + 1 each); ``preemptions``.
    """

    __slots__ = (
        "_aborting",
        "_accepting",
        "_blocked",
        "_blocks",
        "_decoding",
        "_draw",
        "_drop_below",
        "_everyone",
        "_falls",
        "_held",
        "_k",
        "_k_at",
        "_prefilling",
        "_queue_limit",
        "_share",
        "_short",
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
        self._draw = draw
        self._slots = settings.slots
        self._step_tokens = settings.step_tokens
        self._queue_limit = -1 if settings.queue_limit is None else settings.queue_limit
        self._speculates = longest > 0
        self._k_at: list[int] = [speculation.k_at(batch) for batch in range(self._slots + 1)] if longest > 0 else []
        self._share = speculation.proposing_share
        self._drop_below = 0.0 if speculation.drop_below is None else speculation.drop_below
        self._tax = 1.0 + speculation.zero_draft_tax
        self._falls = speculation.account is Account.FIRST_ARTICLE
        self._blocks = Blocks(settings.kv_tokens, settings.block_tokens, 1 + longest)
        self._waiting: deque[Sequence] = deque()
        self._decoding: list[Sequence] = []
        self._prefilling: list[Sequence] = []
        self._held: list[Sequence] = []
        self._k = 0
        self._everyone = True
        self._aborting = 0
        self._blocked = False  # who is next waits for blocks
        self._short = False  # somebody who decodes does
        self._step_s = 0.0
        self._accepting: list[int] = [0] * (longest + 1)  # verify steps by the number of tokens accepted
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
        return len(self._decoding) + len(self._prefilling) + len(self._held)

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
        steps = self._accepting
        return [sum(steps[position:]) for position in range(1, len(steps))]

    def sequences(self) -> list[Sequence]:
        """Those admitted and not held, oldest first."""
        return self._decoding + self._prefilling

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
            self._decoding.remove(sequence)
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
            self._decoding.append(sequence)
            self.cached_tokens += sequence.context
        return True

    def begin_step(self, now: float) -> float:
        """Admit, plan and begin a step; returns when it ends, ``inf`` when there is nothing to do. RuntimeError while a
        step runs.
        """
        self._require_no_step()
        decoding = len(self._decoding)
        tokens = decoding
        drafting = k = 0
        if self._speculates and decoding > 0:
            k = self._k_at[decoding + len(self._prefilling)]
            if k > 0:
                drafting = self._plan_drafts(k)
                tokens += drafting * k
        self._k = k if drafting > 0 else 0
        seconds = self._times.decode_s(decoding, drafting, self._k, self.cached_tokens)
        if drafting == 0:
            seconds *= self._tax
        if self._prefilling or self._waiting:
            seconds += self._plan_prompts(tokens, now)
        if decoding == 0 and not self._prefilling:
            return inf
        self.stepping = True
        self._step_s = seconds
        return now + seconds

    def end_step(self, now: float) -> list[Sequence]:
        """Apply the step that ends now; returns those that finished with it, oldest first. RuntimeError without one."""
        if not self.stepping:
            raise RuntimeError("no step is running")
        self.stepping = False
        self.steps += 1
        self.busy_s += self._step_s
        if self._aborting > 0:
            self._drop_aborted()
        finished: list[Sequence] = []
        if self._decoding:
            self._decode(finished, now)
        if self._prefilling:
            self._prefill(finished, now)
        if self._short:
            self._short = False
            self._make_room()
        return finished

    def _require_no_step(self) -> None:
        if self.stepping:
            raise RuntimeError("a step is running already")

    def _plan_drafts(self, k: int) -> int:
        """Who drafts ``k`` tokens in this step, the oldest first as far as the step's tokens go; returns how many."""
        decoding = self._decoding
        budget = (self._step_tokens - len(decoding)) // k
        self._everyone = self._share >= 1.0 and self._drop_below == 0.0 and budget >= len(decoding)
        if self._everyone:
            return len(decoding)
        draw, share = self._draw, self._share
        drafting = 0
        for sequence in decoding:
            proposes = not sequence.dropped and (share >= 1.0 or draw() < share)
            sequence.drafting = proposes and drafting < budget
            if sequence.drafting:
                drafting += 1
        return drafting

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

    def _decode(self, finished: list[Sequence], now: float) -> None:
        """A token for every sequence that decodes, and what is accepted of its draft."""
        decoding, draw, accepting, k = self._decoding, self._draw, self._accepting, self._k
        everyone, drops = self._everyone, self._drop_below > 0.0
        falls = k > 0 and self._falls
        kept = alphas_kept(decoding, self.kv_use) if falls else []
        generated = drafting = all_accepted = index = 0
        for sequence in decoding:
            left = sequence.output_tokens - sequence.emitted
            count = 1
            if k > 0 and (everyone or sequence.drafting):
                u = draw()
                survival = sequence.survival
                most = len(survival)
                if most > k:
                    most = k
                if most >= left:
                    most = left - 1
                accepted = 0
                if falls:
                    alpha = kept[index]
                    scale = alpha
                    while accepted < most and survival[accepted] * scale > u:
                        accepted += 1
                        scale *= alpha
                else:
                    while accepted < most and survival[accepted] > u:
                        accepted += 1
                sequence.drafted += k
                sequence.accepted += accepted
                sequence.verify_steps += 1
                accepting[accepted] = accepting[accepted] + 1
                drafting += 1
                all_accepted += accepted
                count += accepted
                if drops:
                    self._judge(sequence, accepted)
            index += 1
            sequence.steps += 1
            sequence.emitted += count
            generated += count
            if count == left:
                finished.append(sequence)
                continue
            room = sequence.room - count
            sequence.room = room
            if room < 0 and not self._blocks.grow(sequence):
                self._short = True
        self.generated_tokens += generated
        self.cached_tokens += generated
        self.drafted += drafting * k
        self.accepted += all_accepted
        self.verify_steps += drafting
        self.verified_tokens += drafting * (k + 1)
        if finished:
            for sequence in finished:
                self._finish(sequence, now)
                self.cached_tokens -= sequence.context
            self._decoding = [sequence for sequence in decoding if sequence.place == RUNNING]

    def _judge(self, sequence: Sequence, accepted: int) -> None:
        """Drop a sequence whose mean acceptance length over its last steps is too low."""
        sequence.recent_accepted += accepted
        sequence.recent_steps += 1
        if sequence.recent_steps == RECENT_STEPS:
            sequence.dropped = 1.0 + sequence.recent_accepted / RECENT_STEPS < self._drop_below
            sequence.recent_steps = sequence.recent_accepted = 0

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
                self._decoding.append(sequence)
                self.cached_tokens += sequence.context
        if complete > 0:
            del self._prefilling[:complete]

    def _make_room(self) -> None:
        """Blocks for all that decode, the oldest first, from the latest: they compute theirs anew later."""
        index = 0
        while index < len(self._decoding):
            sequence = self._decoding[index]
            while sequence.room < 0 and sequence.place == RUNNING and not self._blocks.grow(sequence):
                self._preempt()
            index += 1

    def _preempt(self) -> None:
        """Send the sequence that was admitted last back to the head of the queue."""
        if self._prefilling:
            sequence = self._prefilling.pop()
        else:
            sequence = self._decoding.pop()
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
        for sequence in self._decoding:
            if sequence.place == ABORTED:
                self.cached_tokens -= sequence.context
        for sequence in self.sequences():
            if sequence.place == ABORTED:
                self._release(sequence)
        self._decoding = [sequence for sequence in self._decoding if sequence.place == RUNNING]
        self._prefilling = [sequence for sequence in self._prefilling if sequence.place == RUNNING]
