"""What an emulated engine has counted since its start, or since its counters were reset."""

from __future__ import annotations

from dataclasses import dataclass, field

from slipstream.emulate.generation import Generation
from slipstream.emulate.histogram import Histogram
from slipstream.emulate.settings import NodeSettings

__all__ = ["Counters"]


@dataclass(slots=True)
class Counters:
    """Tokens, steps and requests. ``per_position[i]`` counts verify steps in which draft position ``i`` was accepted.

    ``at_request_end``: counts of tokens move only when a request ends, as in some engines. ``inter_step`` has one
    sample a step, ``inter_token`` one a token.
    """

    at_request_end: bool
    per_position: list[int]
    prompt_tokens: int = 0
    generated_tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    verify_steps: int = 0
    steps: int = 0
    preemptions: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    longest_sequence: int = 0
    stopped: int = 0
    cut: int = 0
    aborted: int = 0
    refused: int = 0
    first_token: Histogram = field(default_factory=Histogram)
    inter_step: Histogram = field(default_factory=Histogram)
    inter_token: Histogram = field(default_factory=Histogram)
    per_output_token: Histogram = field(default_factory=Histogram)
    end_to_end: Histogram = field(default_factory=Histogram)

    @classmethod
    def at_zero(cls, settings: NodeSettings, *, at_request_end: bool) -> Counters:
        return cls(at_request_end, [0] * settings.k if settings.speculator is not None else [])

    def verified(self, generation: Generation, drafted: int, accepted: int) -> None:
        """A verify step of one of its choices."""
        generation.drafted.append(drafted)
        generation.accepted.append(accepted)
        if not self.at_request_end:
            self._verified(drafted, accepted)

    def emitted(self, generation: Generation, tokens: int, now: float) -> None:
        """A step brought each choice so many ``tokens``, which are counted in the generation here."""
        generation.emitted += tokens
        if generation.last_step_at is None:
            generation.first_token_at = now
            if generation.request.inputs is None:
                self.first_token.observe(max(0.0, now - generation.received_at))
            if not self.at_request_end:
                self.prompt_tokens += generation.request.prompt_tokens
        else:
            gap = max(0.0, now - generation.last_step_at)
            self.inter_step.observe(gap)
            self.inter_token.observe(gap / tokens, tokens)
        generation.last_step_at = now
        if not self.at_request_end and generation.request.inputs is None:
            self.generated_tokens += tokens * generation.slots

    def finished(self, generation: Generation, now: float) -> None:
        """It has all its tokens."""
        if self.at_request_end:
            self._count_tokens(generation)
        if generation.stopped_by_itself:
            self.stopped += 1
        else:
            self.cut += 1
        self.end_to_end.observe(now - generation.received_at)
        if generation.emitted > 1:
            self.per_output_token.observe(generation.decode_s / (generation.emitted - 1))

    def left(self, generation: Generation, *, admitted: bool) -> None:
        """Its client is gone."""
        if admitted and self.at_request_end:
            self._count_tokens(generation)
        self.aborted += 1

    def _count_tokens(self, generation: Generation) -> None:
        """What an engine counts at the end of a request that counts nothing before."""
        self.prompt_tokens += generation.request.prompt_tokens
        self.generated_tokens += generation.told_tokens * generation.slots
        self.prefill_s += generation.prefill_s
        self.decode_s += generation.decode_s
        self.longest_sequence = max(self.longest_sequence, generation.request.prompt_tokens + generation.emitted)
        for drafted, accepted in zip(generation.drafted, generation.accepted, strict=True):
            self._verified(drafted, accepted)

    def _verified(self, drafted: int, accepted: int) -> None:
        self.verify_steps += 1
        self.drafted += drafted
        self.accepted += accepted
        for position in range(accepted):
            self.per_position[position] += 1
