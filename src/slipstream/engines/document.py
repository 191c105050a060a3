"""JSON that an engine sent, which may be anything."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from slipstream.core.errors import EngineGarbage

__all__ = ["UNREADABLE", "read_document"]

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding bytes from outside can raise: no or other JSON, text that is not UTF-8, nesting without end."""


Document = TypeVar("Document")


def read_document(decoder: msgspec.json.Decoder[Document], page: bytes, wanted: str) -> Document:
    """``page`` decoded. Raises `EngineGarbage`, "not ``wanted``", whenever that can not be done."""
    try:
        return decoder.decode(page)
    except UNREADABLE as error:
        raise EngineGarbage(f"not {wanted}: {error}") from None
