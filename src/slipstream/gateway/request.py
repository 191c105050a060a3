"""A client's request, as the wire hands it over."""

from __future__ import annotations

from slipstream.gateway.account import Account
from slipstream.gateway.headers import RequestHead

__all__ = ["Request"]


class Request:
    """One request, whole.

    ``target`` is path and query as sent, ``path`` without the query. ``chunks``: the client understands chunked
    answers. ``request_id`` is empty until the handler gives it one, unless the client did. ``account`` is what is noted
    of it, ``None`` when nobody wants to know.
    """

    __slots__ = (
        "account",
        "body",
        "chunks",
        "head",
        "keep_alive",
        "method",
        "path",
        "received_at",
        "request_id",
        "target",
    )

    def __init__(
        self,
        method: str,
        target: bytes,
        path: str,
        head: RequestHead,
        *,
        chunks: bool,
        keep_alive: bool,
        received_at: float,
    ) -> None:
        self.method = method
        self.target = target
        self.path = path
        self.head = head
        self.chunks = chunks
        self.keep_alive = keep_alive
        self.received_at = received_at
        self.request_id = head.request_id or ""
        self.body = b""
        self.account: Account | None = None

    def again(self, received_at: float) -> Request:
        """Another request with the same head, as yet without a body."""
        return Request(
            self.method,
            self.target,
            self.path,
            self.head,
            chunks=self.chunks,
            keep_alive=self.keep_alive,
            received_at=received_at,
        )
