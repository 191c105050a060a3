"""Sends planned requests, so many at a time, and tells what became of each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from time import monotonic

import aiohttp

from slipstream.load.request import PlannedRequest
from slipstream.load.result import LoadResult
from slipstream.load.sending import Clock, completions_url, send

__all__ = ["Level", "drive"]


@dataclass(frozen=True, slots=True)
class Level:
    """A step of a schedule: the next ``requests`` requests by ``concurrency`` clients, each one request at a time."""

    concurrency: int
    requests: int

    def __post_init__(self) -> None:
        if self.concurrency < 1 or self.requests < 0:
            raise ValueError("a level needs at least one client, and not less than no requests")


async def drive(
    base_url: str,
    requests: Sequence[PlannedRequest],
    levels: Sequence[Level],
    *,
    on_result: Callable[[LoadResult], None] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
    clock: Clock = monotonic,
) -> list[LoadResult]:
    """Send ``requests`` in their order, level by level, and return the results in the order they came in.

    ``base_url`` is what an OpenAI client would be given (``http://HOST:PORT/v1``). A level starts when the one before
    has ended. Each client keeps its own connection from one request to the next. ``on_result`` is called as each
    request ends. ``headers`` go along with each. ``timeout_s`` is for one whole answer. A request that fails is a
    result too, nothing is raised for it and it is not sent again. ``ValueError`` when the levels do not add up to the
    requests.
    """
    if sum(level.requests for level in levels) != len(requests):
        raise ValueError(f"the levels add up to another number than the {len(requests)} requests")
    url = completions_url(base_url)
    results: list[LoadResult] = []
    waiting = iter(enumerate(requests))

    async def work(session: aiohttp.ClientSession, level: Level, share: Iterator[tuple[int, PlannedRequest]]) -> None:
        for position, request in share:
            result = await send(session, url, request, clock, position=position, concurrency=level.concurrency)
            results.append(result)
            if on_result is not None:
                on_result(result)

    most = max((min(level.concurrency, level.requests) for level in levels), default=0)
    async with _clients(most, timeout_s, headers) as sessions:
        for level in levels:
            # All clients of a level take from one iterator: whoever is free sends the next.
            share = iter([next(waiting) for _ in range(level.requests)])
            async with asyncio.TaskGroup() as group:
                for session in sessions[: level.concurrency]:
                    group.create_task(work(session, level, share))
    return results


@asynccontextmanager
async def _clients(
    count: int, timeout_s: float, headers: Mapping[str, str] | None
) -> AsyncIterator[list[aiohttp.ClientSession]]:
    async with AsyncExitStack() as stack:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        yield [
            await stack.enter_async_context(
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1), timeout=timeout, headers=headers)
            )
            for _ in range(count)
        ]
