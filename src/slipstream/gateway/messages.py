"""Anthropic's dialect, ``/v1/messages``: how a request reads, and what its answer's events say.

Events say in their data's ``type`` what they are; their ``event:`` lines repeat it and are not looked at.
"""

from __future__ import annotations

from typing import Final

import msgspec

from slipstream.core.errors import InvalidField
from slipstream.gateway.body import check_model, decode_body
from slipstream.gateway.fields import Message, Opaque, Part, RequestFields, ResponseFormat
from slipstream.gateway.tokens import Count
from slipstream.gateway.view import RequestView

__all__ = ["ENDS", "count_tokens", "has_content", "read_messages"]

ENDS: Final = frozenset({"message_stop", "error"})
"""The events behind which nothing comes."""


class _Block(msgspec.Struct, gc=False):
    """A block of a message's content: text, or a tool's result. Images, documents and thoughts are skipped."""

    type: str | None = None
    text: str | None = None
    content: msgspec.Raw = msgspec.Raw(b"null")


class _Message(msgspec.Struct, gc=False):
    role: str
    content: str | list[_Block] | None = None


class _Metadata(msgspec.Struct, gc=False):
    user_id: str | None = None


class _Format(msgspec.Struct, gc=False):
    format: ResponseFormat | None = None


class _Fields(msgspec.Struct, gc=False):
    model: str = ""
    system: str | list[Part] | None = None
    messages: list[_Message] | None = None
    max_tokens: int | None = None
    stream: bool | None = None
    tools: list[Opaque] | None = None
    metadata: _Metadata | None = None
    output_config: _Format | None = None


_decode_fields: Final = msgspec.json.Decoder(_Fields).decode
_decode_content: Final = msgspec.json.Decoder(str | list[Part]).decode


def read_messages(body: bytes) -> RequestView:
    """Read a request to ``/v1/messages``. Raises InvalidBody or InvalidField.

    The system prompt becomes the first message, and a tool's result one of its own, as OpenAI's dialect has them.
    """
    fields = decode_body(body, _decode_fields)
    check_model(fields.model)
    if not fields.messages:
        raise InvalidField("The field 'messages' must be a list with at least one message.", "messages")
    messages: list[Message] = []
    if fields.system:
        messages.append(Message("system", list(fields.system) if isinstance(fields.system, list) else fields.system))
    for message in fields.messages:
        content = message.content
        if not isinstance(content, list):
            messages.append(Message(message.role, content))
            continue
        parts: list[str | Part] = []
        for block in content:
            if block.type == "tool_result":
                messages.append(Message("tool", _text_of_result(block.content)))
            elif block.text:
                parts.append(block.text)
        if parts:
            messages.append(Message(message.role, parts))
    return RequestView(
        RequestFields(
            model=fields.model,
            messages=messages,
            max_tokens=fields.max_tokens,
            stream=fields.stream,
            tools=fields.tools,
            user=fields.metadata.user_id if fields.metadata is not None else None,
            response_format=fields.output_config.format if fields.output_config is not None else None,
        )
    )


def _text_of_result(content: msgspec.Raw) -> str | list[str | Part] | None:
    """A tool's result is text, or blocks of which some are; engines check what else it may be."""
    try:
        decoded = _decode_content(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return list(decoded) if isinstance(decoded, list) else decoded


class _Delta(msgspec.Struct, gc=False):
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None


class _Started(msgspec.Struct, gc=False):
    type: str | None = None


class _Event(msgspec.Struct, gc=False):
    type: str | None = None
    delta: _Delta | None = None
    content_block: _Started | None = None


_decode_event: Final = msgspec.json.Decoder(_Event).decode


def has_content(payload: bytes) -> bool:
    """Whether an event carries output: text, thinking, a tool's name or its input. A signature is none."""
    try:
        event = _decode_event(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    if event.type == "content_block_delta":
        delta = event.delta
        return delta is not None and bool(delta.text or delta.thinking or delta.partial_json)
    if event.type == "content_block_start":
        return event.content_block is not None and event.content_block.type == "tool_use"
    return False


class _Usage(msgspec.Struct, gc=False):
    input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    output_tokens: Count | None = None


class _Start(msgspec.Struct, gc=False):
    usage: _Usage | None = None


class _Counting(msgspec.Struct, gc=False):
    message: _Start | None = None
    usage: _Usage | None = None


_decode_counting: Final = msgspec.json.Decoder(_Counting).decode


def count_tokens(payloads: tuple[bytes, ...]) -> tuple[int | None, int | None]:
    """Tokens of the prompt, cached ones among them, and of the output; ``None`` = not said.

    A whole answer says both. Of a stream, ``message_start`` says the prompt's and ``message_delta`` the output's, and
    the prompt's again where the engine knows them only then.
    """
    prompt: int | None = None
    output: int | None = None
    for payload in payloads:
        try:
            counting = _decode_counting(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        usage = counting.usage if counting.message is None else counting.message.usage
        if usage is None:
            continue
        if usage.input_tokens:
            cached = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
            prompt = usage.input_tokens + cached
        if usage.output_tokens is not None:
            output = usage.output_tokens
    return prompt, output
