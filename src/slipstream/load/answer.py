"""Answers as a client reads them: bytes in, times and counts out. Nothing here knows of sockets or clocks."""

from __future__ import annotations

import re
from array import array
from typing import Any, Final

import msgspec

__all__ = ["StreamedAnswer", "WholeAnswer", "error_sentence"]

_DONE: Final = b"[DONE]"
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Delta(msgspec.Struct, gc=False):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    tool_calls: Any = None
    function_call: Any = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None


class _Answer(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decode: Final = msgspec.json.Decoder(_Answer).decode


def error_sentence(error: object) -> str:
    """What an error object of an OpenAI-shaped answer says; it may be an object with a message, or just a text."""
    message = error.get("message") if isinstance(error, dict) else error
    return str(message) if message else "an error without a message"


class WholeAnswer:
    """An answer that was not streamed, or that is an error. ``error`` is ``None`` when it is a completion."""

    __slots__ = ("error", "output_tokens", "prompt_tokens")

    def __init__(self, status: int, body: bytes) -> None:
        self.prompt_tokens: int | None = None
        self.output_tokens: int | None = None
        self.error: str | None = None
        try:
            answer = _decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self.error = f"status {status} with a body that is no JSON object of a completion"
            return
        if status != 200:
            said = f": {error_sentence(answer.error)}" if answer.error is not None else ""
            self.error = f"status {status}{said}"
        elif answer.error is not None:
            self.error = error_sentence(answer.error)
        elif answer.usage is not None:
            self.prompt_tokens = answer.usage.prompt_tokens
            self.output_tokens = answer.usage.completion_tokens


class StreamedAnswer:
    """A stream of server-sent events of a chat completion. However its bytes are cut on arrival, it reads the same.

    ``first_token_at`` is the time handed to the ``feed`` that completed the first event with content, reasoning or a
    tool call; ``chunk_gaps`` are the seconds from each such event to the next. Tokens are those of the last usage said,
    ``None`` without one. ``closing`` are the last two events as they came: engines say there what they did.
    """

    __slots__ = (
        "_data",
        "_held",
        "_last_at",
        "_terminated",
        "chunk_gaps",
        "closing",
        "error",
        "first_token_at",
        "output_tokens",
        "prompt_tokens",
    )

    def __init__(self) -> None:
        self.first_token_at: float | None = None
        self.chunk_gaps = array("f")
        self.closing: tuple[bytes, ...] = ()
        self.prompt_tokens: int | None = None
        self.output_tokens: int | None = None
        self.error: str | None = None
        self._last_at = 0.0
        self._held = b""
        self._data: list[bytes] = []
        self._terminated = False

    def feed(self, data: bytes, now: float) -> None:
        """Take bytes that arrived at ``now``."""
        *lines, held = _LINE_END.split(self._held + data)
        if lines and not held and data.endswith(b"\r"):
            held = lines.pop() + b"\r"  # the line end may have a second half to come
        self._held = held
        for line in lines:
            self._line(line, now)

    def end(self, now: float) -> None:
        """The connection has nothing more: an answer that does not say that it is complete is an error."""
        if self._held:
            self._line(self._held.rstrip(b"\r"), now)
            self._held = b""
        self._line(b"", now)
        if self.error is None and not self._terminated:
            self.error = "the stream ended before the answer was complete"

    def _line(self, line: bytes, now: float) -> None:
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
        elif not line and self._data:
            event = b"\n".join(self._data)
            self._data.clear()
            self._event(event, now)

    def _event(self, event: bytes, now: float) -> None:
        if self._terminated or self.error is not None:
            return
        if event == _DONE:
            self._terminated = True
            return
        try:
            answer = _decode(event)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self.error = "the stream holds an event that is no JSON object of a completion"
            return
        if answer.error is not None:
            self.error = error_sentence(answer.error)
            return
        self.closing = (*self.closing[-1:], event)
        if answer.usage is not None:
            self.prompt_tokens = answer.usage.prompt_tokens
            self.output_tokens = answer.usage.completion_tokens
        if any(map(_has_content, answer.choices or ())):
            if self.first_token_at is None:
                self.first_token_at = now
            else:
                self.chunk_gaps.append(now - self._last_at)
            self._last_at = now


def _has_content(choice: _Choice) -> bool:
    delta = choice.delta
    return delta is not None and any(
        (
            delta.content,
            delta.reasoning_content,
            delta.reasoning,
            delta.refusal,
            delta.tool_calls,
            delta.function_call,
        )
    )
