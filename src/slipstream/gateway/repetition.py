"""Heads that repeat: on a kept-alive connection a head often differs from the one before it in its length only."""

from __future__ import annotations

from typing import Final

__all__ = ["RepeatedHead", "head_to_repeat"]

MAX_HEAD_BYTES: Final = 4096
"""Longer heads are not remembered."""

_LENGTH: Final = b"\r\ncontent-length:"


class RepeatedHead:
    """The bytes of a head that the parser has accepted, before and behind the digits of its ``content-length``."""

    __slots__ = ("_after", "_before")

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before = before
        self._after = after

    def body_start(self, data: bytes) -> int:
        """Where the body begins, if ``data`` is one whole message with this head and a body as long as it says; else 0.

        Then the parser, which stands between two messages, need not see it: it would read the same as last time.
        """
        if not data.startswith(self._before):
            return 0
        start = len(self._before)
        end = data.find(b"\r", start, start + 9)
        if end < 0 or not data.startswith(self._after, end):
            return 0
        digits = data[start:end]
        body = end + len(self._after)
        return body if digits.isdigit() and int(digits) == len(data) - body else 0


def head_to_repeat(message: bytes) -> RepeatedHead | None:
    """The head of a whole message that the parser has accepted; ``None`` when it says no length, or is long."""
    end = message.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES) + 4
    start = message[:end].lower().find(_LENGTH)
    if start < 0:
        return None
    start += len(_LENGTH)
    while message[start] in b" \t":
        start += 1
    repeated = RepeatedHead(message[:start], message[message.index(b"\r", start) : end])
    return repeated if repeated.body_start(message) else None
