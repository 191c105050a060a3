"""Whole answers, with the heads that the dialect's server writes."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus

import msgspec

from slipstream.emulate.connection import Connection, Request
from slipstream.emulate.dialect import JSON, Dialect
from slipstream.emulate.faults import Status

__all__ = ["Replies"]

PHRASES = {status.value: status.phrase for status in HTTPStatus}


class Replies:
    """``unix_time`` tells the time of day for the ``date`` that some servers write."""

    def __init__(self, dialect: Dialect, unix_time: Callable[[], float]) -> None:
        self._dialect = dialect
        self._unix_time = unix_time

    def stream_head(self, *, keep_alive: bool) -> bytes:
        """The head of a stream of events."""
        return self._head(200, self._dialect.stream_headers, keep_alive=keep_alive)

    def body_head(self, length: int, *, keep_alive: bool) -> bytes:
        """The head of an unstreamed completion of ``length`` bytes."""
        return self._head(200, _body_lines(self._dialect.json_type, length), keep_alive=keep_alive)

    def reply(
        self, connection: Connection, request: Request, status: int, content_type: str, body: bytes, headers: str = ""
    ) -> None:
        """Answer and be ready for the next request. ``headers`` are further lines, each with its end."""
        keep_alive = request.keep_alive and not (status >= HTTPStatus.BAD_REQUEST and self._dialect.error_closes)
        lines = _body_lines(content_type, len(body)) + headers.encode("latin-1", "replace")
        head = self._head(status, lines, keep_alive=keep_alive)
        connection.write(head if request.method == "HEAD" else head + body)
        connection.finish(keep_alive=keep_alive)

    def reply_json(
        self, connection: Connection, request: Request, status: int, value: object, content_type: str = JSON
    ) -> None:
        self.reply(connection, request, status, content_type, msgspec.json.encode(value))

    def reply_fault(self, connection: Connection, request: Request, fault: Status) -> None:
        """Answer as the fault says."""
        as_it_is = isinstance(fault.body, str)
        body = fault.body.encode() if as_it_is else msgspec.json.encode(fault.body)
        content_type = "text/plain" if as_it_is else JSON
        headers = ""
        for name, value in fault.headers.items():
            if name.lower() == "content-type":
                content_type = value
            else:
                headers += f"{name}: {value}\r\n"
        self.reply(connection, request, fault.status, content_type, body, headers)

    def _head(self, status: int, lines: bytes, *, keep_alive: bool) -> bytes:
        dialect = self._dialect
        line = f"HTTP/1.1 {status} {PHRASES.get(status, 'Unknown')}\r\n".encode()
        date = f"date: {formatdate(self._unix_time(), usegmt=True)}\r\n".encode() if dialect.dated else b""
        ending = dialect.kept_headers if keep_alive else b"connection: close\r\n"
        return b"".join((line, date, dialect.server_headers, lines, ending, b"\r\n"))


def _body_lines(content_type: str, length: int) -> bytes:
    return f"content-length: {length}\r\ncontent-type: {content_type}\r\n".encode()
