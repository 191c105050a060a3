"""When the steps of a request come, and what each drafts and has accepted: the seam to a model of an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from slipstream.emulate.alphas import accepted_tokens
from slipstream.emulate.settings import NodeSettings

__all__ = ["Job", "Pacing", "Step", "constant_pacing"]


@dataclass(frozen=True, slots=True)
class Job:
    """What pacing may know of a request: tokens in and out, and the source of its chance."""

    category: str
    prompt_tokens: int
    output_tokens: int
    chance: Random


class Step(NamedTuple):
    """A step, ``after_s`` seconds after the one before it; the first counts from when the request got its slot.

    It emits one token and the ``accepted`` of ``drafted``, as far as the output goes on.
    """

    after_s: float
    drafted: int = 0
    accepted: int = 0


Pacing = Callable[[Job], Iterator[Step]]
"""The steps of a request, endless. Each is asked for when the one before is done, so it may depend on the load then."""


def constant_pacing(settings: NodeSettings, *, drafts_fit_output: bool) -> Pacing:
    """The same time for every step, whatever the load. The first is the prefill: it emits a token and drafts nothing.

    ``drafts_fit_output``: no draft is longer than what may still be emitted; else the last one may be cut by the end.
    """
    share = settings.share_proposing

    def steps(job: Job) -> Iterator[Step]:
        chance = job.chance
        alpha = settings.alphas.draw(job.category, chance)
        yield Step(settings.ttft_s)
        left = job.output_tokens - 1
        while True:
            drafted = settings.k if share and chance.random() < share else 0
            if drafts_fit_output:
                drafted = max(0, min(drafted, left - 1))
            accepted = accepted_tokens(alpha, drafted, chance)
            left -= accepted + 1
            yield Step(settings.step_s, drafted, accepted)

    return steps
