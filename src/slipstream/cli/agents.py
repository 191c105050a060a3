"""Agents put together: around an engine of their own, around one that a hook switches, around llama.cpp."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic, time  # noqa: TID251 - it is handed out from here

from slipstream.agent.engine import EngineHook, EngineInHand, OwnEngine, Variants
from slipstream.agent.node import AgentSettings, NodeAgent
from slipstream.agent.server import serve_agent
from slipstream.agent.view import EngineView
from slipstream.agent.warm_up import WarmUp
from slipstream.config.node_agent import NodeAgentConfig
from slipstream.core.node import NodeSpec
from slipstream.core.request import Pool
from slipstream.embedded.model import find_model
from slipstream.embedded.node import SLEEPING_THREADS, EmbeddedNodeSpec, worker_command
from slipstream.embedded.port import LOOPBACK, reserve_port
from slipstream.embedded.speculator import NO_SPECULATOR, parse_speculator
from slipstream.engines.reader import EngineReader
from slipstream.engines.scrape import Scraper

__all__ = ["embedded_engine", "engine_of", "serving_agent"]

INTERVAL_S = 0.1
PAGE_TIMEOUT_S = 1.0
FACTS_S = 30.0


def engine_of(config: NodeAgentConfig, on_output: Callable[[bytes], None]) -> EngineInHand:
    """The engine of a configuration. ``on_output`` gets what one that the agent starts writes."""
    command = config.command
    if not command:
        return EngineHook(config.switch_command, config.switch_url)
    with_speculator, without = (*command, *config.speculative_args), (*command, *config.standard_args)
    if with_speculator == without:  # one variant: the engine has the role that it is said to have
        variants = Variants(command, None) if config.role is Pool.SPECULATIVE else Variants(None, command)
    else:
        variants = Variants(with_speculator, without)
    return OwnEngine(variants, grace_s=config.stop_grace_s, on_output=on_output)


@contextmanager
def embedded_engine(
    config: NodeAgentConfig,
    *,
    model: Path | None,
    speculator: str,
    slots: int,
    port: int | None,
    on_output: Callable[[bytes], None],
) -> Iterator[tuple[NodeAgentConfig, EngineInHand]]:
    """llama.cpp in both roles, on a port that stays its own as long as the context lasts; ``port`` ``None`` = a free
    one. Gives the configuration with the engine's address. Raises an `EmbeddedError`.
    """
    spec = EmbeddedNodeSpec(
        config.name, config.role, find_model(model), parse_speculator(speculator), slots=slots, port=port
    )
    reservation: socket.socket = reserve_port(port)
    try:
        taken: int = reservation.getsockname()[1]
        variants = Variants(
            worker_command(spec, taken),
            worker_command(replace(spec, speculator=NO_SPECULATOR), taken),
            SLEEPING_THREADS,
        )
        engine = OwnEngine(variants, grace_s=config.stop_grace_s, on_output=on_output)
        yield config.model_copy(update={"engine_url": f"http://{LOOPBACK}:{taken}", "engine": "llamacpp"}), engine
    finally:
        reservation.close()


@asynccontextmanager
async def serving_agent(config: NodeAgentConfig, engine: EngineInHand) -> AsyncIterator[tuple[NodeAgent, str]]:
    """An agent that can be asked, and its address. Its engine starts with `NodeAgent.run`. Raises `CanNotListen`."""
    key = None if config.api_key is None else config.api_key.reveal()
    node = NodeSpec(config.name, config.engine_url, config.role, config.engine)
    reader = EngineReader(
        node, Scraper(config.engine_url, key), timeout_s=PAGE_TIMEOUT_S, facts_s=FACTS_S, clock=monotonic
    )
    agent = NodeAgent(
        AgentSettings(
            name=config.name,
            role=config.role,
            ceiling=config.ceiling,
            drain_timeout_s=config.drain_timeout_s,
            start_timeout_s=config.start_timeout_s,
        ),
        engine,
        EngineView(reader, interval_s=INTERVAL_S, clock=monotonic, sleep=asyncio.sleep),
        WarmUp(config.engine_url, key),
        clock=monotonic,
        wall_clock=time,
    )
    token = None if config.token is None else config.token.reveal()
    async with serve_agent(agent, *config.address, token) as url:
        yield agent, url
