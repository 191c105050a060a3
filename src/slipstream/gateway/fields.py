"""The fields of a request's body that routing reads. All others are skipped."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

__all__ = [
    "ABSENT",
    "Message",
    "Opaque",
    "Part",
    "RequestFields",
    "ResponseFormat",
    "decode_fields",
    "has_effect",
    "is_given",
]


class Part(msgspec.Struct, gc=False):
    """One part of a message's content. Only text is kept; images, audio and files are skipped."""

    text: str | None = None


class Message(msgspec.Struct, gc=False):
    """One message of a conversation."""

    role: str
    content: str | list[str | Part] | None = None


class StreamOptions(msgspec.Struct, gc=False):
    """``include_usage`` asks for a last chunk with token counts."""

    include_usage: bool | None = None


class ResponseFormat(msgspec.Struct, gc=False):
    """``type`` is ``text``, ``json_object`` or ``json_schema``; engines add kinds of their own."""

    type: str | None = None


ABSENT: Final = Raw(b"")
"""What a ``Raw`` field is that the body does not have: always this one object, quicker to see than a length is."""

_SPACE: Final = b" \t\r\n"
_EMPTY: Final = frozenset({b"", b"null", b"{}", b"[]", b'""', b"0", b"0.0", b"false"})
_LONGEST_EMPTY: Final = 64
"""Bytes, space between brackets included, from which a value is not looked at to find that it is empty."""


def is_given(value: Raw) -> bool:
    """Whether a field is there and not null."""
    return bytes(memoryview(value)[:5]) not in (b"", b"null")


def has_effect(value: Raw) -> bool:
    """Whether a field is there and neither empty nor zero."""
    view = memoryview(value)
    return len(view) > _LONGEST_EMPTY or bytes(view).translate(None, _SPACE) not in _EMPTY


class Opaque(msgspec.Struct, gc=False):
    """A JSON object of which only its being there matters: decoding it skips all fields."""


class RequestFields(msgspec.Struct, gc=False):
    """The fields of OpenAI's completions, as the client sent them. `RequestView` says what they are.

    They stand in the order in which it takes them.
    """

    model: str = ""
    messages: list[Message] | None = None
    prompt: str | list[str | int | list[int]] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    best_of: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None
    service_tier: str | None = None
    user: str | None = None
    prompt_cache_key: str | None = None
    previous_response_id: str | None = None
    tools: list[Opaque] | None = None
    response_format: ResponseFormat | None = None
    min_p: float | None = None
    logit_bias: Raw = ABSENT
    json_schema: Raw = ABSENT
    grammar: Raw = ABSENT
    guided_json: Raw = ABSENT
    guided_regex: Raw = ABSENT
    guided_choice: Raw = ABSENT
    guided_grammar: Raw = ABSENT
    structured_outputs: Raw = ABSENT


decode_fields: Final = msgspec.json.Decoder(RequestFields).decode
"""Raises msgspec.ValidationError on a field of the wrong type, msgspec.DecodeError on what is not JSON."""
