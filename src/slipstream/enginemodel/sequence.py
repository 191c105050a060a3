"""One sequence in an engine: what it asks for, and how far it has come."""

from __future__ import annotations

from typing import Final

__all__ = ["ABORTED", "ELSEWHERE", "HELD", "RUNNING", "WAITING", "Sequence"]

ELSEWHERE: Final = 0
WAITING: Final = 1
RUNNING: Final = 2
ABORTED: Final = 3
"""It leaves with the step that runs."""
HELD: Final = 4
"""It has a slot, and no step works on it."""

_NOT_YET: Final = float("nan")


class Sequence:
    """A prompt of ``prompt_tokens`` that will be answered with ``output_tokens``, both at least 1 (ValueError).

    ``survival[i]`` is the chance that draft position i + 1 is accepted; positions beyond it never are. ``number`` and
    ``owner`` are for whoever made it.

    An engine keeps the rest. Tokens: ``prefilled`` of the prompt (and of what had been emitted before a preemption),
    ``emitted``, ``drafted``, ``accepted``. Steps: ``steps`` in which it was decoded, ``verify_steps`` in which it had a
    draft. ``preemptions``: how often it lost its cache. Times are the engine's ``now`` in seconds, NaN = not yet;
    ``admitted_at`` is the first admission.
    """

    __slots__ = (
        "accepted",
        "admitted_at",
        "ahead",
        "blocks",
        "chunk",
        "counted_ahead",
        "counted_drafted",
        "counted_steps",
        "counted_verify_steps",
        "drafted",
        "drafting",
        "dropped",
        "emitted",
        "finished_at",
        "first_token_at",
        "number",
        "output_tokens",
        "owner",
        "place",
        "preemptions",
        "prefilled",
        "prompt_tokens",
        "recent_accepted",
        "recent_steps",
        "room",
        "steps",
        "submitted_at",
        "survival",
        "to_prefill",
        "verify_steps",
    )

    def __init__(
        self,
        number: int,
        prompt_tokens: int,
        output_tokens: int,
        survival: tuple[float, ...],
        owner: object = None,
    ) -> None:
        if prompt_tokens < 1 or output_tokens < 1:
            raise ValueError(f"a prompt and its answer have a token at least, not {prompt_tokens} and {output_tokens}")
        self.number = number
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.survival = survival
        self.owner = owner
        self.prefilled = 0
        self.emitted = 0
        self.drafted = 0
        self.accepted = 0
        self.verify_steps = 0
        self.steps = 0
        self.preemptions = 0
        self.submitted_at = _NOT_YET
        self.admitted_at = _NOT_YET
        self.first_token_at = _NOT_YET
        self.finished_at = _NOT_YET
        # The engine's own: where it is, what the running step does with it, its blocks and the tokens left in them.
        self.place = ELSEWHERE
        self.to_prefill = prompt_tokens
        self.chunk = 0
        self.drafting = False
        self.dropped = False
        self.recent_steps = 0
        self.recent_accepted = 0
        self.blocks = 0
        self.room = 0
        # The batch's own: tokens it may get before it is due, and what was counted when the counts above were right.
        self.ahead = 0
        self.counted_ahead = 0
        self.counted_steps = 0
        self.counted_verify_steps = 0
        self.counted_drafted = 0

    @property
    def context(self) -> int:
        """Tokens in the cache: those processed. The last one emitted is not among them yet."""
        if self.prefilled < self.to_prefill:
            return self.prefilled
        return self.prompt_tokens + self.emitted - 1
