"""Who may look and change: the bearer of a token, where one is configured; else who asks this machine by its name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from slipstream.admin.hosts import loopback_names_only
from slipstream.core.keys import is_bearer

__all__ = ["OPEN_PATHS", "token_required"]

OPEN_PATHS: Final = frozenset({"/health"})
"""What orchestrators ask, by any name and without a token: it says that the process serves, nothing of the fleet."""


def token_required(token: Callable[[], str | None]) -> Middleware:
    """Lets in requests with ``authorization: Bearer`` and the token that there is now, and answers 401 to all others;
    where there is ``None``, ``loopback_names_only``.
    """

    @web.middleware
    async def check(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        wanted = token()
        if request.path in OPEN_PATHS:
            return await handler(request)
        if wanted is None:
            return await loopback_names_only(request, handler)
        if is_bearer(request.headers.get("authorization", ""), wanted):
            return await handler(request)
        sentence = "the admin API needs its token: send it as 'authorization: Bearer …'"
        return web.Response(
            status=401,
            body=msgspec.json.encode({"error": {"message": sentence}}),
            content_type="application/json",
            headers={"www-authenticate": "Bearer"},
        )

    return check
