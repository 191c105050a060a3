"""Asking an answer for more than its client did, and taking that out again.

A client's own bytes are never written anew: fields go in before the last brace of its request, and whole events or one
member of an object are cut out of the answer.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from slipstream.engines.added_field import AddedField
from slipstream.gateway.sse import data_payloads

__all__ = ["AddedEvents", "with_fields", "without_members"]

READ_BYTES: Final = 256 * 1024
"""Longer bodies are not read here, on the event loop."""

MOST_MEMBERS: Final = 1000
"""Answers have a dozen; one with more is no engine's, and stays as it is."""

_WHITESPACE: Final = b" \t\r\n"
_decode_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_BEGINS_OBJECT: Final = re.compile(rb'\s*\{\s*"')
_ESCAPED_ASCII: Final = re.compile(rb"\\u00[2-7]")
_NO_CHOICES: Final = re.compile(rb'"choices"\s*:\s*\[\s*\]')
_ENDS_CHOICE: Final = re.compile(rb'"finish_reason"\s*:\s*"')
_EVENT: Final = re.compile(rb".*?(?:\n\n|\n\r\n|\r\r)|.+", re.DOTALL)
_NAME: Final = re.compile(rb'[ \t\r\n]*,?[ \t\r\n]*("[^"\\]*(?:\\.[^"\\]*)*")[ \t\r\n]*:[ \t\r\n]*')
_COMMA: Final = re.compile(rb"[ \t\r\n]*,")
_USAGE: Final = "usage"


def with_fields(body: bytes, fields: Sequence[AddedField], *, streamed: bool) -> tuple[bytes, tuple[AddedField, ...]]:
    """The JSON object ``body`` with ``fields`` spliced in, and those that were.

    A field that the client gives is left as it is, whatever its value: who sends ``stream_options`` without
    ``include_usage``, or as null, gets what that means. A body that is no object with members stays as it is, and so
    does one of more than 256 KiB that would have to be read to know what is in it.
    """
    end = (len(body) if body.endswith(b"}") else len(body.rstrip(_WHITESPACE))) - 1
    if body[end : end + 1] != b"}" or _BEGINS_OBJECT.match(body) is None:
        return body, ()
    wanted = [field for field in fields if streamed or not field.streamed_only]
    names: Collection[str] = ()
    if _may_give(body, wanted):
        if len(body) > READ_BYTES:
            return body, ()
        names = _members(body)
        if not names:
            return body, ()
    added = tuple(field for field in wanted if not _given(names, field))
    if not added:
        return body, ()
    spliced = b"".join(b',"%b":%b' % (field.name.encode(), field.value) for field in added)
    return b"%b%b%b" % (body[:end], spliced, body[end:]), added


class AddedEvents:
    """Takes out of a completion's stream the events that are only there because of fields that were added.

    An event that ends a choice is held back until the next one shows whether it is the stream's last: ``held``. Then it
    gets what the engine put on an added event instead.
    """

    __slots__ = ("_keys", "_moved", "held")

    def __init__(self, added: Sequence[AddedField]) -> None:
        self._keys = {field.answer_key for field in added}
        self._moved = tuple(name for field in added for name in field.moved)
        self.held = b""

    def feed(self, block: bytes) -> bytes:
        """What is left of ``block``, which is whole events; ``block`` itself where all of it is."""
        ends = bool(self._moved) and _ENDS_CHOICE.search(block) is not None
        if not ends and not self.held and _NO_CHOICES.search(block) is None:
            return block
        left = [self.held] if self.held else []
        for event in _EVENT.findall(block):
            members = _added_members(event, self._keys)
            if members is None:
                left.append(event)
            elif left:
                left[-1] = self._with_moved(left[-1], members)
        self.held = left.pop() if self._moved and left and _ENDS_CHOICE.search(left[-1]) is not None else b""
        seen = b"".join(left)
        return block if seen == block else seen

    def _with_moved(self, event: bytes, added: Mapping[str, msgspec.Raw]) -> bytes:
        """``event`` with those members of the added one that it would have had without it."""
        end = len(event.rstrip(_WHITESPACE)) - 1
        if _ENDS_CHOICE.search(event) is None or event[end : end + 1] != b"}":
            return event
        moved = ((name, added.get(name)) for name in self._moved)
        members = b"".join(b',"%b":%b' % (name.encode(), bytes(value)) for name, value in moved if value is not None)
        return event[:end] + members + event[end:]


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


def _may_give(body: bytes, fields: Sequence[AddedField]) -> bool:
    """Whether the client may ask for the same itself: false for most bodies, after a search and no reading.

    A name is in the body as it is, or with some of its letters as escapes.
    """
    if b"\\u00" in body and (len(body) > READ_BYTES or _ESCAPED_ASCII.search(body) is not None):
        return True
    for field in fields:
        if b'"%b"' % field.name.encode() in body:
            return True
        if field.unless_prefix and b'"%b' % field.unless_prefix.encode() in body:
            return True
    return False


def _given(names: Collection[str], field: AddedField) -> bool:
    """Whether the client asks for the same itself, or for something that is answered in the same place."""
    prefix = field.unless_prefix
    return field.name in names or (bool(prefix) and any(name.startswith(prefix) for name in names))


def _added_members(event: bytes, keys: set[str]) -> dict[str, msgspec.Raw] | None:
    """The members of an event that has no choices, but one of ``keys``, and no usage that the client wants to see;
    ``None`` of any other.
    """
    payloads = data_payloads((event,))
    if len(payloads) != 1:
        return None
    members = _members(payloads[0])
    if _plain(members.get("choices")) != b"[]":
        return None
    told = {key for key in (*keys, _USAGE) if _plain(members.get(key)) not in (b"", b"null")}
    return members if told and told <= keys else None


def _plain(value: msgspec.Raw | None) -> bytes:
    return b"" if value is None else bytes(value).translate(None, _WHITESPACE)


def _without_member(body: bytes, name: str) -> bytes:
    """The name may also stand deeper, and a million times: the members of the top level are walked through, once."""
    members = _members(body)
    if name not in members or len(members) > MOST_MEMBERS:
        return body
    at = start = body.index(b"{") + 1
    for known, value in members.items():
        found, raw = _NAME.match(body, at), bytes(value)
        if found is None or not body.startswith(raw, found.end()):
            break  # a name occurs twice
        end = found.end() + len(raw)
        if known == name:
            del members[name]
            behind = _COMMA.match(body, end) if at == start else None  # the first member's comma goes with it
            left = body[:at] + body[end:] if behind is None else body[: found.start(1)] + body[behind.end() :]
            if found[1] == b'"%b"' % name.encode() and _members(left) == members:
                return left
            break
        at = end
    return body
