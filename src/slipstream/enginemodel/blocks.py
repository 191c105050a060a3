"""Room for keys and values, given out in blocks of tokens."""

from __future__ import annotations

from typing import Final

from slipstream.enginemodel.sequence import Sequence

__all__ = ["Blocks"]

_ENDLESS: Final = 1 << 60


class Blocks:
    """Blocks of ``block_tokens`` for ``kv_tokens`` in all, ``None`` = any number. A sequence is given room for
    ``reserve`` tokens more than it has cached: what its next step may add, whatever of its draft is accepted. Its
    ``room`` is what is left in its blocks beyond that, below 0 when it is short of a block.
    """

    __slots__ = ("_block_tokens", "_free", "_reserve", "_total")

    def __init__(self, kv_tokens: int | None, block_tokens: int, reserve: int) -> None:
        self._block_tokens = block_tokens
        self._reserve = reserve
        self._total = -1 if kv_tokens is None else kv_tokens // block_tokens
        self._free = self._total

    @property
    def use(self) -> float | None:
        """Share of the blocks that is given out, 0..1; ``None`` without a limit."""
        if self._total < 0:
            return None
        return 1.0 - self._free / self._total

    def fits(self, tokens: int) -> bool:
        """Whether there is room for so many cached tokens when nobody else has any."""
        return self._total < 0 or self._blocks_of(tokens) <= self._total

    def take(self, sequence: Sequence, tokens: int) -> bool:
        """Give the sequence, which has none, room for so many cached tokens, if there is so much."""
        if self._total < 0:
            sequence.room = _ENDLESS
            return True
        blocks = self._blocks_of(tokens)
        if blocks > self._free:
            return False
        self._free -= blocks
        sequence.blocks = blocks
        sequence.room = blocks * self._block_tokens - tokens - self._reserve
        return True

    def grow(self, sequence: Sequence, room: int) -> bool:
        """Give the sequence the blocks that it is short of, if there are so many. ``room`` is what it has now, below 0:
        its own account of it may be behind.
        """
        blocks = (self._block_tokens - 1 - room) // self._block_tokens
        if blocks > self._free:
            return False
        self._free -= blocks
        sequence.blocks += blocks
        sequence.room += blocks * self._block_tokens
        return True

    def give_back(self, sequence: Sequence) -> None:
        """Take all that the sequence has."""
        self._free += sequence.blocks
        sequence.blocks = 0

    def _blocks_of(self, tokens: int) -> int:
        return (tokens + self._reserve + self._block_tokens - 1) // self._block_tokens
