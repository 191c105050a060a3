"""A server for commands that run their own event loop: it lives on one in another thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any

__all__ = ["in_thread"]


@contextmanager
def in_thread(server: Callable[[], AbstractAsyncContextManager[Any]]) -> Iterator[Any]:
    """What the context manager gives, until the block ends."""
    given: list[Any] = []
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve() -> None:
        async with server() as one:
            given.append(one)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), name="server of a test")
    thread.start()
    try:
        assert ready.wait(30.0), "the server did not start"
        yield given[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(30.0)
        loop.close()
