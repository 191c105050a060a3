"""A server whose answers a test writes, path by path."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web

__all__ = ["serving"]


@asynccontextmanager
async def serving(handlers: Mapping[str, Callable[[web.Request], Awaitable[web.StreamResponse]]]) -> AsyncIterator[str]:
    """Serve by ``handlers``, whatever the method; yields the base URL. What still runs at the end is cut."""
    application = web.Application()
    for path, handler in handlers.items():
        application.router.add_route("*", path, handler)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.01)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
