"""A bell that wakes everybody who waits for a change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["Changes"]


class Changes:
    """Counts changes; whoever waits is woken by each. All methods belong to the event loop's thread."""

    def __init__(self) -> None:
        self.count = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def tell(self) -> None:
        """Something has changed."""
        self.count += 1
        waiting, self._waiting = self._waiting, set()
        for one in waiting:
            if not one.done():
                one.set_result(None)

    async def beyond(self, count: int, timeout_s: float | None = None) -> bool:
        """Wait until there have been more changes than ``count``. ``False`` when ``timeout_s`` passed before."""
        if self.count <= count:
            told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(told)
            try:
                await asyncio.wait([told], timeout=timeout_s)
            finally:
                self._waiting.discard(told)
        return self.count > count

    async def until(self, condition: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until ``condition`` holds, which is looked at after each change. ``False`` when the time ran out."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        while not condition():
            left_s = None if deadline is None else deadline - loop.time()
            if left_s is not None and left_s <= 0.0:
                return False
            await self.beyond(self.count, left_s)
        return True
