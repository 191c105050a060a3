"""One request over HTTP, and what became of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import aiohttp
import msgspec

from slipstream.core.latency import latency_of
from slipstream.load.answer import StreamedAnswer, WholeAnswer
from slipstream.load.failure import failure_words
from slipstream.load.request import PlannedRequest
from slipstream.load.result import LoadResult

__all__ = ["Clock", "completions_url", "send"]

Clock: TypeAlias = Callable[[], float]

_JSON = {"content-type": "application/json"}


def completions_url(base_url: str) -> str:
    """Where chat completions are asked for, below what an OpenAI client would be given (``http://HOST:PORT/v1``)."""
    return f"{base_url.rstrip('/')}/chat/completions"


async def send(
    session: aiohttp.ClientSession,
    url: str,
    request: PlannedRequest,
    clock: Clock,
    *,
    position: int = 0,
    concurrency: int = 0,
    intended_at: float | None = None,
) -> LoadResult:
    """Send now what was to be sent at ``intended_at``, by default now too. A failure is a result, nothing is raised."""
    sent_at = clock()
    intended_at = sent_at if intended_at is None else intended_at
    result = LoadResult(request, concurrency, position=position, intended_at=intended_at, sent_at=sent_at)
    try:
        async with session.post(url, data=msgspec.json.encode(request.body()), headers=_JSON) as response:
            result = _headed(result, response)
            if response.status == 200 and response.content_type == "text/event-stream":
                return await _streamed(result, response, clock)
            return await _whole(result, response, clock)
    except TimeoutError:
        error = f"no whole answer within {session.timeout.total:g} s"
    except (aiohttp.ClientError, OSError) as failure:
        error = f"the connection failed: {failure_words(failure)}"
    return replace(result, ended_at=clock(), error=error)


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


async def _streamed(result: LoadResult, response: aiohttp.ClientResponse, clock: Clock) -> LoadResult:
    answer = StreamedAnswer()
    async for data in response.content.iter_any():
        answer.feed(data, clock())
    ended_at = clock()
    answer.end(ended_at)
    return replace(
        _complete(result, answer, answer.first_token_at, ended_at),
        chunk_gaps=answer.chunk_gaps,
        closing=answer.closing,
    )


async def _whole(result: LoadResult, response: aiohttp.ClientResponse, clock: Clock) -> LoadResult:
    answer = WholeAnswer(response.status, await response.read())
    if answer.error is None and result.request.stream:
        answer.error = "the answer is not a stream, though one was asked for"
    return _complete(result, answer, None, clock())


def _complete(
    result: LoadResult, answer: StreamedAnswer | WholeAnswer, first_token_at: float | None, ended_at: float
) -> LoadResult:
    whole = answer.error is None
    return replace(
        result,
        ended_at=ended_at,
        error=answer.error,
        latency=latency_of(result.intended_at, first_token_at, ended_at, answer.output_tokens) if whole else None,
        prompt_tokens=answer.prompt_tokens,
        output_tokens=answer.output_tokens,
    )
