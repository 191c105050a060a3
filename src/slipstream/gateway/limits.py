"""How long and how much the data plane waits for and holds."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds.

    ``connect_s`` bounds making a connection to a node; ``first_byte_streamed_s`` and ``first_byte_unstreamed_s`` the
    wait for a node's answer; ``idle_s`` the gap between a node's chunks, and between a client's bytes while it sends a
    request; ``write_s`` how long a peer may leave our bytes unread. ``retries`` is how many further nodes are tried.
    ``client_keep_alive_s`` and ``node_keep_alive_s`` bound how long an unused connection is kept; the second stays
    under the 5 s after which uvicorn closes its side.
    """

    max_body_bytes: int = 32 * 1024 * 1024
    max_header_bytes: int = 32 * 1024
    connect_s: float = 2.0
    first_byte_streamed_s: float = 120.0
    first_byte_unstreamed_s: float = 600.0
    idle_s: float = 60.0
    write_s: float = 30.0
    retries: int = 2
    client_keep_alive_s: float = 75.0
    node_keep_alive_s: float = 4.0
