"""What an emulated engine has counted since its start, or since its counters were reset."""

from __future__ import annotations

from dataclasses import dataclass, field

from slipstream.emulate.histogram import Histogram

__all__ = ["Counters"]


@dataclass(slots=True)
class Counters:
    """Tokens, steps and requests. ``per_position[i]`` counts verify steps in which draft position ``i`` was accepted.

    ``inter_step`` has one sample a step, ``inter_token`` one a token.
    """

    prompt_tokens: int = 0
    generated_tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    verify_steps: int = 0
    per_position: list[int] = field(default_factory=list)
    steps: int = 0
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

    def verified(self, drafted: int, accepted: int) -> None:
        """Count a verify step."""
        self.verify_steps += 1
        self.drafted += drafted
        self.accepted += accepted
        if len(self.per_position) < drafted:
            self.per_position += [0] * (drafted - len(self.per_position))
        for position in range(accepted):
            self.per_position[position] += 1
