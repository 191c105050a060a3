"""Requests that go to a node unread: of their body only what placing needs."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from slipstream.core.keys import KeyPolicy
from slipstream.core.request import PinSource, RequestShape, TrafficClass
from slipstream.gateway.responses import response_of_path

__all__ = ["passed_through_shape"]


class _PassedThrough(msgspec.Struct, gc=False):
    model: str = ""
    stream: msgspec.Raw = msgspec.Raw()  # a value that is no boolean must not hide the model


_BEGINS_OBJECT: Final = re.compile(rb"[ \t\r\n]*\{")
_decode_passed_through: Final = msgspec.json.Decoder(_PassedThrough).decode


def passed_through_shape(path: str, body: bytes, category: str, policy: KeyPolicy | None = None) -> RequestShape:
    """The shape of a request that is not read further: its model and whether it is streamed, if its body says so, and
    what the policy of its API key says, ``None`` without one.

    Whether it decodes anything is not known, so it counts as one that does not. A path that concerns one response leads
    to the node that holds it.
    """
    try:
        view = _decode_passed_through(body) if _BEGINS_OBJECT.match(body) else _PassedThrough()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        view = _PassedThrough()
    traffic_class = TrafficClass.INTERACTIVE if policy is None else policy.traffic_class or TrafficClass.INTERACTIVE
    pinned = None if policy is None else policy.pinned_pool
    return RequestShape(
        view.model,
        category,
        traffic_class,
        streamed=bytes(view.stream) == b"true",
        pinned_pool=pinned,
        previous_response=response_of_path(path),
        decodes=False,
        pinned_by=None if pinned is None else PinSource.KEY,
    )
