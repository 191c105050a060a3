"""Bytes that are no request: answered as everything here is, and written to no log, since they may hold a token."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from fleets import dispatcher_of, fleet_of
from slipstream.admin import Admin, serve_admin
from slipstream.telemetry import FleetCollector, Instruments

HEAD = b"POST /overrides HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
TOKEN = b"authorization: Bearer my-secret-token"
CASES = {
    "a control byte behind the token": b"GET /fleet HTTP/1.1\r\nhost: localhost\r\n" + TOKEN + b"\x01\r\n\r\n",
    "a line feed alone": b"GET /fleet HTTP/1.1\nhost: localhost\n" + TOKEN + b"\n\n",
    "a token that is too long": b"GET /fleet HTTP/1.1\r\nhost: localhost\r\n" + TOKEN + b"x" * 9000 + b"\r\n\r\n",
    "no host": b"GET /fleet HTTP/1.1\r\n" + TOKEN + b"\r\n\r\n",
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


@pytest.mark.parametrize("data", CASES.values(), ids=CASES.keys())
async def test_bytes_that_are_no_request_are_a_400_and_in_no_log(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    dispatcher = dispatcher_of(fleet_of())
    collector = FleetCollector(dispatcher, Instruments(), ["chat"], lambda: 0.5, lambda: None)
    admin = Admin(dispatcher, collector, lambda: 0.5, version="1")
    with capture_logs() as logged:
        async with serve_admin(admin, "127.0.0.1", 0) as url, asyncio.timeout(10):
            address = urlsplit(url)
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            writer.write(data)
            head = await reader.readuntil(b"\r\n\r\n")
            body = json.loads(await reader.readuntil(b"}}"))
            writer.close()
    assert head.split()[1] == b"400"
    assert list(body["error"]) == ["message"]
    assert "secret" not in body["error"]["message"]
    assert (caplog.records, logged) == ([], [])
