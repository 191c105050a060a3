"""Who may ask the agent: the bearer of its token; without one, whoever asks this machine by its name."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from slipstream.agent.problem import problem
from slipstream.config.values import is_loopback
from slipstream.core.keys import digest_of

__all__ = ["guarded"]

OPEN_PATHS: Final = frozenset({"/health"})
"""What orchestrators ask, by any name and without a token: it says that the agent serves, nothing of its node."""


def guarded(token: str | None) -> Middleware:
    """Lets in requests with ``authorization: Bearer`` and ``token``; where that is ``None``, those to a loopback name
    or address. A page on the web can make its own name lead here, but not call itself localhost. Digests are
    compared, in constant time.
    """

    @web.middleware
    async def check(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.path in OPEN_PATHS:
            return await handler(request)
        if token is None:
            if _names_this_machine(request.headers.get("host", "localhost")):
                return await handler(request)
            return problem(
                403, "without a token the agent answers only to localhost and loopback addresses", "no_token"
            )
        if hmac.compare_digest(_presented(request), digest_of(token.encode())):
            return await handler(request)
        refusal = problem(401, "the agent needs its token: send it as 'authorization: Bearer …'", "invalid_token")
        refusal.headers["www-authenticate"] = "Bearer"
        return refusal

    return check


def _presented(request: web.Request) -> bytes:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return digest_of(token.strip().encode(errors="surrogateescape") if scheme.lower() == "bearer" else b"")


def _names_this_machine(host: str) -> bool:
    try:
        return is_loopback((urlsplit(f"//{host}").hostname or "").rstrip("."))
    except ValueError:
        return False
