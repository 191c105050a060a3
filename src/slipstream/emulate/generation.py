"""One request at the emulated engine, while it is worked on."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from slipstream.emulate.request import Completion

__all__ = ["Generation"]


@dataclass(slots=True, eq=False)
class Generation:
    """What was asked for, and how far it is. ``emitted`` tokens of ``output_tokens`` are written, of each choice.

    ``chance`` is the request's own source of it. ``drafted`` and ``accepted`` hold a number for each verify step of
    each choice. ``slots`` are taken while it runs, one a choice. Times are the clock's seconds; ``None`` = not yet.
    """

    request: Completion
    id: str
    model: str
    created: int
    category: str
    output_tokens: int
    stopped_by_itself: bool
    slots: int
    k: int | None
    chance: Random
    received_at: float
    emitted: int = 0
    drafted: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    admitted_at: float | None = None
    first_token_at: float | None = None
    last_step_at: float | None = None

    @property
    def finished(self) -> bool:
        return self.emitted >= self.output_tokens

    @property
    def told_tokens(self) -> int:
        """Those of ``emitted`` that count: where nothing is decoded, the one of the only step is nobody's."""
        return self.emitted if self.request.inputs is None else 0

    @property
    def finish_reason(self) -> str | None:
        if not self.finished:
            return None
        return "stop" if self.stopped_by_itself else "length"

    @property
    def prefill_s(self) -> float:
        """From its slot to the first token; 0 before there is one."""
        if self.first_token_at is None or self.admitted_at is None:
            return 0.0
        return self.first_token_at - self.admitted_at

    @property
    def decode_s(self) -> float:
        """From the first token to the last so far."""
        if self.first_token_at is None or self.last_step_at is None:
            return 0.0
        return self.last_step_at - self.first_token_at
