"""One node in both its roles, by the word of its agent, and after that as it was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from slipstream.calibrate.errors import NodeUnusable
from slipstream.control.agent_watch import AgentClient
from slipstream.core.errors import EngineError
from slipstream.core.request import Pool
from slipstream.engines.agent import AgentRefused, AgentState

__all__ = ["NodeRoles", "node_roles"]

SILENCE_S = 10.0
"""How long an agent may say nothing, where it should every second. How long a change may take, it knows itself."""


class NodeRoles:
    """The roles of a node in the hands of an agent. ``before`` is the one that it was found in."""

    def __init__(self, client: AgentClient, before: Pool) -> None:
        self._client = client
        self.before = before

    async def take(self, role: Pool) -> None:
        """Have the node change to a role, unless it has it. Raises `NodeUnusable` when it does not."""
        try:
            state = await _settled(self._client)
            if state.role is not role:
                await self._client.speculation(active=role is Pool.SPECULATIVE)
                state = await _settled(self._client)
        except (EngineError, AgentRefused) as error:
            raise NodeUnusable(f"the node did not become {role}: {error}") from None
        if state.role is not role or not state.healthy:
            why = state.error or (state.switches[-1].why if state.switches else None) or "its agent does not say why"
            raise NodeUnusable(f"the node did not become {role}: {why}")


@asynccontextmanager
async def node_roles(url: str, token: str | None) -> AsyncIterator[NodeRoles]:
    """Those of the node whose agent is at ``url``. Raises `NodeUnusable` when nothing of the kind is there, or its
    engine was given in one role only.
    """
    client = AgentClient(url, token)
    try:
        try:
            state = await _settled(client)
        except (EngineError, AgentRefused) as error:
            raise NodeUnusable(str(error)) from None
        if not state.switchable or state.role is None:
            raise NodeUnusable(f"the agent at {url} has its engine in one role only: the other can not be measured")
        yield NodeRoles(client, state.role)
    finally:
        await client.close()


async def _settled(client: AgentClient) -> AgentState:
    """What the agent says once no change of role is under way, nor a start."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(SILENCE_S) as patience, aclosing(client.watch()) as states:
            async for state in states:
                if state.transition is None and state.target is None:
                    return state
                patience.reschedule(loop.time() + SILENCE_S)
    except TimeoutError:
        raise NodeUnusable(f"the node's agent said nothing for {SILENCE_S:g} s") from None
    raise NodeUnusable("the node's agent has ended")
