"""Bytes that are no request, most with a token in them; `/COMMAND` stands for a path that takes a body of JSON."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

__all__ = ["NO_REQUESTS", "answer_to"]

HEAD = b"POST /COMMAND HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
TOKEN = b"authorization: Bearer my-secret-token"
NO_REQUESTS = {
    "a control byte behind the token": b"GET /COMMAND HTTP/1.1\r\nhost: localhost\r\n" + TOKEN + b"\x01\r\n\r\n",
    "a line feed alone": b"GET /COMMAND HTTP/1.1\nhost: localhost\n" + TOKEN + b"\n\n",
    "a token that is too long": b"GET /COMMAND HTTP/1.1\r\nhost: localhost\r\n" + TOKEN + b"x" * 9000 + b"\r\n\r\n",
    "no host": b"GET /COMMAND HTTP/1.1\r\n" + TOKEN + b"\r\n\r\n",
    "two lengths": HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "a length and chunks": HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "too many headers": HEAD + b"a: my-secret-token\r\n" * 1000 + b"\r\n",
    "the hello of TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03my-secret-token",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a chunk size that is no number": HEAD + b"transfer-encoding: chunked\r\n\r\nmy-secret-token\r\n",
    "a chunk size that is no number, behind a chunk": HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\nxyz\r\n",
    "a compressed body that is none": HEAD + b"content-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc",
    "a compressed body": HEAD
    + b"content-encoding: deflate\r\ncontent-length: 10\r\n\r\nx\x9c\xab\xae\x05\x00\x01u\x00\xf9",
}


async def answer_to(url: str, data: bytes) -> tuple[int, dict[str, Any]]:
    """Status and JSON of what a server at ``url`` answers to these bytes."""
    address = urlsplit(url)
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(data)
        head = await reader.readuntil(b"\r\n\r\n")
        body = json.loads(await reader.readuntil(b"}}"))
        writer.close()
    return int(head.split()[1]), body
