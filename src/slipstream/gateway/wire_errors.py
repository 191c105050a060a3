"""What ends a client's connection after the answer: requests that are not acceptable HTTP, and clients too many."""

from __future__ import annotations

from slipstream.core.errors import PlacementError, RequestError

__all__ = ["HeadersTooLarge", "MalformedRequest", "RequestTimedOut", "TooManyConnections"]


class MalformedRequest(RequestError):
    """The bytes are not an HTTP/1.1 request."""


class HeadersTooLarge(RequestError):
    """The request's line and headers, or its trailers and chunk extensions, are over the configured limit."""


class RequestTimedOut(RequestError):
    """The request began to come and did not come whole in time."""


class TooManyConnections(PlacementError):
    """As many clients are connected as the configuration or the system's descriptors allow."""
