"""A node's 429 or 503, read: the gateway's own answer when no other node takes the request."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from slipstream.core.errors import AllFull
from slipstream.gateway.headers import Answer

__all__ = ["FULL_STATUSES", "Refusal", "all_full", "retry_after_s"]

FULL_STATUSES: Final = frozenset({429, 503})
"""What a node answers when it can take no more: worth another node's try, and no fault."""

HELD_BYTES: Final = 64 * 1024
"""Up to here a refusal is held, so that another node can still take the request; a longer one is passed on."""

MESSAGE_CHARACTERS: Final = 200
"""Of an engine's message, the client gets this much."""

_RETRY_AFTER: Final = re.compile(rb"^retry-after:[ \t]*(\d{1,9})[ \t]*\r$", re.IGNORECASE | re.MULTILINE)


class Refusal:
    """One that is coming in. Nothing of it is written to the client as long as it is ``held``."""

    __slots__ = ("_bytes", "_pieces", "answer")

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self._pieces: list[bytes] = []
        self._bytes = 0

    def feed(self, data: bytes) -> None:
        """More of its body came."""
        self._pieces.append(data)
        self._bytes += len(data)

    @property
    def held(self) -> bool:
        """Whether it is short enough to be held until it is whole."""
        return self._bytes <= HELD_BYTES

    @property
    def body(self) -> bytes:
        """What has come of its body."""
        return b"".join(self._pieces)


def retry_after_s(refusal: Answer) -> int | None:
    """For how many seconds the node asks not to be asked; ``None`` = it does not say, or says it as a date.

    To read a date takes a clock that agrees with the node's.
    """
    found = _RETRY_AFTER.search(refusal.lines)
    return None if found is None else int(found[1])


def all_full(node: str, refusal: Answer, body: bytes) -> AllFull:
    """The error that says which node refused and in what words. Its ``retry_after_s`` is the node's, if it gave one."""
    sentence = f"No node can take the request now; the last to refuse it was '{node}', with {refusal.status}"
    message = _message(body)
    error = AllFull(f"{sentence}: {message}" if message else f"{sentence}.")
    told = retry_after_s(refusal)
    if told is not None:
        error.retry_after_s = told
    return error


def _message(body: bytes) -> str:
    """What an error object says, on one line: OpenAI's, or one with less around it. Empty when it is none."""
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    if not isinstance(fields, dict):
        return ""
    error = fields.get("error", fields)
    message = error.get("message") if isinstance(error, dict) else error
    return " ".join(message.split())[:MESSAGE_CHARACTERS] if isinstance(message, str) else ""
