"""The whole service in the test's own event loop, and what a test looks at from outside."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import openai

from gateway_rig import eventually
from slipstream.config import FleetConfig
from slipstream.core.dispatch import Placement
from slipstream.core.node_state import NodeState
from slipstream.service import Service, running

__all__ = ["COMMAND_ENVIRONMENT", "UNMEASURED_ENVIRONMENT", "Live", "command", "eventually", "eventually_async", "live"]

COMMAND_ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    "COLUMNS": "80",
    "NO_COLOR": "1",
}
UNMEASURED_ENVIRONMENT = {
    name: value for name, value in COMMAND_ENVIRONMENT.items() if name != "COVERAGE_PROCESS_CONFIG"
}
"""For commands whose lines other tests measure: measuring coverage doubles the time that a command takes to start."""


def command(*arguments: str) -> tuple[str, ...]:
    """The words that run ``slipstream`` with this interpreter."""
    return sys.executable, "-m", "slipstream", *arguments


@dataclass(frozen=True)
class Live:
    """A service that runs, an `openai` client of its gateway, and a session for everything else."""

    service: Service
    client: openai.AsyncOpenAI
    session: aiohttp.ClientSession

    @property
    def base_url(self) -> str:
        return f"{self.service.gateway_url}/v1"

    def node(self, name: str) -> NodeState:
        node = self.service.dispatcher.fleet.node(name)
        assert node is not None
        return node

    @property
    def in_flight(self) -> int:
        """Sequences that the ledgers of all nodes hold."""
        return sum(node.own for node in self.service.dispatcher.fleet.nodes())

    def placements(self) -> list[Placement]:
        """Oldest first."""
        return [*self.service.dispatcher.placements()][::-1]

    async def admin(self, path: str) -> Any:
        """The admin API's JSON at ``path``."""
        async with self.session.get(self.service.admin_url + path) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def shown(self, name: str) -> Any:
        """A node as ``/fleet`` shows it."""
        return next(node for node in (await self.admin("/fleet"))["nodes"] if node["name"] == name)

    async def category(self, name: str) -> Any:
        """A category as ``/fleet`` shows it."""
        return next(one for one in (await self.admin("/fleet"))["categories"] if one["name"] == name)

    async def drained(self) -> None:
        """Wait until no ledger holds anything; every placement has then been settled."""
        await eventually(lambda: self.in_flight == 0)
        assert all(placement.outcome is not None for placement in self.placements())


@asynccontextmanager
async def live(config: FleetConfig, ready_s: float | None = 30.0, path: Path | None = None) -> AsyncIterator[Live]:
    """Run a configuration. ``ready_s`` ``None``: don't wait for all nodes; some are meant to be missing. ``path`` is
    where it was read from, to be read again.
    """
    async with (
        running(config, path) as service,
        aiohttp.ClientSession() as session,
        openai.AsyncOpenAI(
            base_url=f"{service.gateway_url}/v1", api_key="clients-own", max_retries=0, timeout=90
        ) as client,
    ):
        if ready_s is not None:
            await service.ready(ready_s)
        yield Live(service, client, session)


async def eventually_async(condition: Callable[[], Awaitable[bool]], deadline_s: float = 20.0) -> None:
    """Wait until a condition that has to be asked for holds; fails when it does not in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + deadline_s
    while not await condition():
        assert loop.time() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.02)
