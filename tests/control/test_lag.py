"""The lateness of our own event loop."""

from __future__ import annotations

import asyncio

import pytest

from slipstream.control.lag import REMEMBERED, LoopLag


async def measured(late: list[float]) -> LoopLag:
    """A lag after wake-ups that were late by these seconds (or early, below 0)."""
    now = 0.0
    lateness = iter(late)

    async def sleep(seconds: float) -> None:
        nonlocal now
        by = next(lateness, None)
        if by is None:
            raise asyncio.CancelledError
        now += seconds + by

    lag = LoopLag(clock=lambda: now, sleep=sleep)
    with pytest.raises(asyncio.CancelledError):
        await lag.run()
    return lag


def test_nothing_is_known_before_the_first_wake() -> None:
    assert (LoopLag().latest_s, LoopLag().worst_s) == (None, None)


async def test_the_latest_and_the_worst_lateness_are_told() -> None:
    lag = await measured([0.0, 0.7, -0.01, 0.002])
    assert lag.latest_s == pytest.approx(0.002)
    assert lag.worst_s == pytest.approx(0.7)


async def test_an_early_wake_is_not_late() -> None:
    assert (await measured([-0.01])).latest_s == 0.0


async def test_a_stall_is_forgotten_in_time() -> None:
    lag = await measured([0.7] + [0.001] * REMEMBERED)
    assert lag.worst_s == pytest.approx(0.001)


async def test_the_running_loop_is_the_clock_unless_one_is_given() -> None:
    lag = LoopLag()
    task = asyncio.create_task(lag.run())
    async with asyncio.timeout(20.0):
        while lag.latest_s is None:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert lag.latest_s >= 0.0
