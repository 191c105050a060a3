"""What an answer's events are: which of them carries output, and which says that it ends."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

__all__ = ["ENDS", "FAILURES", "error_status", "event_type", "has_content"]

ENDS: Final = frozenset({"error"})
"""The events of completions behind which nothing needs to come: some engines send no ``[DONE]`` after an error."""

FAILURES: Final = frozenset({"error", "response.failed"})
"""The events, of all dialects, by which a node says that it could not answer."""


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
    error: Any = None


_decode_event: Final = msgspec.json.Decoder(_Event).decode


def event_type(payload: bytes) -> str | None:
    """What an event says it is: by its type or, where events have none, ``error`` by having such a member."""
    try:
        event = _decode_event(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return event.type or ("error" if event.error else None)


class _Error(msgspec.Struct, gc=False):
    code: Annotated[int, msgspec.Meta(ge=400, le=599)] | None = None


class _Failure(msgspec.Struct, gc=False):
    error: _Error | None = None


_decode_failure: Final = msgspec.json.Decoder(_Failure).decode


def error_status(payload: bytes) -> int | None:
    """The status that an answer would have had that an event says has failed; ``None`` when it does not say."""
    try:
        failure = _decode_failure(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return None if failure.error is None else failure.error.code
