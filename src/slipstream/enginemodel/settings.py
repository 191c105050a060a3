"""What an engine is set up with: how much it runs at once, and how it speculates."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from slipstream.core.errors import SlipstreamError

__all__ = ["Account", "EngineSettings", "ImpossibleEngine", "Speculation"]


class ImpossibleEngine(SlipstreamError):
    """An engine is described in a way that can not be."""


class Account(StrEnum):
    """How acceptance goes with load: two accounts, to be compared."""

    INDEPENDENT = "independent"
    """Acceptance does not depend on the batch: what published measurements show."""
    FIRST_ARTICLE = "first-article"
    """Acceptance falls with the batch, with mixed lengths and as the drafter's cache is evicted: what the first of
    Slipstream's sources reports of its own fleet."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """How an engine speculates. An engine without any is a standard one, and dearer settings are never free: where a
    step drafts nothing it still costs ``zero_draft_tax`` (a share) more than a standard engine's.

    ``k`` tokens are drafted a verify step, by a share ``proposing_share`` (0..1) of the running sequences: 1 for draft
    models and heads. ``schedule``: pairs (batch size, K), rising: up to that many running sequences draft K tokens, and
    above the last pair nothing is drafted; empty = ``k`` at every batch size. ``drop_below``: a sequence whose recent
    mean acceptance length is below it drafts no more, ``None`` = none is dropped.
    """

    k: int = 4
    proposing_share: float = 1.0
    schedule: tuple[tuple[int, int], ...] = ()
    drop_below: float | None = None
    zero_draft_tax: float = 0.12
    account: Account = Account.INDEPENDENT

    def __post_init__(self) -> None:
        if not 0 <= self.k <= 64:
            raise ImpossibleEngine(f"a draft has 0 to 64 tokens, not {self.k}")
        if not 0.0 <= self.proposing_share <= 1.0:
            raise ImpossibleEngine(f"the share of sequences that propose is 0..1, not {self.proposing_share:g}")
        if not 0.0 <= self.zero_draft_tax <= 1.0:
            raise ImpossibleEngine(f"what drafting nothing costs is a share, 0..1, not {self.zero_draft_tax:g}")
        if self.drop_below is not None and not self.drop_below >= 1.0:
            raise ImpossibleEngine(f"a mean acceptance length is at least 1, not {self.drop_below:g}")
        sizes = [size for size, _ in self.schedule]
        if sizes != sorted(set(sizes)) or any(size < 1 or not 0 <= k <= 64 for size, k in self.schedule):
            raise ImpossibleEngine(
                "a schedule has batch sizes that rise, from 1 on, each with a draft of 0 to 64 tokens"
            )

    @property
    def longest(self) -> int:
        """The longest draft that any batch size gets."""
        return max((k for _, k in self.schedule), default=self.k)

    def k_at(self, batch_size: int) -> int:
        """Tokens drafted for each sequence of a batch of that size."""
        if not self.schedule:
            return self.k
        return next((k for size, k in self.schedule if batch_size <= size), 0)


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How much an engine runs at once.

    ``slots`` sequences run at once at most; others wait. ``kv_tokens`` is the room for keys and values in tokens over
    all sequences, target's and drafter's together counted once a token, ``None`` = no limit but the slots; it is given
    out in blocks of ``block_tokens``. ``step_tokens``: a step processes at most so many tokens, prompts in chunks;
    decodes come first. ``queue_limit``: sequences that may wait, more are refused; ``None`` = any number.
    ``speculation`` ``None`` = a standard engine.
    """

    slots: int = 256
    kv_tokens: int | None = None
    block_tokens: int = 16
    step_tokens: int = 8192
    queue_limit: int | None = None
    speculation: Speculation | None = None

    def __post_init__(self) -> None:
        for name in ("slots", "block_tokens", "step_tokens"):
            if getattr(self, name) < 1:
                raise ImpossibleEngine(f"an engine's {name} must be at least 1, not {getattr(self, name)}")
        if self.kv_tokens is not None and self.kv_tokens < self.block_tokens:
            raise ImpossibleEngine(f"an engine's cache holds at least a block of tokens, not {self.kv_tokens}")
        if self.queue_limit is not None and self.queue_limit < 0:
            raise ImpossibleEngine(f"an engine's queue_limit must not be negative, not {self.queue_limit}")
