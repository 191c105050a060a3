"""Requests that go to a node unread: of their body only what placing needs."""

from __future__ import annotations

from typing import Final

import msgspec

from slipstream.core.request import RequestShape

__all__ = ["passed_through_shape"]


class _PassedThrough(msgspec.Struct, gc=False):
    model: str = ""
    stream: bool | None = None


_decode_passed_through: Final = msgspec.json.Decoder(_PassedThrough).decode


def passed_through_shape(body: bytes, category: str) -> RequestShape:
    """The shape of a request that is not read further: its model and whether it is streamed, if its body says so."""
    try:
        view = _decode_passed_through(body) if body.startswith(b"{") else _PassedThrough()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        view = _PassedThrough()
    return RequestShape(model=view.model, category=category, streamed=bool(view.stream))
