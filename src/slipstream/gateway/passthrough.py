"""Requests that go to a node unread: of their body only what placing needs."""

from __future__ import annotations

from typing import Final

import msgspec

from slipstream.core.keys import KeyPolicy
from slipstream.core.request import RequestShape, TrafficClass

__all__ = ["passed_through_shape"]


class _PassedThrough(msgspec.Struct, gc=False):
    model: str = ""
    stream: bool | None = None


_decode_passed_through: Final = msgspec.json.Decoder(_PassedThrough).decode


def passed_through_shape(body: bytes, category: str, policy: KeyPolicy | None = None) -> RequestShape:
    """The shape of a request that is not read further: its model and whether it is streamed, if its body says so, and
    what the policy of its API key says, ``None`` without one.
    """
    try:
        view = _decode_passed_through(body) if body.startswith(b"{") else _PassedThrough()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        view = _PassedThrough()
    traffic_class = TrafficClass.INTERACTIVE if policy is None else policy.traffic_class or TrafficClass.INTERACTIVE
    return RequestShape(
        view.model,
        category,
        traffic_class,
        streamed=bool(view.stream),
        pinned_pool=None if policy is None else policy.pinned_pool,
    )
