"""Background tasks that do not end by themselves, whatever goes wrong in them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

__all__ = ["keep_running"]

RESTART_AFTER_S = 1.0

log = structlog.get_logger(__name__)


async def keep_running(
    task: str, run: Callable[[], Awaitable[None]], *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Run ``run`` until cancelled, anew after each time that it ends or breaks. ``task`` is its name in the log."""
    while True:
        try:
            await run()
        except Exception:
            # A bug of ours in one task must neither stop the others nor stay unseen.
            log.exception("task.crashed", task=task, restart_after_s=RESTART_AFTER_S)
        await sleep(RESTART_AFTER_S)
