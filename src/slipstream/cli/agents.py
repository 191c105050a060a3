"""Agents put together: around an engine of their own, around one that a hook switches, around llama.cpp."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from time import monotonic, time  # noqa: TID251 - it is handed out from here
from urllib.parse import urlsplit

from slipstream.agent.engine import EngineHook, EngineInHand, OwnEngine, Variants
from slipstream.agent.node import AgentSettings, NodeAgent
from slipstream.agent.run_file import held, run_file_of_port
from slipstream.agent.server import serve_agent
from slipstream.agent.view import EngineView
from slipstream.agent.warm_up import WarmUp
from slipstream.config.node_agent import NodeAgentConfig
from slipstream.core.node import NodeSpec
from slipstream.core.request import Pool
from slipstream.embedded.errors import UnusableSpec
from slipstream.embedded.model import find_model
from slipstream.embedded.node import SLEEPING_THREADS, EmbeddedNodeSpec, worker_command
from slipstream.embedded.port import LOOPBACK, reserve_port
from slipstream.embedded.speculator import NO_SPECULATOR, parse_speculator
from slipstream.engines.reader import EngineReader
from slipstream.engines.scrape import Scraper

__all__ = ["commanded_engine", "embedded_engine", "engine_of", "serving_agent"]

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
    return OwnEngine(variants, grace_s=config.stop_grace_s, on_output=on_output, run_file=_run_file(config))


@contextmanager
def commanded_engine(
    config: NodeAgentConfig, on_output: Callable[[bytes], None]
) -> Iterator[tuple[NodeAgentConfig, EngineInHand]]:
    """`engine_of` a configuration, and that; no other agent can have the same engine in hand meanwhile. Raises
    `EngineStartFailed` when one has.
    """
    run_file = _run_file(config)
    with nullcontext() if run_file is None else held(run_file):
        yield config, engine_of(config, on_output)


def _run_file(config: NodeAgentConfig) -> Path | None:
    """Where it is told of an engine that outlives its agent; ``None`` = of none."""
    if not config.command or not config.engine_outlives_agent:
        return None
    if config.run_file is not None:
        return Path(config.run_file)
    url = urlsplit(config.engine_url)
    return run_file_of_port(url.port or (443 if url.scheme == "https" else 80))


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
    drafts = parse_speculator(speculator)
    if drafts == NO_SPECULATOR:
        raise UnusableSpec(f"Node {config.name} would not speculate in either role: use ngram or draft:PATH.gguf.")
    spec = EmbeddedNodeSpec(config.name, config.role, find_model(model), drafts, slots=slots, port=port)
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
    """An agent that can be asked, and its address. Its engine starts with `NodeAgent.run`, unless one was left running,
    which it has taken over. Raises an `AgentError`, `CanNotListen` when it can not be asked.
    """
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
    await agent.take_over()  # before anybody is told of an engine that it knows nothing of yet
    async with serve_agent(agent, *config.address, token) as url:
        yield agent, url
