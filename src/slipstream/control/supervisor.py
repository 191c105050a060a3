"""Owner of the poller tasks: one a node, started, ended, and started again if one breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from slipstream.control.agent_watch import AgentClient, AgentWatch
from slipstream.control.keep_running import keep_running
from slipstream.control.poller import FleetReports, Poller, Timing
from slipstream.core.node import NodeSpec
from slipstream.engines.reader import Source

__all__ = ["Supervisor"]

GOLDEN_RATIO = 0.6180339887498949
"""Phases this far apart, modulo 1, are spread evenly however many there will be."""


class Supervisor:
    """Keeps one poller running for each node it was given, or one watch where the node has an agent.

    ``source_of`` opens what gets a node's pages; it is closed with the poller. ``holder`` is the name by which agents
    know this gateway. All methods belong to the thread of the event loop.
    """

    def __init__(
        self,
        fleet: FleetReports,
        source_of: Callable[[NodeSpec], Source],
        timing: Timing,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        holder: str | None = None,
    ) -> None:
        self._holder = holder
        self._watches: dict[str, AgentWatch] = {}
        self._fleet = fleet
        self._source_of = source_of
        self._timing = timing
        self._clock = clock
        self._sleep = sleep
        self._added = 0
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._pollers: dict[str, Poller] = {}
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def pollers(self) -> dict[str, Poller]:
        """The pollers that run, by node."""
        return dict(self._pollers)

    @property
    def watches(self) -> Mapping[str, AgentWatch]:
        """The watches that run, by node."""
        return self._watches

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
        name, run = f"poll {node.name}", poller.run
        if node.agent is not None:
            client = AgentClient(node.agent, node.agent_token, holder=self._holder)
            watch = AgentWatch(node, self._fleet, client, poller, self._timing, clock=self._clock, sleep=self._sleep)
            self._watches[node.name] = watch
            name, run = f"watch {node.name}", watch.run
        task = asyncio.create_task(keep_running(name, run, sleep=self._sleep), name=name)
        task.add_done_callback(lambda _task: poller.close())
        self._tasks[node.name] = task

    def remove(self, name: str) -> None:
        """End the polling of a node: nothing more is told of it. Raises ``KeyError`` when it is not polled."""
        task = self._tasks.pop(name)
        del self._pollers[name]
        self._watches.pop(name, None)
        task.cancel()  # whatever it waits for, it comes no further: its next step is its end
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def configure(self, timing: Timing, nodes: Iterable[NodeSpec]) -> None:
        """Poll by ``timing`` from now on. ``nodes`` are all that are polled, as they are configured now."""
        if timing == self._timing:
            return
        self._timing = timing
        for node in nodes:
            self.remove(node.name)
            self.add(node)

    async def stop(self) -> None:
        """End all polling, and wait until it has ended."""
        for name in tuple(self._tasks):
            self.remove(name)
        await asyncio.gather(*self._ending, return_exceptions=True)
