"""Requests that a browser was led to: a name that resolves to this machine is no permission to ask it.

A page on the web can make its own name resolve to 127.0.0.1 and then read what answers there (DNS rebinding). Its
requests still bear its own name, so that without a token only the names of loopback are answered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from slipstream.config.values import is_loopback_name

__all__ = ["loopback_names_only"]


@web.middleware
async def loopback_names_only(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Lets in requests to a loopback name or address, and answers 403 to all others. No browser leaves the name out."""
    host = request.headers.get("host")
    if host is None or is_loopback_name(host):
        return await handler(request)
    sentence = (
        "without a token the admin API answers only to localhost and loopback addresses, whatever else may lead here; "
        "ask it by one of those, or configure admin.token"
    )
    return web.Response(
        status=403, body=msgspec.json.encode({"error": {"message": sentence}}), content_type="application/json"
    )
