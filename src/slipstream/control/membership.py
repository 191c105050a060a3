"""Which nodes the fleet has: brought in line, in one step, with those it should have."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from slipstream.control.supervisor import Supervisor
from slipstream.core.dispatch import Dispatcher
from slipstream.core.node import NodeSpec

__all__ = ["Membership"]

LOOK_AFTER_S = 0.1
"""How long after its last request a node that leaves is forgotten, at most."""

HAND_OVER_S = 5.0
"""How long a node that leaves takes requests, at most, while the nodes that came with its leaving have not reported."""

log = structlog.get_logger(__name__)


class Membership:
    """Adds, changes and removes nodes while requests run.

    A node that leaves drains: it gets no new request, its running ones end, and then it is forgotten, of which
    ``forgotten`` is told. Where the nodes that serve its models came with the same change, it drains once they have
    reported, since nobody would serve its requests until then. One that stays under its name but is another (its url,
    pool or engine changed) is replaced at once; what runs on the old one ends there. All methods belong to the thread
    of the event loop.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        supervisor: Supervisor,
        *,
        clock: Callable[[], float],
        forgotten: Callable[[str], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._dispatcher = dispatcher
        self._supervisor = supervisor
        self._clock = clock
        self._forgotten = forgotten
        self._sleep = sleep
        self._leaving: set[str] = set()
        self._draining: set[str] = set()
        self._newcomers: dict[str, float] = {}
        """When nobody waits any longer for the first report of a node that came, by its name."""
        self._more_due = 0.0
        self._some_leave = asyncio.Event()

    @property
    def leaving(self) -> frozenset[str]:
        """The nodes that are still there only until their running requests have ended."""
        return frozenset(self._leaving)

    def set(self, specs: Sequence[NodeSpec], *, more_to_come: bool = False) -> None:
        """From now on the fleet consists of ``specs``, whose names differ. Nothing is awaited, so nothing is seen half
        done. ``more_to_come``: some nodes are not known yet, and count as newcomers that have not reported.
        """
        self._more_due = self._clock() + HAND_OVER_S if more_to_come else 0.0
        wanted = {spec.name: spec for spec in specs}
        for node in tuple(self._dispatcher.fleet.nodes()):
            spec = wanted.pop(node.name, None)
            if spec is None:
                self._leave(node.name)
            else:
                self._keep(node.spec, spec)
        for spec in wanted.values():
            self._dispatcher.add(spec, self._clock())
            self._supervisor.add(spec)
            self._newcomers[spec.name] = self._clock() + HAND_OVER_S
            log.info("node.added", node=spec.name, url=spec.url, pool=spec.pool)
        self.look()

    async def run(self) -> None:
        """Look at the nodes that leave, until cancelled."""
        while True:
            await self._some_leave.wait()
            await self._sleep(LOOK_AFTER_S)
            self.look()

    def look(self) -> None:
        """Take each node that leaves as far as it can go: to draining, and once it has drained, out of the fleet."""
        self._drain()
        self._forget_drained()

    def _leave(self, name: str) -> None:
        if name in self._leaving:
            return
        self._leaving.add(name)
        self._some_leave.set()
        node = self._dispatcher.fleet.node(name)
        assert node is not None
        log.info("node.leaves", node=name, running_sequences=node.own)

    def _drain(self) -> None:
        """Drain the nodes that leave, but for those whose models will be served by newcomers alone."""
        fleet, now = self._dispatcher.fleet, self._clock()
        staying = [node for node in fleet.nodes() if node.name not in self._leaving]
        served = {model for node in staying if node.usable for model in node.models}
        silent = {node.name for node in staying if not node.usable}
        self._newcomers = {name: due for name, due in self._newcomers.items() if name in silent and now < due}
        awaiting = bool(self._newcomers) or now < self._more_due
        for name in sorted(self._leaving - self._draining):
            node = fleet.node(name)
            if node is not None and awaiting and node.usable and not served.issuperset(node.models):
                continue
            self._draining.add(name)
            fleet.drain(name, now)

    def _keep(self, before: NodeSpec, spec: NodeSpec) -> None:
        name, now = spec.name, self._clock()
        returns, drains = name in self._leaving, name in self._draining
        self._leaving.discard(name)
        self._draining.discard(name)
        if (before.url, before.pool, before.engine) != (spec.url, spec.pool, spec.engine):
            self._supervisor.remove(name)
            if not drains:
                self._dispatcher.fleet.drain(name, now)  # what runs there has no longer than where a node leaves
            self._dispatcher.remove(name)
            self._dispatcher.add(spec, now)
            self._supervisor.add(spec)
            self._newcomers[name] = now + HAND_OVER_S
            log.info("node.replaced", node=name, url=spec.url, pool=spec.pool)
            return
        if before != spec:
            self._dispatcher.fleet.reconfigure(spec, now)
            if _asked_by(before) != _asked_by(spec):
                self._supervisor.remove(name)
                self._supervisor.add(spec)
            log.debug("node.changed", node=name)
        if returns:
            if drains:
                self._dispatcher.fleet.drain(name, now, draining=False)
            log.info("node.returns", node=name)

    def _forget_drained(self) -> None:
        for name in sorted(self._draining):
            node = self._dispatcher.fleet.node(name)
            if node is None or node.own == 0:
                self._leaving.discard(name)
                self._draining.discard(name)
                self._supervisor.remove(name)
                self._dispatcher.remove(name)
                self._forgotten(name)
                log.info("node.removed", node=name)
        if not self._leaving:
            self._some_leave.clear()


def _asked_by(spec: NodeSpec) -> tuple[str | None, ...]:
    """What decides how the node is asked how it does."""
    return spec.api_key, spec.authorities, spec.agent, spec.agent_token
