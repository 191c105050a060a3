"""What one finished request says about acceptance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from slipstream.core.node import Speculator, SpeculatorKind

__all__ = ["SpeculationSample", "Steps", "always_proposes", "steps_of"]


@dataclass(slots=True, init=False)
class SpeculationSample:
    """The speculative statistics of one finished request, as its response gave them.

    ``drafted`` and ``accepted`` are tokens (a speculative node that leaves them out drafted 0). ``verify_steps`` is
    the number of steps that proposed anything, ``None`` where the engine does not say. ``output_tokens`` are all
    tokens of the response, ``None`` where unknown.

    It has an ``__init__`` of its own, since most responses make one (docs/decisions/0005). Nobody changes it.
    """

    drafted: int
    accepted: int
    verify_steps: int | None = None
    output_tokens: int | None = None

    def __init__(
        self, drafted: int, accepted: int, verify_steps: int | None = None, output_tokens: int | None = None
    ) -> None:
        self.drafted = drafted
        self.accepted = accepted
        self.verify_steps = verify_steps
        self.output_tokens = output_tokens


class Steps(NamedTuple):
    """The steps of one request: ``verify`` those that proposed something, ``decode`` all of them. Both 0 or more."""

    verify: float
    decode: float


def always_proposes(speculator: Speculator) -> bool:
    """True of draft models and heads; false of what drafts only when something matches."""
    return speculator.kind is SpeculatorKind.DRAFT


def steps_of(
    sample: SpeculationSample, speculator: Speculator, verify_steps_per_drafted: float | None = None
) -> Steps | None:
    """The steps behind a sample, or ``None`` when it can not be told, or when the sample is impossible.

    Verify steps that the engine left out are ``drafted`` × ``verify_steps_per_drafted`` (from the counters of the node
    that served the request; ``None`` before any were seen), else ``drafted / K`` of the speculator. Decode steps follow
    from what they emitted: each gives one token of its own beside the accepted ones, and the first token of a response
    comes from its prefill, so they are ``output_tokens − accepted − 1``. Without a token count they equal the verify
    steps, provided the speculator proposes in every step.
    """
    drafted, accepted = sample.drafted, sample.accepted
    if not 0 <= accepted <= drafted:
        return None
    verify: float | None = sample.verify_steps
    if drafted == 0:
        verify = 0.0
    elif verify is None:
        if verify_steps_per_drafted is not None:
            verify = drafted * verify_steps_per_drafted
        elif speculator.k:
            verify = drafted / speculator.k
        else:
            return None
    elif verify <= 0.0:
        return None
    if sample.output_tokens is not None:
        # A stop inside an accepted draft cuts the output short, so the tokens alone could show too few steps.
        return Steps(verify, max(verify, sample.output_tokens - accepted - 1.0))
    return Steps(verify, verify) if always_proposes(speculator) else None
