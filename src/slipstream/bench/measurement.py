"""One plan sent to one server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np

from slipstream.bench.running import RunningSource, watched
from slipstream.bench.server import Server, asked
from slipstream.load import Level, LoadResult, PlannedRequest, drive, drive_at_times
from slipstream.workload.plan import Plan

__all__ = ["Measurement", "Progress", "measured"]

Progress = Callable[[LoadResult], None]


@dataclass(frozen=True, slots=True)
class Measurement:
    """What became of a plan. ``results`` are of the requests that ended, by position, those of the warm-up included:
    the first ``warm_up``. ``concurrency``: so many at a time; ``None`` = at the plan's times. ``begin_s`` and ``end_s``
    are the window, in seconds since the first request was to be sent: of a plan, from the first request that counts to
    a mean gap after the last; at fixed concurrency to the end of the last answer, since that is what brings the next.
    ``in_flight`` requests had not ended when it was interrupted; 0 if it was not. ``running``: how many requests ran on
    the server, looked at a few times a second; empty where it does not say.
    """

    plan: Plan
    results: Sequence[LoadResult]
    warm_up: int
    concurrency: int | None
    start_at: float
    begin_s: float
    end_s: float
    wall_s: float
    interrupted: bool
    in_flight: int
    running: Sequence[int]


async def measured(
    server: Server,
    plan: Plan,
    *,
    warm_up: int,
    seed: int,
    stop: asyncio.Event,
    concurrency: int | None = None,
    arm: int = 0,
    arms: int = 1,
    running: RunningSource | None = None,
    on_result: Progress | None = None,
) -> Measurement:
    """Send a plan and wait for all answers, or until ``stop`` is set: then what is under way is hung up on.

    ``warm_up`` is below the plan's requests. ``seed`` is that of the prompts; ``arm`` and ``arms`` as of `asked`.
    """
    request_at = asked(server, plan, seed, arm=arm, arms=arms)
    results: list[LoadResult] = []

    def ended(result: LoadResult) -> None:
        results.append(result)
        if on_result is not None:
            on_result(result)

    called_at = monotonic()
    async with watched(running) as seen:
        if concurrency is None:
            sending = drive_at_times(
                server.base_url,
                plan.arrival_s.tolist(),
                request_at,
                on_result=ended,
                headers=server.headers,
                timeout_s=server.timeout_s,
            )
        else:
            sending = _at_concurrency(
                server, [request_at(position) for position in range(len(plan))], concurrency, ended
            )
        interrupted = not await _finished(sending, stop)
    wall_s = monotonic() - called_at
    results.sort(key=lambda result: result.position)
    start_at, begin_s, end_s = _window(plan, results, warm_up, concurrency, called_at)
    in_flight = 0
    if interrupted:
        due = int(np.searchsorted(plan.arrival_s, wall_s)) if concurrency is None else len(results) + concurrency
        in_flight = min(due, len(plan)) - len(results)
        end_s = min(end_s, wall_s)
    return Measurement(
        plan=plan,
        results=results,
        warm_up=warm_up,
        concurrency=concurrency,
        start_at=start_at,
        begin_s=begin_s,
        end_s=end_s,
        wall_s=wall_s,
        interrupted=interrupted,
        in_flight=in_flight,
        running=seen,
    )


async def _at_concurrency(
    server: Server, requests: Sequence[PlannedRequest], concurrency: int, on_result: Progress
) -> None:
    levels = [Level(concurrency, len(requests))]
    await drive(
        server.base_url, requests, levels, on_result=on_result, headers=server.headers, timeout_s=server.timeout_s
    )


async def _finished(sending: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Whether it came to its end before the event did."""
    sender = asyncio.create_task(sending, name="load")
    stopping = asyncio.create_task(stop.wait(), name="stop of the load")
    try:
        await asyncio.wait((sender, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        finished = sender.done()
        for task in (sender, stopping):
            task.cancel()
        await asyncio.wait((sender, stopping))
    if finished:
        await sender  # what went wrong in the driver itself is raised here
    return finished


def _window(
    plan: Plan, results: Sequence[LoadResult], warm_up: int, concurrency: int | None, called_at: float
) -> tuple[float, float, float]:
    """When the plan began on the driver's clock, and the window in seconds since then."""
    if not results:
        return called_at, 0.0, 0.0
    if concurrency is None:
        first = results[0]
        start_at = first.intended_at - float(plan.arrival_s[first.position])
        counted = plan.arrival_s[warm_up:]
        begin_s, last_s = float(counted[0]), float(counted[-1])
        return start_at, begin_s, last_s + (last_s - begin_s) / max(1, len(counted) - 1)
    start_at = min(result.sent_at for result in results)
    own = [result for result in results if result.position >= warm_up]
    begin_at = min((result.sent_at for result in own), default=start_at)
    end_at = max((result.ended_at for result in own), default=start_at)
    return start_at, begin_at - start_at, end_at - start_at
