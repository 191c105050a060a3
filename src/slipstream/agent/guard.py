"""Who may ask the agent: the bearer of its token; without one, whoever asks this machine by its name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware

from slipstream.agent.problem import problem
from slipstream.config.values import is_loopback_name
from slipstream.core.keys import is_bearer

__all__ = ["guarded"]

OPEN_PATHS: Final = frozenset({"/health"})
"""What orchestrators ask, by any name and without a token: it says that the agent serves, nothing of its node."""


def guarded(token: str | None) -> Middleware:
    """Lets in requests with ``authorization: Bearer`` and ``token``; where that is ``None``, those to a loopback name
    or address.
    """

    @web.middleware
    async def check(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.path in OPEN_PATHS:
            return await handler(request)
        if token is None:
            if is_loopback_name(request.headers.get("host", "localhost")):
                return await handler(request)
            return problem(
                403, "without a token the agent answers only to localhost and loopback addresses", "no_token"
            )
        if is_bearer(request.headers.get("authorization", ""), token):
            return await handler(request)
        refusal = problem(401, "the agent needs its token: send it as 'authorization: Bearer …'", "invalid_token")
        refusal.headers["www-authenticate"] = "Bearer"
        return refusal

    return check
