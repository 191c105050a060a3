"""Embedded nodes that start together, are started again when they die, and end together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self

from slipstream.core.backoff import Backoff
from slipstream.embedded.errors import EmbeddedError, NodeStartFailed
from slipstream.embedded.node import EmbeddedNode, EmbeddedNodeSpec

__all__ = ["EmbeddedFleet", "OnProgress"]

OnProgress = Callable[[EmbeddedNode], None]
"""Called after every change of a node's state: a progress bar is drawn from it, and deaths are logged."""

START_TIMEOUT_S = 120.0
STOP_GRACE_S = 3.0
RESTARTS_IN_VAIN = 5
"""A node that was ready once and then can not be started so many times running is given up: its cause does not pass."""


class EmbeddedFleet:
    """Real engines on this machine, as an asynchronous context manager.

    Entering starts all nodes at once and returns when all are ready; leaving ends them. In between, a node whose
    process dies is started again after a back-off, on the same port. The nodes die with the process that holds the
    fleet, however that ends, and with the thread that started them.

    ``sleep`` and ``clock`` (seconds, monotonic) time the back-off.

    Entering raises, with no node left running:
        EngineNotInstalled: the package with llama.cpp's server is missing.
        NodeStartFailed: a node's process ended, or said nothing in time, before it was ready.
        PortTaken: a node was given a port that is in use.
    """

    def __init__(
        self,
        specs: Sequence[EmbeddedNodeSpec],
        *,
        on_progress: OnProgress | None = None,
        backoff: Backoff = Backoff(),  # noqa: B008  frozen
        start_timeout_s: float = START_TIMEOUT_S,
        stop_grace_s: float = STOP_GRACE_S,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.nodes: tuple[EmbeddedNode, ...] = tuple(EmbeddedNode(spec, on_progress) for spec in specs)
        self._backoff = backoff
        self._start_timeout_s = start_timeout_s
        self._stop_grace_s = stop_grace_s
        self._sleep = sleep
        self._clock = clock
        self._supervisors: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """End all nodes, with TERM and after a grace with KILL, and wait until they are gone. May be called again."""
        for supervisor in self._supervisors:
            supervisor.cancel()
        outcomes = await asyncio.gather(*self._supervisors, return_exceptions=True)
        self._supervisors.clear()
        await asyncio.gather(*(node.stop(self._stop_grace_s) for node in self.nodes))
        for outcome in outcomes:
            if isinstance(
                outcome, Exception
            ):  # a supervisor must not fail unnoticed; cancelled ones are not exceptions
                raise outcome

    async def _start(self) -> None:
        failures: list[EmbeddedError] = []
        try:
            async with asyncio.TaskGroup() as starting:
                for node in self.nodes:
                    starting.create_task(node.start(self._start_timeout_s), name=f"start {node.name}")
        except* EmbeddedError as group:
            failures += [error for error in group.exceptions if isinstance(error, EmbeddedError)]
        if failures:
            raise failures[0]
        self._supervisors = [
            asyncio.create_task(self._supervise(node), name=f"supervise {node.name}") for node in self.nodes
        ]

    async def _supervise(self, node: EmbeddedNode) -> None:
        wait_s: float | None = None
        ready_at: float | None = self._clock()
        in_vain = 0
        while True:
            if ready_at is not None:
                await node.ended()
            wait_s = self._backoff.next_wait(wait_s, 0.0 if ready_at is None else self._clock() - ready_at)
            await self._sleep(wait_s)
            try:
                await node.start(self._start_timeout_s)
            except NodeStartFailed as failure:
                ready_at = None
                in_vain += 1
                if in_vain == RESTARTS_IN_VAIN:
                    node.give_up(failure)
                    return
            else:
                ready_at = self._clock()
                in_vain = 0
