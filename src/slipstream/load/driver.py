"""Sends planned requests, so many at a time, and tells what became of each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from time import monotonic

import aiohttp

from slipstream.core.latency import latency_of
from slipstream.load.answer import StreamedAnswer, WholeAnswer
from slipstream.load.request import PlannedRequest
from slipstream.load.result import LoadResult

__all__ = ["Level", "drive"]

Clock = Callable[[], float]


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
    timeout_s: float = 120.0,
    clock: Clock = monotonic,
) -> list[LoadResult]:
    """Send ``requests`` in their order, level by level, and return the results in the order they came in.

    ``base_url`` is what an OpenAI client would be given (``http://HOST:PORT/v1``). A level starts when the one before
    has ended. Each client keeps its own connection from one request to the next. ``on_result`` is called as each
    request ends. ``timeout_s`` is for one whole answer. A request that fails is a result too, nothing is raised for it
    and it is not sent again. ``ValueError`` when the levels do not add up to the requests.
    """
    if sum(level.requests for level in levels) != len(requests):
        raise ValueError(f"the levels add up to another number than the {len(requests)} requests")
    url = f"{base_url.rstrip('/')}/chat/completions"
    results: list[LoadResult] = []
    waiting = iter(requests)

    async def work(session: aiohttp.ClientSession, concurrency: int, share: Iterator[PlannedRequest]) -> None:
        for request in share:
            result = await _send(session, url, request, concurrency, clock)
            results.append(result)
            if on_result is not None:
                on_result(result)

    most = max((min(level.concurrency, level.requests) for level in levels), default=0)
    async with _clients(most, timeout_s) as sessions:
        for level in levels:
            # All clients of a level take from one iterator: whoever is free sends the next.
            share = iter([next(waiting) for _ in range(level.requests)])
            async with asyncio.TaskGroup() as group:
                for session in sessions[: level.concurrency]:
                    group.create_task(work(session, level.concurrency, share))
    return results


@asynccontextmanager
async def _clients(count: int, timeout_s: float) -> AsyncIterator[list[aiohttp.ClientSession]]:
    async with AsyncExitStack() as stack:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        yield [
            await stack.enter_async_context(
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1), timeout=timeout)
            )
            for _ in range(count)
        ]


async def _send(
    session: aiohttp.ClientSession, url: str, request: PlannedRequest, concurrency: int, clock: Clock
) -> LoadResult:
    result = LoadResult(request, concurrency)
    started_at = clock()
    try:
        async with session.post(url, json=request.body()) as response:
            result = _headed(result, response)
            if response.status == 200 and response.content_type == "text/event-stream":
                return await _streamed(result, response, started_at, clock)
            return await _whole(result, response, started_at, clock)
    except TimeoutError:
        return replace(result, error=f"no whole answer within {session.timeout.total:g} s")
    except (aiohttp.ClientError, OSError) as error:
        return replace(result, error=f"the connection failed: {str(error) or type(error).__name__}")


def _headed(result: LoadResult, response: aiohttp.ClientResponse) -> LoadResult:
    headers = response.headers
    return replace(
        result,
        status=response.status,
        node=headers.get("x-slipstream-node"),
        pool=headers.get("x-slipstream-pool"),
        category=headers.get("x-slipstream-category"),
        reason=headers.get("x-slipstream-reason"),
        request_id=headers.get("x-request-id"),
    )


async def _streamed(
    result: LoadResult, response: aiohttp.ClientResponse, started_at: float, clock: Clock
) -> LoadResult:
    answer = StreamedAnswer()
    async for data in response.content.iter_any():
        answer.feed(data, clock())
    ended_at = clock()
    answer.end(ended_at)
    return _complete(result, answer, started_at, answer.first_token_at, ended_at)


async def _whole(result: LoadResult, response: aiohttp.ClientResponse, started_at: float, clock: Clock) -> LoadResult:
    answer = WholeAnswer(response.status, await response.read())
    if answer.error is None and result.request.stream:
        answer.error = "the answer is not a stream, though one was asked for"
    return _complete(result, answer, started_at, None, clock())


def _complete(
    result: LoadResult,
    answer: StreamedAnswer | WholeAnswer,
    started_at: float,
    first_token_at: float | None,
    ended_at: float,
) -> LoadResult:
    whole = answer.error is None
    return replace(
        result,
        error=answer.error,
        latency=latency_of(started_at, first_token_at, ended_at, answer.output_tokens) if whole else None,
        prompt_tokens=answer.prompt_tokens,
        output_tokens=answer.output_tokens,
    )
