"""Asking an answer for more than its client did, and taking that out again.

A client's own bytes are never written anew: fields go in before the last brace of its request, and whole events or one
member of an object are cut out of the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from slipstream.engines.added_field import AddedField
from slipstream.gateway.sse import data_payloads

__all__ = ["with_fields", "without_events", "without_members"]

_WHITESPACE: Final = b" \t\r\n"
_decode_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_NO_CHOICES: Final = re.compile(rb'"choices"\s*:\s*\[\s*\]')
_EVENT: Final = re.compile(rb".*?(?:\n\n|\n\r\n|\r\r)|.+", re.DOTALL)
_USAGE: Final = "usage"


def with_fields(body: bytes, fields: Sequence[AddedField], *, streamed: bool) -> tuple[bytes, tuple[AddedField, ...]]:
    """The JSON object ``body`` with ``fields`` spliced in, and those that were.

    A field that the client gives is left as it is, whatever its value: who sends ``stream_options`` without
    ``include_usage``, or as null, gets what that means. A body that is no JSON object stays as it is.
    """
    members = _members(body)
    end = len(body.rstrip(_WHITESPACE)) - 1
    if not members or body[end : end + 1] != b"}":
        return body, ()
    added = tuple(field for field in fields if (streamed or not field.streamed_only) and not _given(members, field))
    if not added:
        return body, ()
    spliced = b"".join(b',"%b":%b' % (field.name.encode(), field.value) for field in added)
    return b"%b%b%b" % (body[:end], spliced, body[end:]), added


def without_events(block: bytes, added: Sequence[AddedField]) -> bytes:
    """``block``, whole events of a completion's stream, without those that are only there because of ``added``.

    Returns ``block`` itself when there is none.
    """
    if _NO_CHOICES.search(block) is None:
        return block
    keys = {field.answer_key for field in added}
    events = _EVENT.findall(block)
    kept = [event for event in events if not _is_added(event, keys)]
    return block if len(kept) == len(events) else b"".join(kept)


def without_members(body: bytes, added: Sequence[AddedField]) -> bytes:
    """The JSON object ``body``, a whole answer that was not streamed, without the members that ``added`` asked for.

    All other bytes stay as they are. A body that is no JSON object, or has no such member, is returned itself.
    """
    for field in added:
        if not field.streamed_only:
            body = _without_member(body, field.answer_key)
    return body


def _members(body: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _decode_members(body)
    except _UNREADABLE:
        return {}


def _given(members: Iterable[str], field: AddedField) -> bool:
    """Whether the client asks for the same itself, or for something that is answered in the same place."""
    prefix = field.unless_prefix
    return any(name == field.name or (prefix and name.startswith(prefix)) for name in members)


def _is_added(event: bytes, keys: set[str]) -> bool:
    """Whether an event has no choices, and one of ``keys``; and no usage that the client wants to see."""
    payloads = data_payloads((event,))
    if len(payloads) != 1:
        return False
    members = _members(payloads[0])
    if _plain(members.get("choices")) != b"[]":
        return False
    told = {key for key in (*keys, _USAGE) if _plain(members.get(key)) not in (b"", b"null")}
    return bool(told) and told <= keys


def _plain(value: msgspec.Raw | None) -> bytes:
    return b"" if value is None else bytes(value).translate(None, _WHITESPACE)


def _without_member(body: bytes, name: str) -> bytes:
    members = _members(body)
    value = members.pop(name, None)
    if value is None:
        return body
    raw = bytes(value)
    # The name may also stand deeper, so what is left after a cut is compared with what should be.
    for found in reversed(list(re.finditer(rb'(\s*,\s*)?"%b"\s*:\s*' % re.escape(name.encode()), body))):
        if not body.startswith(raw, found.end()):
            continue
        end = found.end() + len(raw)
        if found[1] is None:  # the first member: the comma behind it goes with it
            rest = body[end:].lstrip(_WHITESPACE)
            left = body[: found.start()] + rest.removeprefix(b",")
        else:
            left = body[: found.start()] + body[end:]
        if _members(left) == members:
            return left
    return body
