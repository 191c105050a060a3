"""What a step takes, looked up: a simulator asks a million times a second, and a cost model answers in arrays.

A cost model gives rows: times at contexts (or prompt lengths) of 0, 1, 2, 4, … tokens. Between two of them time is a
straight line, which is exact wherever keys and values are read at one rate.
"""

from __future__ import annotations

from typing import Final, Protocol

__all__ = ["KNOTS", "StepRows", "StepTimes"]

KNOTS: Final = (0, *(1 << power for power in range(22)))
"""The token counts that a row has times for."""


class StepRows(Protocol):
    """A cost model of single steps. Rows have as many entries as `KNOTS`; times are seconds."""

    @property
    def pair_s(self) -> float:
        """Arithmetic of attention for one prompt token and one cached token that it sees; 0 where not modelled."""

    def decode_row(self, decoding: int, drafting: int, k: int) -> tuple[float, ...]:
        """A step of ``decoding`` sequences (at least 1), by the mean of their cached tokens: ``drafting`` of them have
        ``k`` tokens drafted and verified. With ``drafting`` 0 it is a standard engine's step.
        """

    def prefill_row(self, tokens_beside: int) -> tuple[float, ...]:
        """What prompt tokens add to a step that has ``tokens_beside`` other query tokens, by their number. Beside none
        it is the whole step.
        """

    def drafter_prefill_row(self) -> tuple[float, ...]:
        """What the drafter's pass over prompt tokens adds, by their number; zeros without one."""


class StepTimes:
    """The rows of one engine, each asked for once."""

    __slots__ = ("_decode", "_drafter", "_pair_s", "_prefill", "_rows")

    def __init__(self, rows: StepRows) -> None:
        self._rows = rows
        self._decode: dict[int, tuple[float, ...]] = {}
        self._prefill: dict[int, tuple[float, ...]] = {}
        self._drafter: tuple[float, ...] | None = None
        self._pair_s: float = rows.pair_s

    def decode_s(self, decoding: int, drafting: int, k: int, cached_tokens: int) -> float:
        """A step of ``decoding`` sequences with ``cached_tokens`` in all, ``drafting`` of which draft ``k``."""
        if decoding == 0:
            return 0.0
        key = (decoding << 32) | (drafting << 8) | k
        row = self._decode.get(key)
        if row is None:
            row = self._decode[key] = self._rows.decode_row(decoding, drafting, k)
        return at(row, cached_tokens / decoding)

    def prefill_s(self, prompt_tokens: int, pairs: float, tokens_beside: int, drafter: bool) -> float:  # noqa: FBT001 - positional is cheaper
        """What ``prompt_tokens``, of one prompt or several, add to a step: ``pairs`` are a prompt token and a token
        before it in its own prompt, ``tokens_beside`` the step's other query tokens. ``drafter``: it has them too.
        """
        row = self._prefill.get(tokens_beside)
        if row is None:
            row = self._prefill[tokens_beside] = self._rows.prefill_row(tokens_beside)
        seconds = at(row, prompt_tokens) + self._pair_s * pairs
        if drafter:
            if self._drafter is None:
                self._drafter = self._rows.drafter_prefill_row()
            seconds += at(self._drafter, prompt_tokens)
        return seconds


def at(row: tuple[float, ...], tokens: float) -> float:
    """A row's time at ``tokens``, 0 or more: on the line between two entries, and on the last line beyond."""
    whole = int(tokens)
    if whole == 0:
        return row[0] + (row[1] - row[0]) * tokens
    left = whole.bit_length()
    if left > len(row) - 2:
        left = len(row) - 2
    low, high = KNOTS[left], KNOTS[left + 1]
    return row[left] + (row[left + 1] - row[left]) * ((tokens - low) / (high - low))
