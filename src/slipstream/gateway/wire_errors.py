"""Requests that are not acceptable HTTP. Only the wire raises these; the connection is closed after the answer."""

from __future__ import annotations

from slipstream.core.errors import RequestError

__all__ = ["HeadersTooLarge", "MalformedRequest"]


class MalformedRequest(RequestError):
    """The bytes are not an HTTP/1.1 request."""


class HeadersTooLarge(RequestError):
    """The request's line and headers, or its trailers and chunk extensions, are over the configured limit."""
