"""A port that stays a node's own while the node is down."""

from __future__ import annotations

import socket

from slipstream.embedded.errors import PortTaken

__all__ = ["LOOPBACK", "reserve_port"]

LOOPBACK = "127.0.0.1"


def reserve_port(port: int | None = None) -> socket.socket:
    """Bind a loopback port, and don't listen on it; ``None`` takes a free one. Closing the socket gives it back.

    As long as the socket is open the kernel gives the port to nobody else, not even as the local end of an outgoing
    connection, and refuses connections to it unless a process that sets ``SO_REUSEPORT`` listens there too: the node.

    Raises:
        PortTaken: the given port is in use, or may not be used by this user.
    """
    if port is not None:
        _require_free(port)
    reservation = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reservation.bind((LOOPBACK, port or 0))
    return reservation


def _require_free(port: int) -> None:
    # Without SO_REUSEPORT: with it, another fleet of the same user would share the port and half the requests.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise PortTaken(f"Port {port} of {LOOPBACK} can not be used: {error.strerror}.") from error
