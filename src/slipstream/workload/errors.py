"""What can not arrive, and what can not be read, said in a sentence."""

from __future__ import annotations

from pathlib import Path

from slipstream.core.errors import SlipstreamError

__all__ = ["ImpossibleWorkload", "TraceUnreadable"]


class ImpossibleWorkload(SlipstreamError):
    """Traffic is described in a way that can not be."""


class TraceUnreadable(SlipstreamError):
    """A trace can not be read, or a line in it is none. ``line`` counts from 1, ``None`` = the file as a whole."""

    def __init__(self, file: Path, line: int | None, reason: str) -> None:
        super().__init__(f"{file}: {reason}" if line is None else f"{file}:{line}: {reason}")
        self.file = file
        self.line = line
        self.reason = reason
