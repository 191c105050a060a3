"""Answers that the gateway makes itself."""

from __future__ import annotations

from typing import Final

from slipstream.core.errors import SlipstreamError
from slipstream.gateway.account import tell_unread
from slipstream.gateway.dialect import errors_of
from slipstream.gateway.headers import status_line
from slipstream.gateway.ports import Ports
from slipstream.gateway.problems import problem_headers, row_of
from slipstream.gateway.request import Request
from slipstream.gateway.wire import ClientConnection

__all__ = ["reply", "reply_problem"]

_NO_CONTENT: Final = 204


def reply(
    client: ClientConnection,
    request: Request | None,
    status: int,
    body: bytes,
    extra: bytes = b"",
    error: SlipstreamError | None = None,
) -> None:
    """Write a whole JSON answer and finish the request, ``None`` if it was unreadable.

    ``extra`` are header lines, ``error`` is what the answer says if it says one.
    """
    lines = [status_line(status), extra]
    if status != _NO_CONTENT:
        lines.append(b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body))
    keep_alive = request is not None and request.keep_alive
    if request is not None and request.request_id:
        lines.append(b"x-request-id: %b\r\n" % request.request_id.encode())
    lines.append(b"\r\n" if keep_alive else b"connection: close\r\n\r\n")
    if request is None or request.method != "HEAD":
        lines.append(body)
    client.write(b"".join(lines))
    try:
        if request is not None and request.account is not None:
            request.account.close(status, error)
    finally:  # whatever becomes of what is told of it
        client.finish(keep_alive=keep_alive)


def reply_problem(ports: Ports, client: ClientConnection, request: Request | None, error: SlipstreamError) -> None:
    """Answer with an error, in the shape that the path's clients expect, and tell the observer."""
    path = request.path if request is not None else ""
    ports.observer.rejected(error, path, ports.clock())
    if request is None:
        tell_unread(ports, error)
    reply(client, request, row_of(error).status, errors_of(path).body(error), problem_headers(error), error)
