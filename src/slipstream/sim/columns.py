"""What came of each request, written when it has ended: a row of sixty bytes for each."""

from __future__ import annotations

from struct import Struct
from typing import Final

from slipstream.sim.fate import Fate

__all__ = ["FIELDS", "Columns"]

FIELDS: Final = (
    ("queued_s", "d"),
    ("engine_wait_s", "d"),
    ("first_token_s", "d"),
    ("ended_s", "d"),
    ("drafted", "i"),
    ("accepted", "i"),
    ("verify_steps", "i"),
    ("steps", "i"),
    ("node", "h"),
    ("attempts", "h"),
    ("reason", "b"),
    ("fate", "b"),
)
"""Names, which `slipstream.sim.run.Run` explains, and how each is packed."""

_ROW: Final = Struct("=" + "".join([code for _, code in FIELDS]) + "xx")
_NOT_YET: Final = float("nan")


class Columns:
    """``rows``: the fields of each request one after the other, and two bytes that keep the next one's in line."""

    __slots__ = ("_pack_into", "rows")

    def __init__(self, requests: int) -> None:
        unfinished = _ROW.pack(0.0, _NOT_YET, _NOT_YET, _NOT_YET, 0, 0, 0, 0, -1, 0, -1, int(Fate.UNFINISHED))
        self.rows = bytearray(unfinished * requests)
        self._pack_into = _ROW.pack_into

    def put(
        self,
        row: int,
        queued_s: float,
        engine_wait_s: float,
        first_token_s: float,
        ended_s: float,
        drafted: int,
        accepted: int,
        verify_steps: int,
        steps: int,
        node: int,
        attempts: int,
        reason: int,
        fate: int,
    ) -> None:
        """Write a request's row."""
        self._pack_into(
            self.rows,
            row * _ROW.size,
            queued_s,
            engine_wait_s,
            first_token_s,
            ended_s,
            drafted,
            accepted,
            verify_steps,
            steps,
            node,
            attempts,
            reason,
            fate,
        )
