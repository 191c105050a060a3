"""The only map from errors to HTTP: status, OpenAI-shaped error object, headers."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from slipstream.core import errors
from slipstream.core.errors import (
    KeyLimitReached,
    PlacementError,
    RequestError,
    SlipstreamError,
    Unauthenticated,
    WrongMethod,
)

__all__ = ["ROWS", "Row", "problem_body", "problem_headers", "row_of"]


class Row(NamedTuple):
    """What an error becomes. ``type`` and ``code`` are those fields of OpenAI's error object."""

    status: int
    type: str
    code: str


_INVALID: Final = "invalid_request_error"

ROWS: Final[dict[type[SlipstreamError], Row]] = {
    errors.InvalidBody: Row(400, _INVALID, "invalid_body"),
    errors.InvalidField: Row(400, _INVALID, "invalid_field"),
    errors.MalformedRequest: Row(400, _INVALID, "malformed_request"),
    errors.Unauthenticated: Row(401, _INVALID, "invalid_api_key"),
    errors.UnknownModel: Row(404, _INVALID, "model_not_found"),
    errors.ResponseNotFound: Row(404, _INVALID, "response_not_found"),
    errors.UnknownPath: Row(404, _INVALID, "unknown_path"),
    errors.WrongMethod: Row(405, _INVALID, "method_not_allowed"),
    errors.RequestTimedOut: Row(408, _INVALID, "request_timeout"),
    errors.BodyTooLarge: Row(413, _INVALID, "body_too_large"),
    errors.HeadersTooLarge: Row(431, _INVALID, "headers_too_large"),
    errors.TooManyInFlight: Row(429, "rate_limit_error", "key_in_flight_limit"),
    errors.TooManyRequests: Row(429, "rate_limit_error", "key_rate_limit"),
    errors.AllFull: Row(429, "rate_limit_error", "all_full"),
    errors.OutOfReach: Row(429, "rate_limit_error", "out_of_reach"),
    errors.ConfigError: Row(500, "server_error", "config_error"),
    errors.EngineUnreachable: Row(502, "server_error", "engine_unreachable"),
    errors.EngineDown: Row(502, "server_error", "engine_down"),
    errors.EngineGarbage: Row(502, "server_error", "engine_garbage"),
    errors.UpstreamFailed: Row(502, "server_error", "upstream_failed"),
    errors.NothingUsable: Row(503, "server_error", "nothing_usable"),
    errors.TooManyConnections: Row(503, "server_error", "too_many_connections"),
    errors.OutOfDescriptors: Row(503, "server_error", "out_of_descriptors"),
    errors.UpstreamTimeout: Row(504, "server_error", "upstream_timeout"),
}
"""Every leaf of the exception tree that can reach a client, in the order of the statuses."""

_FALLBACK: Final = Row(500, "server_error", "internal_error")


def row_of(error: SlipstreamError) -> Row:
    """The row of an error's class, or of the nearest class above it that has one."""
    for kind in type(error).__mro__:
        row = ROWS.get(kind)
        if row is not None:
            return row
    return _FALLBACK


def problem_body(error: SlipstreamError) -> bytes:
    """``{"error": {"message", "type", "param", "code"}}``."""
    row = row_of(error)
    param = error.param if isinstance(error, RequestError) else None
    return msgspec.json.encode({"error": {"message": str(error), "type": row.type, "param": param, "code": row.code}})


def problem_headers(error: SlipstreamError) -> bytes:
    """The header lines an error adds: ``retry-after`` when waiting helps, ``allow`` when another method would do, and
    ``www-authenticate`` when a key would.
    """
    if isinstance(error, WrongMethod):
        return f"allow: {', '.join(error.allowed)}\r\n".encode()
    if isinstance(error, KeyLimitReached) or (isinstance(error, PlacementError) and row_of(error).status in (429, 503)):
        return b"retry-after: %d\r\n" % error.retry_after_s
    if isinstance(error, Unauthenticated):
        return b"www-authenticate: Bearer\r\n"
    return b""
