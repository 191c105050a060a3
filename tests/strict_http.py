"""HTTP/1.1 read as RFC 9110 and 9112 have it, apart from the gateway's own parser: what fuzzing judges by.

Slow and plain on purpose. Three liberties are taken, since none of them moves the end of a message: empty lines before
a request and several spaces between the parts of its first line, both of which RFC 9112 allows, and the name of a
sister protocol in place of HTTP.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Ambiguous", "StrictAnswer", "StrictRequest", "read_answers", "read_requests"]

_REQUEST_LINE = re.compile(rb"([A-Z-]+) +([\x21\x22\x24-\x7e]+) +(?:HTTP|RTSP|ICE)/(1\.[01])")
_STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9]) [\x20-\x7e]*")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t\x20-\x7e\x80-\xff]*)")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]+)((?:;[\t\x20-\x7e\x80-\xff]+)?)")
_BODILESS = (204, 304)
_FRAMING = {b"content-length", b"transfer-encoding"}


class Ambiguous(ValueError):
    """The bytes are no HTTP, or could be read in two ways."""


@dataclass(frozen=True)
class StrictRequest:
    """A whole request. ``target`` is path and query, whatever form it was sent in."""

    method: str
    target: str
    body: bytes


@dataclass(frozen=True)
class StrictAnswer:
    """A whole answer; names of headers are in lower case."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


class _Bytes:
    """A place in a row of bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def line(self) -> bytes:
        """Up to the next CRLF, which is taken too. Raises EOFError when there is none."""
        end = self.data.find(b"\r\n", self.at)
        if end < 0:
            raise EOFError
        line = self.data[self.at : end]
        self.at = end + 2
        return line

    def take(self, count: int) -> bytes:
        """So many bytes. Raises EOFError when there are fewer."""
        if len(self.data) - self.at < count:
            raise EOFError
        self.at += count
        return self.data[self.at - count : self.at]


def read_requests(data: bytes) -> list[StrictRequest]:
    """The whole requests at the beginning of what a client sent, up to the first doubtful, unfinished or last one."""
    source = _Bytes(data)
    found: list[StrictRequest] = []
    try:
        while True:
            request, last = _request(source)
            found.append(request)
            if last:
                return found
    except (Ambiguous, EOFError):
        return found


def _request(source: _Bytes) -> tuple[StrictRequest, bool]:
    while source.data[source.at : source.at + 1] in (b"\r", b"\n"):
        source.at += 1
    line = _REQUEST_LINE.fullmatch(source.line())
    if line is None:
        raise Ambiguous("a first line")
    method, target, version = line.groups()
    fields = _fields(source)
    values = {name: [value for other, value in fields if other == name] for name, _ in fields}
    hosts, lengths, codings = (values.get(name, []) for name in (b"host", b"content-length", b"transfer-encoding"))
    if len(hosts) > 1 or (version == b"1.1" and not hosts):
        raise Ambiguous("a host")
    if len(lengths) + len(codings) > 1:
        raise Ambiguous("two ends")
    body = b""
    if codings:
        if version == b"1.0" or codings[0].lower() != b"chunked":
            raise Ambiguous("a coding")
        body = _chunks(source)
    elif lengths:
        body = source.take(_length(lengths[0]))
    options = [option.strip().lower() for value in values.get(b"connection", []) for option in value.split(b",")]
    last = version == b"1.0" or b"close" in options
    return StrictRequest(method.decode(), _origin_form(target), body), last


def _fields(source: _Bytes) -> list[tuple[bytes, bytes]]:
    found = []
    while line := source.line():
        field = _FIELD.fullmatch(line)
        if field is None:
            raise Ambiguous("a header")
        found.append((field[1].lower(), field[2].strip(b" \t")))
    return found


def _length(value: bytes) -> int:
    if not re.fullmatch(rb"[0-9]+", value):
        raise Ambiguous("a length")
    return int(value)


def _chunks(source: _Bytes) -> bytes:
    body = b""
    while True:
        size = _CHUNK_SIZE.fullmatch(source.line())
        if size is None:
            raise Ambiguous("a chunk size")
        count = int(size[1], 16)
        if not count:
            break
        body += source.take(count)
        if source.take(2) != b"\r\n":
            raise Ambiguous("an end of a chunk")
    if _FRAMING & {name for name, _ in _fields(source)}:
        raise Ambiguous("a trailer")
    return body


def _origin_form(target: bytes) -> str:
    text = target.decode("ascii")
    whole = re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?]*(/[^?]*)?(\?.*)?", text)
    return text if whole is None else (whole[1] or "/") + (whole[2] or "")


def read_answers(data: bytes, methods: list[str]) -> tuple[list[StrictAnswer], bytes]:
    """The whole answers a client got, interim ones left out, and the bytes behind them.

    ``methods`` are those of its requests, since an answer to HEAD has no body. Raises Ambiguous for what is no answer.
    """
    source = _Bytes(data)
    found: list[StrictAnswer] = []
    whole = 0
    try:
        while True:
            status_line = _STATUS_LINE.fullmatch(source.line())
            if status_line is None:
                raise Ambiguous(f"a status line behind {len(found)} answers")
            status = int(status_line[1])
            fields = _fields(source)
            headers = dict(fields)
            if sum(name in _FRAMING for name, _ in fields) > 1:
                raise Ambiguous("an answer with two ends")
            if status >= 200:
                body = _answer_body(source, status, headers, methods[len(found)] if len(found) < len(methods) else "")
                found.append(StrictAnswer(status, headers, body))
            whole = source.at
    except EOFError:
        return found, data[whole:]


def _answer_body(source: _Bytes, status: int, headers: dict[bytes, bytes], method: str) -> bytes:
    if status in _BODILESS or method == "HEAD":
        return b""
    if b"transfer-encoding" in headers:
        if headers[b"transfer-encoding"] != b"chunked":
            raise Ambiguous("an answer's coding")
        return _chunks(source)
    if b"content-length" in headers:
        return source.take(_length(headers[b"content-length"]))
    return source.take(len(source.data) - source.at)
