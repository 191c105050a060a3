"""How chunks are framed on the wire (RFC 9112, section 7.1). Size lines are few and chunks many: they are looked up."""

from __future__ import annotations

from typing import Final

__all__ = ["framed", "size_line"]

_KNOWN: Final = 8192
_BY_SIZE: Final = [b"%x\r\n" % size for size in range(_KNOWN)]


def _by_length() -> list[bytes]:
    """Size lines by the length of the whole chunk: only one can be true."""
    lines = [b""] * _KNOWN
    for size, line in enumerate(_BY_SIZE):
        length = len(line) + size + 2
        if size > 1 and length < _KNOWN:
            lines[length] = line
    return lines


_BY_LENGTH: Final = _by_length()


def framed(content: bytes) -> bytes:
    """One chunk of this content, which must not be empty: that would end the body."""
    size = len(content)
    return b"%b%b\r\n" % (_BY_SIZE[size] if size < _KNOWN else b"%x\r\n" % size, content)


def size_line(length: int) -> bytes:
    """The line that a chunk begins with which is so long as a whole; empty where none can be, and not for those of over
    8 KiB or of less content than two bytes.
    """
    return _BY_LENGTH[length] if length < _KNOWN else b""
