"""Which headers cross the gateway, in which direction. Names are lower-case bytes."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from slipstream.core.keys import Key

__all__ = ["REQUEST_ID", "Answer", "Headers", "RequestHead", "read_answer", "status_line"]

Headers = list[tuple[bytes, bytes]]

REQUEST_ID: Final = b"x-request-id"

REQUEST_ALLOWED: Final = frozenset(
    {
        b"accept",
        b"anthropic-beta",
        b"anthropic-version",
        b"content-encoding",
        b"content-type",
        b"traceparent",
        b"tracestate",
        b"user-agent",
        b"x-session-id",
        b"x-vllm-priority",
    }
)
"""What a node gets to see of a client's headers. Credentials, cookies and addresses are not among them, nor
``accept-encoding`` (a compressed answer could not be read for statistics) or ``x-conversation-id`` (with it llama.cpp
goes on generating after the client left)."""

REQUEST_ALLOWED_PREFIX: Final = b"openai-"

RESPONSE_DROPPED: Final = frozenset(
    {
        b"connection",
        b"content-length",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-connection",
        b"set-cookie",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        REQUEST_ID,
        b"x-slipstream-category",
        b"x-slipstream-node",
        b"x-slipstream-pool",
        b"x-slipstream-reason",
    }
)
"""Hop-by-hop headers, those the gateway writes itself, and cookies, which would be a node's for every node."""

_NOT_ENCODED: Final = (b"", b"identity")
_PLAIN_CONNECTION: Final = (b"close", b"keep-alive")
_SANE_REQUEST_ID: Final = re.compile(rb"[\x21-\x7e]{1,128}")
_STATUS_LINES: Final = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}


def status_line(status: int) -> bytes:
    """The first line of an answer, ended."""
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


class RequestHead:
    """The headers of a client's request, read.

    ``lines`` are the header lines that a node gets. ``length`` is the body's, ``None`` without ``content-length``.
    ``expects``: the client waits for a sign before it sends the body. ``request_id`` is the client's own when it is
    sane; ``category`` and ``traffic_class`` what it claims the request to be, ``session`` the conversation that it
    belongs to, ``credential`` what it says to be known by; each ``None`` when absent. ``hosts`` is how many ``host``
    lines there are. ``fault`` says what makes the body's end doubtful, ``None`` if nothing. ``key`` is the API key that
    the credential is, according to ``known_to``: to be asked by that key ring alone.
    """

    __slots__ = (
        "category",
        "chunked",
        "credential",
        "expects",
        "fault",
        "hosts",
        "key",
        "known_to",
        "length",
        "lines",
        "request_id",
        "session",
        "traffic_class",
    )

    def __init__(self, headers: Headers) -> None:
        lines: list[bytes] = []
        options: bytes | None = None
        self.length: int | None = None
        self.chunked = self.expects = False
        self.hosts = 0
        self.fault: str | None = None
        self.request_id: str | None = None
        self.category: str | None = None
        self.traffic_class: str | None = None
        self.session: bytes | None = None
        self.credential: bytes | None = None
        self.key: Key | None = None
        self.known_to: object = None
        for name, value in headers:
            lower = name.lower()
            if lower in REQUEST_ALLOWED or lower.startswith(REQUEST_ALLOWED_PREFIX):
                lines.append(b"%b: %b\r\n" % (lower, value))
                if lower == b"x-session-id":
                    self.session = value.rstrip(b" \t") or None
            elif lower == b"host":
                self.hosts += 1
            elif lower == b"content-length":
                self.length = int(value)
            elif lower == b"authorization":
                if value[:7].lower() == b"bearer ":
                    self.credential = value[7:].strip(b" \t")
            elif lower == b"x-api-key":
                if self.credential is None:
                    self.credential = value.strip(b" \t")
            elif lower == b"transfer-encoding":
                # Whoever stands between may know the other coding and read the body's end differently (RFC 9112, 6.1).
                if self.chunked or value.strip(b" \t").lower() != b"chunked":
                    self.fault = "its Transfer-Encoding is not just chunked"
                self.chunked = True
            elif lower == b"expect":
                self.expects = value.strip().lower() == b"100-continue"
            elif lower == REQUEST_ID:
                value = value.rstrip(b" \t")
                self.request_id = value.decode("ascii") if _SANE_REQUEST_ID.fullmatch(value) else None
            elif lower == b"x-slipstream-category":
                self.category = value.rstrip(b" \t").decode("latin-1")
            elif lower == b"x-slipstream-class":
                self.traffic_class = value.rstrip(b" \t").decode("latin-1")
            elif lower == b"connection" and value not in _PLAIN_CONNECTION:
                options = value if options is None else options + b"," + value
        if options is not None:
            lines = _without(lines, options)
        self.lines = b"".join(lines)


class Answer:
    """The head of a node's answer, read.

    ``lines`` are the header lines that the client gets, spelled as the node spelled them. ``length`` is the body's,
    ``None`` when it is chunked or ends with the connection. ``events``: the body is a stream of server-sent events.
    ``encoded``: the body is compressed, so that it can only be passed on; it counts as no events then.
    ``doubtful``: where it ends could be seen differently by whoever stands between.
    """

    __slots__ = ("chunked", "doubtful", "encoded", "events", "length", "lines", "status")

    def __init__(
        self,
        status: int,
        lines: bytes,
        length: int | None,
        *,
        chunked: bool,
        events: bool,
        encoded: bool = False,
        doubtful: bool = False,
    ) -> None:
        self.status = status
        self.lines = lines
        self.length = length
        self.chunked = chunked
        self.events = events and not encoded
        self.encoded = encoded
        self.doubtful = doubtful


def read_answer(status: int, headers: Headers) -> Answer:
    """The headers of a node's answer, as far as the gateway and its client are concerned."""
    length: int | None = None
    chunked = events = encoded = doubtful = False
    lines: list[bytes] = []
    options: bytes | None = None
    for name, value in headers:
        lower = name.lower()
        if lower not in RESPONSE_DROPPED:
            lines.append(b"%b: %b\r\n" % (name, value))
            if lower == b"content-type":
                events = value[:17].lower() == b"text/event-stream"
            elif lower == b"content-encoding":
                encoded = value.strip(b" \t").lower() not in _NOT_ENCODED
        elif lower == b"content-length":
            length = int(value)
        elif lower == b"transfer-encoding":
            doubtful = chunked or value.strip(b" \t").lower() != b"chunked"
            chunked = True
        elif lower == b"connection" and value not in _PLAIN_CONNECTION:
            options = value if options is None else options + b"," + value
    if options is not None:
        lines = _without(lines, options)
    return Answer(status, b"".join(lines), length, chunked=chunked, events=events, encoded=encoded, doubtful=doubtful)


def _without(lines: list[bytes], options: bytes) -> list[bytes]:
    """The header lines without those that ``connection`` names as meant for this hop only."""
    named = {option.strip().lower() for option in options.split(b",")}
    return [line for line in lines if line.partition(b":")[0].lower() not in named]
