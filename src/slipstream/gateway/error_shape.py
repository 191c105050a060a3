"""How the API dialects write an error: as an answer's body, and as the last event of a stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from slipstream.core.errors import RequestError, SlipstreamError
from slipstream.gateway.problems import problem_body, row_of

__all__ = ["ANTHROPIC", "OPENAI", "RESPONSES", "ErrorShape"]


@dataclass(frozen=True, slots=True)
class ErrorShape:
    """``body`` makes an answer's body of an error; ``event`` one whole event that ends a stream, behind ``last``: the
    data of the last event that came whole, empty when none did.
    """

    body: Callable[[SlipstreamError], bytes]
    event: Callable[[SlipstreamError, bytes], bytes]


def _openai_event(error: SlipstreamError, last: bytes) -> bytes:  # noqa: ARG001 - its events are not numbered
    return b"data: %b\n\n" % problem_body(error)


def _responses_event(error: SlipstreamError, last: bytes) -> bytes:
    """Events of this dialect are numbered."""
    param = error.param if isinstance(error, RequestError) else None
    event: dict[str, Any] = {"type": "error", "code": row_of(error).code, "message": str(error), "param": param}
    return b"event: error\ndata: %b\n\n" % msgspec.json.encode(event | {"sequence_number": _number_of(last) + 1})


_MAX_NUMBER: Final = 2**53
"""What is above it is no number of an event: JSON has no limit of its own, and one may be too long to be written."""


def _number_of(payload: bytes) -> int:
    """The number of an event; -1 when it has none, so that the next is 0."""
    try:
        fields = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return -1
    number = fields.get("sequence_number") if isinstance(fields, dict) else None
    return number if isinstance(number, int) and 0 <= number < _MAX_NUMBER else -1


_ANTHROPIC_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""Anthropic's words for what a status means; any other is a mistake of the client's below 500, and of ours above."""


def _anthropic_body(error: SlipstreamError) -> bytes:
    """``{"type": "error", "error": {"type", "message"}}``."""
    status = row_of(error).status
    kind = _ANTHROPIC_TYPES.get(status) or ("invalid_request_error" if status < 500 else "api_error")
    return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": str(error)}})


def _anthropic_event(error: SlipstreamError, last: bytes) -> bytes:  # noqa: ARG001 - its events are not numbered
    return b"event: error\ndata: %b\n\n" % _anthropic_body(error)


OPENAI: Final = ErrorShape(problem_body, _openai_event)
RESPONSES: Final = ErrorShape(problem_body, _responses_event)
ANTHROPIC: Final = ErrorShape(_anthropic_body, _anthropic_event)
