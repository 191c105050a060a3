"""What the kernel knows of a connection and a transport does not tell."""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
from typing import Any, Final

__all__ = ["peer_left", "unread_bytes"]

_LEFT: Final = (7, 8)  # TCP_CLOSE and TCP_CLOSE_WAIT


def unread_bytes(transport: Any) -> int:
    """How much of what was written the peer has not taken, 0 when the kernel has it all."""
    unsent: int = transport.get_write_buffer_size()
    if unsent:  # the kernel's share tells of a reader too slow to make room for more
        queued = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
        unsent += struct.unpack("i", queued)[0]
    return unsent


def peer_left(transport: Any) -> bool:
    """Whether the peer has closed its side. A transport that is not reading does not notice."""
    info = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    return info[0] in _LEFT
