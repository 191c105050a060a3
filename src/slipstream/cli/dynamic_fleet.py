"""Nodes on this machine that can change their roles: each engine in the hands of an agent, all in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import MappingProxyType
from typing import Any, Final

from slipstream.cli.agents import embedded_engine, serving_agent
from slipstream.config.node_agent import node_agent_config
from slipstream.embedded import EmbeddedNodeSpec

__all__ = ["ROLES", "dynamic_nodes"]

ROLES: Final = MappingProxyType(
    {
        "high_watermark": 0.8,
        "low_watermark": 0.4,
        "high_for_s": 5.0,
        "low_for_s": 20.0,
        "minimum_dwell_s": 20.0,
        "expected_high_s": 300.0,
        "transition_s": 10.0,
    }
)
"""When they change: for surges of minutes and engines that are back within seconds."""


@asynccontextmanager
async def dynamic_nodes(specs: Sequence[EmbeddedNodeSpec], speculator: str) -> AsyncIterator[list[dict[str, Any]]]:
    """Their sections of a configuration, while they run. ``speculator`` is what drafts on those that speculate now or
    later. Raises an `EmbeddedError` or `CanNotListen`.
    """
    sections: list[dict[str, Any]] = []
    async with AsyncExitStack() as stack:
        for spec in specs:
            told = node_agent_config(None, {"name": spec.name, "role": spec.pool.value, "listen": "127.0.0.1:0"})
            complete, engine = stack.enter_context(
                embedded_engine(
                    told, model=spec.model, speculator=speculator, slots=spec.slots, port=None, on_output=_unheard
                )
            )
            agent, url = await stack.enter_async_context(serving_agent(complete, engine))
            ending = asyncio.Event()
            running = asyncio.create_task(agent.run(ending), name=f"agent of {spec.name}")
            stack.push_async_callback(_end, ending, running)
            section = {"name": spec.name, "url": complete.engine_url, "pool": spec.pool.value, "agent": url}
            drafts = speculator.partition(":")[0]
            sections.append(section | {"engine": "llamacpp", "speculator": drafts})
        yield sections


async def _end(ending: asyncio.Event, running: asyncio.Task[None]) -> None:
    ending.set()
    await running


def _unheard(_output: bytes) -> None:
    """What engines write is for their agents, which have its end."""
