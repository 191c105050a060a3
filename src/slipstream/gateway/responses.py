"""OpenAI's Responses dialect, ``/v1/responses``: how a request reads, and what its answer's events say.

Events say in their data's ``type`` what they are; their ``event:`` lines repeat it and are not looked at.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from slipstream.core.errors import InvalidField
from slipstream.gateway.body import check_model, decode_body
from slipstream.gateway.fields import Message, Opaque, Part, RequestFields, ResponseFormat
from slipstream.gateway.tokens import Count
from slipstream.gateway.view import RequestView

__all__ = ["ENDS", "count_tokens", "has_content", "read_responses", "response_id", "response_of_path"]

ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})
"""The events behind which nothing comes."""

MAX_ID_CHARACTERS: Final = 256
"""A longer id of a response is not remembered."""


class _Item(msgspec.Struct, gc=False):
    """One item of the input: a message, or what a tool was asked and said. Others are skipped."""

    type: str | None = None
    role: str | None = None
    content: msgspec.Raw = msgspec.Raw(b"null")
    output: msgspec.Raw = msgspec.Raw(b"null")


class _Text(msgspec.Struct, gc=False):
    format: ResponseFormat | None = None


class _Fields(msgspec.Struct, gc=False):
    model: str = ""
    input: str | list[_Item] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    max_output_tokens: int | None = None
    stream: bool | None = None
    text: _Text | None = None
    tools: list[Opaque] | None = None
    service_tier: str | None = None
    user: str | None = None
    prompt_cache_key: str | None = None


_decode_fields: Final = msgspec.json.Decoder(_Fields).decode
_decode_content: Final = msgspec.json.Decoder(str | list[Part] | None).decode


def read_responses(body: bytes) -> RequestView:
    """Read a request to ``/v1/responses``. Raises InvalidBody or InvalidField.

    Instructions become the first message, an input that is a string the user's, and a tool's output one of its own.
    """
    fields = decode_body(body, _decode_fields)
    check_model(fields.model)
    asked = fields.input
    if asked is None or asked == []:
        raise InvalidField("The field 'input' must be a string or a list with at least one item.", "input")
    messages: list[Message] = []
    if fields.instructions:
        messages.append(Message("system", fields.instructions))
    if isinstance(asked, str):
        messages.append(Message("user", asked))
    else:
        messages += [_message(item) for item in asked if item.role is not None or item.type == "function_call_output"]
    return RequestView(
        RequestFields(
            model=fields.model,
            messages=messages,
            max_output_tokens=fields.max_output_tokens,
            stream=fields.stream,
            tools=fields.tools,
            response_format=fields.text.format if fields.text is not None else None,
            service_tier=fields.service_tier,
            user=fields.user,
            prompt_cache_key=fields.prompt_cache_key,
            previous_response_id=fields.previous_response_id,
        )
    )


def _message(item: _Item) -> Message:
    content = item.content if item.role is not None else item.output
    try:
        decoded = _decode_content(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # engines check what else it may be
        decoded = None
    return Message(item.role or "tool", list(decoded) if isinstance(decoded, list) else decoded)


class _Added(msgspec.Struct, gc=False):
    type: str | None = None


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    delta: Any = None
    item: _Added | None = None


_decode_event: Final = msgspec.json.Decoder(_Event).decode
_CALLS: Final = frozenset({"function_call", "custom_tool_call", "mcp_call"})


def has_content(payload: bytes) -> bool:
    """Whether an event carries output: a delta of text, reasoning, refusal or a tool's input, or a tool's name."""
    try:
        event = _decode_event(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    if event.type.endswith(".delta"):
        return bool(event.delta)
    return event.type == "response.output_item.added" and event.item is not None and event.item.type in _CALLS


class _InputTokens(msgspec.Struct, gc=False):
    input_tokens: Count | None = None
    output_tokens: Count | None = None


class _Response(msgspec.Struct, gc=False):
    id: str | None = None
    usage: _InputTokens | None = None


class _Answer(msgspec.Struct, gc=False):
    """A whole answer, or an event that holds one."""

    id: str | None = None
    usage: _InputTokens | None = None
    response: _Response | None = None


_decode_answer: Final = msgspec.json.Decoder(_Answer).decode


def count_tokens(payloads: tuple[bytes, ...]) -> tuple[int | None, int | None]:
    """Tokens of the prompt, cached ones among them, and of the output; ``None`` = not said. The last event says it."""
    for payload in reversed(payloads):
        answer = _read_answer(payload)
        usage = answer.usage if answer.response is None else answer.response.usage
        if usage is not None:
            return usage.input_tokens, usage.output_tokens
    return None, None


def response_id(payload: bytes) -> str | None:
    """The id by which a response is asked for again, out of a whole answer or an event; ``None`` when it has none."""
    answer = _read_answer(payload)
    found = answer.id if answer.response is None else answer.response.id
    return found if found and len(found) <= MAX_ID_CHARACTERS else None


def _read_answer(payload: bytes) -> _Answer:
    try:
        return _decode_answer(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _Answer()


_RESPONSE_PATH: Final = re.compile(
    rf"/v1/responses/(?!(?:input_tokens|compact)$)([^/]{{1,{MAX_ID_CHARACTERS}}})(?:/.+)?"
)
"""The two words are endpoints of OpenAI's API that concern no response."""


def response_of_path(path: str) -> str | None:
    """The id in a path that concerns one response, which only the node that holds it can serve; else ``None``."""
    found = _RESPONSE_PATH.fullmatch(path)
    return None if found is None else found[1]
