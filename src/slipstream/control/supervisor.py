"""Owner of the poller tasks: one a node, started, ended, and started again if one breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog

from slipstream.control.poller import FleetReports, Poller, Source, Timing
from slipstream.core.node import NodeSpec

__all__ = ["Supervisor"]

RESTART_AFTER_S = 1.0
GOLDEN_RATIO = 0.6180339887498949
"""Phases this far apart, modulo 1, are spread evenly however many there will be."""

log = structlog.get_logger(__name__)


class Supervisor:
    """Keeps one poller running for each node it was given.

    ``source_of`` opens what gets a node's pages; it is closed with the poller. All methods belong to the thread of the
    event loop.
    """

    def __init__(
        self,
        fleet: FleetReports,
        source_of: Callable[[NodeSpec], Source],
        timing: Timing,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._fleet = fleet
        self._source_of = source_of
        self._timing = timing
        self._clock = clock
        self._sleep = sleep
        self._added = 0
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._pollers: dict[str, Poller] = {}

    @property
    def pollers(self) -> dict[str, Poller]:
        """The pollers that run, by node."""
        return dict(self._pollers)

    def start(self, nodes: Iterable[NodeSpec]) -> None:
        """Begin to poll each of ``nodes``."""
        for node in nodes:
            self.add(node)

    def add(self, node: NodeSpec) -> None:
        """Begin to poll ``node``, which the fleet already has. Raises ``ValueError`` when it is polled already."""
        if node.name in self._tasks:
            raise ValueError(f"node {node.name} is polled already")
        poller = Poller(
            node,
            self._fleet,
            self._source_of(node),
            self._timing,
            phase=self._added * GOLDEN_RATIO % 1.0,
            clock=self._clock,
            sleep=self._sleep,
        )
        self._added += 1
        self._pollers[node.name] = poller
        self._tasks[node.name] = asyncio.create_task(self._keep_running(node.name, poller), name=f"poll {node.name}")

    async def remove(self, name: str) -> None:
        """End the polling of a node; only then may the fleet forget it. Raises ``KeyError`` when it is not polled."""
        task = self._tasks.pop(name)
        del self._pollers[name]
        await _ended([task])

    async def stop(self) -> None:
        """End all polling."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        self._pollers.clear()
        await _ended(tasks)

    async def _keep_running(self, name: str, poller: Poller) -> None:
        try:
            while True:
                try:
                    await poller.run()
                except Exception:
                    # A bug of ours in one poller must neither stop the other nodes nor stay unseen.
                    log.exception("poller.crashed", node=name, restart_after_s=RESTART_AFTER_S)
                await self._sleep(RESTART_AFTER_S)
        finally:
            poller.close()


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
