"""Heads that repeat: on a kept-alive connection a head often differs from the one before it in its length only."""

from __future__ import annotations

from typing import Final

__all__ = ["RepeatedHead", "head_to_repeat"]

MAX_HEAD_BYTES: Final = 4096
"""Longer heads are not remembered."""

_LENGTH: Final = b"\r\ncontent-length:"


MAX_LENGTHS: Final = 256
"""So many lengths of message have their head kept ready."""


class RepeatedHead:
    """The bytes of a head that the parser has accepted, before and behind the digits of its ``content-length``."""

    __slots__ = ("_after", "_before", "_heads")

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before = before
        self._after = after
        self._heads: dict[int, bytes] = {}

    def body_start(self, data: bytes) -> int:
        """Where the body begins, if ``data`` is one whole message with this head and a body as long as it says; else 0.

        Then the parser, which stands between two messages, need not see it: it would read the same as last time. Of
        each length of a message only one head can be true, so it is enough to compare with that one.
        """
        size = len(data)
        head = self._heads.get(size)
        if head is None:
            head = self._head_of(size)
        return len(head) if head and data.startswith(head) else 0

    def _head_of(self, size: int) -> bytes:
        """The head of a message of ``size`` bytes; empty when none is so long."""
        rest = size - len(self._before) - len(self._after)
        head = b""
        for digits in range(1, 9):
            length = b"%d" % (rest - digits)
            if len(length) == digits and rest >= digits:
                head = self._before + length + self._after
        if len(self._heads) >= MAX_LENGTHS:
            self._heads.clear()
        self._heads[size] = head
        return head


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
