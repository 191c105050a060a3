"""An agent with its engine in one process: the engine is an emulated node that starts and stops as a process would."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from gateway_rig import eventually
from slipstream.agent.engine import EngineInHand
from slipstream.agent.errors import EngineStartFailed
from slipstream.agent.node import AgentSettings, NodeAgent
from slipstream.agent.server import serve_agent
from slipstream.agent.view import EngineView
from slipstream.agent.warm_up import WarmUp
from slipstream.core.backoff import Backoff
from slipstream.core.node import NodeSpec, SpeculatorKind
from slipstream.core.request import Pool
from slipstream.emulate import EmulatedNode, NodeSettings
from slipstream.engines.agent import AgentState
from slipstream.engines.reader import EngineReader
from slipstream.engines.scrape import Scraper

__all__ = ["EmulatedInHand", "Rig", "free_port", "rig"]

QUICK = NodeSettings(ttft_s=0.001, step_s=0.001, output_tokens=10_000)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class EmulatedInHand:
    """An emulated llama.cpp on one port, with a draft model in the role speculative. ``broken`` roles do not start,
    ``mortal`` ones end at once, ``slow`` ones take half a minute for a token, ``lying`` ones start as the other.
    ``starts`` are the roles that it was started in; ``left`` is the one in which an agent before left it running.
    """

    def __init__(self, *, owned: bool = True, switchable: bool = True) -> None:
        self.owned = owned
        self.outlives = False
        self.switchable = switchable
        self.broken: set[Pool] = set()
        self.mortal: set[Pool] = set()
        self.slow: set[Pool] = set()
        self.lying: set[Pool] = set()
        self.left: Pool | None = None
        self.starts: list[Pool] = []
        self.node: EmulatedNode | None = None
        self.port = free_port()
        self._died: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def serves(self) -> bool:
        return self.node is not None

    def words(self, role: Pool) -> tuple[str, ...]:
        return ("serve", role.value)

    async def take_over(self) -> Pool | None:
        return self.left

    async def start(self, role: Pool, timeout_s: float) -> None:
        left, self.left = self.left, None
        if left is role:
            return
        self.starts.append(role)
        if role in self.broken:
            raise EngineStartFailed("serve can not be run: it is broken")
        await self.stop()
        drafts = (role is Pool.SPECULATIVE) is not (role in self.lying)
        settings = replace(QUICK, speculator=SpeculatorKind.DRAFT if drafts else None)
        if role in self.slow:
            settings = replace(settings, ttft_s=30.0)
        self.node = EmulatedNode("llamacpp", settings, time.monotonic())
        await self.node.listen(port=self.port)
        self._died = asyncio.get_running_loop().create_future()
        if role in self.mortal:
            await self.die()

    async def stop(self) -> None:
        node, self.node = self.node, None
        if node is not None:
            await node.close()

    def hang_up(self) -> None:
        pass

    async def ended(self) -> str:
        return await asyncio.shield(self._died)

    async def die(self) -> None:
        """End, as a process that is killed."""
        await self.stop()
        self._died.set_result("was ended by SIGKILL")


@dataclass
class Rig:
    """An agent that runs, the engine that it has in hand, and all states that were ever published, in order."""

    agent: NodeAgent
    engine: EmulatedInHand
    url: str = ""
    seen: list[AgentState] = field(default_factory=list)
    running: asyncio.Task[None] | None = None
    told: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def state(self) -> AgentState:
        return self.agent.state()

    async def ready(self) -> None:
        await self.until(lambda: self.state.healthy and not self.state.draining)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds, while the agent runs."""
        await eventually(lambda: condition() or (self.running is not None and self.running.done()))
        if not condition():
            assert self.running is not None
            self.running.result()
            raise AssertionError("the agent has ended")

    async def switched(self) -> None:
        """Wait until a switch has ended, and that was seen."""
        before = len(self.state.switches)
        await self.until(lambda: self.seen != [] and len(self.seen[-1].switches) > before)

    def phases(self) -> list[str | None]:
        """The transitions that were seen, each once as long as it lasted."""
        seen = [state.transition for state in self.seen]
        return [one for one, before in zip(seen, [object(), *seen], strict=False) if one != before]


def agent_of(engine: EngineInHand, url: str, settings: AgentSettings, key: str | None = None) -> NodeAgent:
    """An agent of an engine at ``url``, in a hurry."""
    reader = EngineReader(
        NodeSpec("n", url, settings.role), Scraper(url), timeout_s=1.0, facts_s=30.0, clock=time.monotonic
    )
    return NodeAgent(
        settings,
        engine,
        EngineView(reader, interval_s=0.01, clock=time.monotonic),
        WarmUp(url, key),
        clock=time.monotonic,
        wall_clock=lambda: 1_000_000.0,
    )


@asynccontextmanager
async def rig(
    engine: EmulatedInHand | None = None,
    *,
    serve: bool = False,
    token: str | None = None,
    wait: bool = True,
    role: Pool = Pool.SPECULATIVE,
    ceiling: int | None = None,
    drain_timeout_s: float = 20.0,
    start_timeout_s: float = 20.0,
    backoff: Backoff = Backoff(0.001, 0.002),  # noqa: B008  frozen
) -> AsyncIterator[Rig]:
    """An agent that runs; with ``serve`` over HTTP too. ``wait``: until its engine is ready."""
    engine = engine or EmulatedInHand()
    settings = AgentSettings(
        "n",
        role,
        ceiling=ceiling,
        drain_timeout_s=drain_timeout_s,
        start_timeout_s=start_timeout_s,
        settle_s=0.0,
        backoff=backoff,
    )
    one = Rig(agent_of(engine, engine.url, settings), engine)
    await one.agent.take_over()

    async def follow() -> None:
        while True:
            count = one.agent.published.count
            one.seen.append(one.agent.state())
            await one.agent.published.beyond(count)

    following = asyncio.create_task(follow())
    one.running = asyncio.create_task(one.agent.run(one.told))
    try:
        if serve:
            async with serve_agent(one.agent, "127.0.0.1", 0, token) as one.url:
                if wait:
                    await one.ready()
                yield one
        else:
            if wait:
                await one.ready()
            yield one
    finally:
        one.told.set()
        await asyncio.gather(one.running, return_exceptions=True)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await engine.stop()
