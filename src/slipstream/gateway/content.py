"""What an answer's events are: which of them carries output, and which says that it ends."""

from __future__ import annotations

from typing import Any, Final

import msgspec

__all__ = ["event_type", "has_content"]


class _Delta(msgspec.Struct, gc=False):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    tool_calls: Any = None
    function_call: Any = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    text: Any = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None


_decode_chunk: Final = msgspec.json.Decoder(_Chunk).decode


def has_content(payload: bytes) -> bool:
    """Whether a chunk of a chat or text completion carries output: content, reasoning, a refusal or a tool call."""
    try:
        choices = _decode_chunk(payload).choices
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    for choice in choices or ():
        if choice.text:
            return True
        delta = choice.delta
        if delta is not None and (
            delta.content
            or delta.reasoning_content
            or delta.reasoning
            or delta.tool_calls
            or delta.function_call
            or delta.refusal
        ):
            return True
    return False


class _Event(msgspec.Struct, gc=False):
    type: str | None = None


_decode_event: Final = msgspec.json.Decoder(_Event).decode


def event_type(payload: bytes) -> str | None:
    """What an event says it is, in the dialects whose events say so."""
    try:
        return _decode_event(payload).type
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
