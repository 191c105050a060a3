"""Who may look and change: the bearer of a token, where one is configured."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from slipstream.core.keys import digest_of

__all__ = ["OPEN_PATHS", "token_required"]

OPEN_PATHS = frozenset({"/health"})
"""What orchestrators ask without a token: it says that the process serves, and nothing else."""


def token_required(token: str) -> Middleware:
    """Lets in requests with ``authorization: Bearer`` and this token, and answers 401 to all others.

    Digests are compared, in constant time: how long it takes tells neither the token's length nor its beginning.
    """
    digest = digest_of(token.encode())

    @web.middleware
    async def check(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.path in OPEN_PATHS or hmac.compare_digest(_presented(request), digest):
            return await handler(request)
        sentence = "the admin API needs its token: send it as 'authorization: Bearer …'"
        return web.Response(
            status=401,
            body=msgspec.json.encode({"error": {"message": sentence}}),
            content_type="application/json",
            headers={"www-authenticate": "Bearer"},
        )

    return check


def _presented(request: web.Request) -> bytes:
    """The digest of the token that a request bears, or of nothing."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return digest_of(token.strip().encode(errors="surrogateescape") if scheme.lower() == "bearer" else b"")
