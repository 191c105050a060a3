"""How long and how much the data plane waits for and holds."""

from __future__ import annotations

import resource
from dataclasses import dataclass

__all__ = ["Limits", "connections_allowed"]

_OTHER_DESCRIPTORS = 64
"""For the nodes' pages, the admin API, files and what Python itself opens."""


def connections_allowed() -> int:
    """How many clients this process has descriptors for: each may need one more, to a node. At least 1."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, (min(soft, 2_000_000) - _OTHER_DESCRIPTORS) // 2) if soft >= 0 else 1_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds.

    ``connect_s`` bounds making a connection to a node; ``first_byte_streamed_s`` and ``first_byte_unstreamed_s`` the
    wait for a node's answer; ``idle_s`` the gap between a node's chunks, and between a client's bytes while it sends a
    body; ``client_head_s`` the time from the first to the last byte of a client's head; ``write_s`` how long a peer may
    take none of our bytes; ``drain_s`` how long a node that leaves the fleet may go on with what it has. ``retries`` is
    how many further nodes are tried. Beyond ``max_connections`` clients, further ones are turned away; as each has one
    request answered at a time, it is also the most requests being answered.
    While every node is full, ``queue_size`` requests wait (0: none) for ``queue_timeout_s``.
    ``client_keep_alive_s`` and ``node_keep_alive_s`` bound how long an unused connection is kept; the second stays
    under the 5 s after which uvicorn closes its side.
    """

    max_body_bytes: int = 32 * 1024 * 1024
    max_header_bytes: int = 32 * 1024
    max_connections: int = 10_000
    connect_s: float = 2.0
    first_byte_streamed_s: float = 120.0
    first_byte_unstreamed_s: float = 600.0
    idle_s: float = 60.0
    write_s: float = 30.0
    drain_s: float = 600.0
    client_head_s: float = 10.0
    retries: int = 2
    queue_size: int = 256
    queue_timeout_s: float = 10.0
    client_keep_alive_s: float = 75.0
    node_keep_alive_s: float = 4.0
