"""What a step takes, looked up: a simulator asks a million times a second, and a cost model answers in arrays.

A cost model gives rows: times at contexts (or prompt lengths) of 0, 1, 2, 4, … tokens. Between two of them time is a
straight line, which is exact wherever keys and values are read at one rate.
"""

from __future__ import annotations

from math import inf
from typing import Final, Protocol

__all__ = ["KNOTS", "Line", "StepRows", "StepTimes"]

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


class Line:
    """A row from one entry to the next: seconds by the mean of cached tokens, ``low`` to ``high`` (not included)."""

    __slots__ = ("_rise", "_span", "_start", "high", "low")

    def __init__(self, low: float, high: float, span: float, start: float, end: float) -> None:
        """``start`` at ``low``, ``end`` at ``span`` tokens more."""
        self.low = low
        self.high = high
        self._span = span
        self._start = start
        self._rise = end - start

    def seconds(self, tokens: float) -> float:
        """On the line."""
        return self._start + self._rise * ((tokens - self.low) / self._span)


class StepTimes:
    """The rows of one engine, each asked for once."""

    __slots__ = ("_decode", "_drafter", "_pair_s", "_prefill", "_rows")

    def __init__(self, rows: StepRows) -> None:
        self._rows = rows
        self._decode: dict[int, list[Line]] = {}
        self._prefill: dict[int, tuple[float, ...]] = {}
        self._drafter: tuple[float, ...] | None = None
        self._pair_s: float = rows.pair_s

    def decode_line(self, decoding: int, drafting: int, k: int, tokens: float) -> Line:
        """Steps of ``decoding`` sequences, at least 1, with ``tokens`` cached each on average, ``drafting`` of which
        draft ``k``: where on its row that is.
        """
        key = (decoding << 32) | (drafting << 8) | k
        lines = self._decode.get(key)
        if lines is None:
            lines = self._decode[key] = _lines(self._rows.decode_row(decoding, drafting, k))
        return lines[min(int(tokens).bit_length(), len(lines) - 1)]

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


def _lines(row: tuple[float, ...]) -> list[Line]:
    """Those between its entries; the last goes on beyond."""
    last = len(row) - 2
    lines: list[Line] = []
    for left in range(last + 1):
        low, high = float(KNOTS[left]), float(KNOTS[left + 1])
        lines.append(Line(low, inf if left == last else high, high - low, row[left], row[left + 1]))
    return lines


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
