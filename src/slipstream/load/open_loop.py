"""Sends requests at their times, however many are under way: what a crowd does that knows nothing of one another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import monotonic

import aiohttp

from slipstream.load.request import PlannedRequest
from slipstream.load.result import LoadResult
from slipstream.load.sending import Clock, completions_url, send

__all__ = ["drive_at_times"]

KEEP_ALIVE_S = 3.0
"""Servers close connections that were idle for 5 s (uvicorn) or more; a request sent in that moment would be lost."""


async def drive_at_times(
    base_url: str,
    at_s: Sequence[float],
    request_at: Callable[[int], PlannedRequest],
    *,
    on_result: Callable[[LoadResult], None],
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
    clock: Clock = monotonic,
) -> None:
    """Send ``request_at(position)`` at ``at_s[position]`` seconds from now, which rise, and wait for all answers.

    A request's latency counts from the time it was to be sent, whether or not it was: who is late has had a slow
    client, and the server has had it easier than it should (coordinated omission). ``on_result`` is called as each
    request ends; how late it was is ``sent_at - intended_at``. ``headers``, ``timeout_s`` and failures as in `drive`.
    ``clock`` must be in step with the event loop's.
    """
    url = completions_url(base_url)

    async def one(position: int, intended_at: float) -> None:
        request = request_at(position)
        on_result(await send(session, url, request, clock, position=position, intended_at=intended_at))

    async with (
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
            timeout=aiohttp.ClientTimeout(total=timeout_s),
            headers=headers,
        ) as session,
        asyncio.TaskGroup() as group,
    ):
        start = clock()
        for position, second in enumerate(at_s):
            while (early_s := start + second - clock()) > 0.0:  # noqa: ASYNC110 - timers are rounded, and may be early
                await asyncio.sleep(early_s)
            group.create_task(one(position, start + second))
