"""Step times made of a few constants, and engines driven to the end of what they have."""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import isinf

from slipstream.enginemodel.engine import Engine
from slipstream.enginemodel.sequence import Sequence
from slipstream.enginemodel.settings import EngineSettings
from slipstream.enginemodel.step_times import KNOTS, StepTimes

SURVIVAL = (0.72, 0.5184, 0.373248, 0.26873856)


@dataclass(frozen=True)
class MadeSteps:
    """Seconds: ``step_s`` a step, and more for each sequence, drafted token, cached token and prompt token in it."""

    step_s: float = 0.01
    sequence_s: float = 0.0
    draft_token_s: float = 0.0
    cached_token_s: float = 0.0
    prompt_token_s: float = 0.0
    drafter_prompt_token_s: float = 0.0
    pair_s: float = 0.0

    def decode_row(self, decoding: int, drafting: int, k: int) -> tuple[float, ...]:
        flat = self.step_s + self.sequence_s * decoding + self.draft_token_s * drafting * k
        return tuple(flat + self.cached_token_s * decoding * tokens for tokens in KNOTS)

    def prefill_row(self, tokens_beside: int) -> tuple[float, ...]:
        flat = self.step_s if tokens_beside == 0 else 0.0
        return tuple(flat + self.prompt_token_s * tokens for tokens in KNOTS)

    def drafter_prefill_row(self) -> tuple[float, ...]:
        return tuple(self.drafter_prompt_token_s * tokens for tokens in KNOTS)


def engine(settings: EngineSettings | None = None, rows: MadeSteps | None = None, seed: int = 1) -> Engine:
    return Engine(settings or EngineSettings(), StepTimes(rows or MadeSteps()), random.Random(seed).random)


def sequence(
    prompt_tokens: int = 10, output_tokens: int = 10, survival: tuple[float, ...] = SURVIVAL, number: int = 0
) -> Sequence:
    return Sequence(number, prompt_tokens, output_tokens, survival)


def step(run: Engine, now: float) -> tuple[float, list[Sequence]]:
    """One step, which there must be: when it ended and what finished with it."""
    end = run.begin_step(now)
    assert not isinf(end)
    return end, run.end_step(end)


def run_out(run: Engine, now: float = 0.0) -> list[Sequence]:
    """Step until there is nothing to do; what finished, in that order."""
    finished: list[Sequence] = []
    while not isinf(end := run.begin_step(now)):
        now = end
        finished += run.end_step(now)
    return finished
