"""Nodes on this machine, which `up`, the demo and calibration start: each llama.cpp in the hands of an agent, and all
agents in this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from slipstream.agent.errors import AgentError, EngineStartFailed
from slipstream.agent.node import NodeAgent
from slipstream.cli.agents import embedded_engine, serving_agent
from slipstream.config.node_agent import node_agent_config
from slipstream.core.request import Pool

__all__ = ["ROLES", "local_nodes"]

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

START_TIMEOUT_S = 120.0
STOP_GRACE_S = 3.0
RESTARTS_IN_VAIN = 5
"""A node that served once and then can not be started so many times running is given up: its cause does not pass."""


def _unsaid(_sentence: str) -> None:
    """For whom nobody listens."""


@asynccontextmanager
async def local_nodes(
    *,
    speculative: int = 1,
    standard: int = 1,
    model: Path | None = None,
    speculator: str = "ngram",
    slots: int = 8,
    say: Callable[[str], None] = _unsaid,
) -> AsyncIterator[list[dict[str, Any]]]:
    """Nodes ``spec-0``, ``spec-1``, … and ``std-0``, ``std-1``, … that serve and are warm: their sections of a
    configuration.

    ``model`` ``None`` = the one that is installed. ``speculator`` (``ngram`` or ``draft:PATH``) is what drafts on those
    that speculate, now or after a change of role. A node whose engine ends is started again after a pause, on the same
    port; ``say`` gets a sentence then, and when it is given up. All end with the block, or with this process.

    Raises an `EmbeddedError` when there is no model or engine, an `AgentError` when a node does not start.
    """
    roles = {f"spec-{number}": Pool.SPECULATIVE for number in range(speculative)}
    roles |= {f"std-{number}": Pool.STANDARD for number in range(standard)}
    agents, sections = dict[str, NodeAgent](), list[dict[str, Any]]()
    async with AsyncExitStack() as stack:
        for name, role in roles.items():
            told = node_agent_config(
                None,
                {
                    "name": name,
                    "role": role.value,
                    "listen": "127.0.0.1:0",
                    "start_timeout_s": START_TIMEOUT_S,
                    "stop_grace_s": STOP_GRACE_S,
                },
            )
            complete, engine = stack.enter_context(
                embedded_engine(told, model=model, speculator=speculator, slots=slots, port=None, on_output=_unheard)
            )
            agents[name], url = await stack.enter_async_context(serving_agent(complete, engine))
            section = {"name": name, "url": complete.engine_url, "pool": role.value, "agent": url}
            sections.append(section | {"engine": "llamacpp", "speculator": speculator.partition(":")[0]})
        lives = {
            name: asyncio.create_task(agent.run(asyncio.Event()), name=f"agent of {name}")
            for name, agent in agents.items()
        }
        stack.push_async_callback(_end, lives.values())
        await _all_serve(agents, lives)
        reports = [
            asyncio.create_task(_report(name, agents[name], life, say), name=f"report of {name}")
            for name, life in lives.items()
        ]
        stack.push_async_callback(_end, reports)
        yield sections


async def _all_serve(agents: Mapping[str, NodeAgent], lives: Mapping[str, asyncio.Task[None]]) -> None:
    """Wait until all serve, and what warmed them has ended. Raises `EngineStartFailed` when one does not start."""

    async def served() -> None:
        for agent in agents.values():
            await agent.published.until(partial(_serves, agent))

    serving = asyncio.create_task(served(), name="wait until all serve")
    either: set[asyncio.Future[Any]] = {serving, *lives.values()}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        serving.cancel()
    for name, life in lives.items():
        if life.done():
            try:
                life.result()
            except AgentError as error:
                raise EngineStartFailed(f"{name} can not be started: {error}") from error


def _serves(agent: NodeAgent) -> bool:
    state = agent.state()
    return state.healthy and not state.draining and not state.running


async def _report(name: str, agent: NodeAgent, life: asyncio.Task[None], say: Callable[[str], None]) -> None:
    """Say when its engine has ended, and give it up when that can not be started again."""
    changes, in_vain = agent.published, 0
    while True:
        await changes.until(lambda: agent.lost is not None)
        if in_vain == RESTARTS_IN_VAIN:
            say(f"{name} is given up: {agent.lost}")
            life.cancel()
            return
        say(f"{name} ended and is started again")
        await changes.until(lambda: agent.state().transition is not None)
        await changes.until(lambda: agent.state().transition is None)
        in_vain = 0 if agent.lost is None else in_vain + 1


async def _end(tasks: Collection[asyncio.Task[None]]) -> None:
    """End them all at once. Nothing drains: whoever sent requests has seen to those that ran."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception) and not isinstance(outcome, AgentError):  # that has been told
            raise outcome


def _unheard(_output: bytes) -> None:
    """What engines write is for their agents, which have its end."""
