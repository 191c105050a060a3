"""Where an answer begins for its reader: the first chunk that carries output."""

from __future__ import annotations

from typing import Any, Final

import msgspec

__all__ = ["has_content"]


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
