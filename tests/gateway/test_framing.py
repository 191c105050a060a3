"""Chunks on the wire."""

from __future__ import annotations

import pytest

from slipstream.gateway.framing import framed, size_line


@pytest.mark.parametrize("size", [2, 15, 16, 255, 256, 4095, 4096, 8000])
def test_a_chunk_is_known_by_its_length(size: int) -> None:
    chunk = framed(b"x" * size)
    assert chunk == b"%x\r\n%b\r\n" % (size, b"x" * size)
    assert size_line(len(chunk)) == b"%x\r\n" % size


def test_a_long_chunk_is_framed_like_any_other_but_not_known() -> None:
    chunk = framed(b"x" * 10_000)
    assert chunk == b"2710\r\n%b\r\n" % (b"x" * 10_000)
    assert size_line(len(chunk)) == b""


@pytest.mark.parametrize("length", [0, 5, 6, 21])
def test_no_chunk_is_so_long(length: int) -> None:
    """21 bytes would be a size of one digit and 16 bytes, or one of two digits and 15."""
    assert size_line(length) == b""
