"""Agents and engines that are killed, and a real engine that changes its role behind the gateway.

A switch of whole processes: docs/how-to/run-a-node-agent.md, which is followed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from openai.types.chat import ChatCompletionMessageParam

from agent_rig import free_port
from engine_nodes import EngineNode, children_of
from live_service import Live, command, eventually, eventually_async, live
from process_life import is_alive, wait_until_gone
from served_command import line_with, started
from slipstream.agent.engine import OwnEngine
from slipstream.agent.run_file import left_running
from slipstream.cli.agents import embedded_engine, serving_agent
from slipstream.config import FleetConfig
from slipstream.config.node_agent import node_agent_config
from slipstream.core.request import Pool
from slipstream.embedded.model import find_model

EMULATE = command("emulate", "--dialect", "llamacpp", "--step-ms", "1", "--ttft-ms", "1")
QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Complete this code: def add(a, b):"}]
"""Code has a prior above the floor, so that it speculates."""


async def state_of(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.get(f"{url}/state") as response:
        return await response.json()


async def reaches(session: aiohttp.ClientSession, url: str, condition: Callable[[Any], bool]) -> Any:
    async def holds() -> bool:
        return condition(await state_of(session, url))

    await eventually_async(holds, 30.0)
    return await state_of(session, url)


def engine_of_agent(pid: int) -> int:
    """The agent's child is the keeper, whose child is the engine."""
    (keeper,) = children_of(pid)
    (engine,) = children_of(keeper)
    return engine


def node_command(run_file: Path, port: int) -> tuple[str, ...]:
    return (
        *("node", "--json", "--name", "spec-0", "--listen", "127.0.0.1:0", "--run-file", str(run_file)),
        *("--engine-url", f"http://127.0.0.1:{port}", "--speculative-args", "--speculator draft"),
        *("--", *EMULATE, "--port", str(port)),
    )


@asynccontextmanager
async def nothing_left(run_file: Path) -> AsyncIterator[None]:
    """Ends an engine that a test which failed has left running."""
    try:
        yield
    finally:
        left = left_running(run_file)
        if left is not None:
            os.kill(left.keeper, signal.SIGTERM)
            assert wait_until_gone(left.engine)


async def ready_agent(agent: asyncio.subprocess.Process, session: aiohttp.ClientSession) -> tuple[str, Any]:
    """Its address and what it says, once its engine serves."""
    url = json.loads(await line_with(agent, "url"))["url"]
    return url, await reaches(session, url, lambda state: state["healthy"] and not state["draining"])


def heard(fleet: Live) -> bool:
    """Whether the gateway hears the node's agent, and does not poll its engine."""
    return fleet.service.supervisor.watches["spec-0"].state is not None


async def answered(fleet: Live) -> None:
    answer = await fleet.client.chat.completions.create(model="emulated", messages=QUESTION, max_tokens=2)
    assert answer.choices[0].finish_reason == "length"


async def end_in_the_middle_of_a_stream(
    fleet: Live, agent: asyncio.subprocess.Process, session: aiohttp.ClientSession, url: str, engine: int
) -> None:
    """Told once, the agent waits for the stream; told twice, it is gone, and its engine with it."""
    async with await fleet.client.chat.completions.create(
        model="emulated", messages=QUESTION, max_tokens=30_000, stream=True
    ) as stream:
        await anext(aiter(stream))
        agent.terminate()
        await reaches(session, url, lambda state: state["transition"] == "draining")
        agent.terminate()
        assert await agent.wait() == -signal.SIGTERM
        assert wait_until_gone(engine)


async def test_an_engine_outlives_its_agent_and_another_takes_it_over_and_two_signals_end_both(tmp_path: Path) -> None:
    port, agent_port, run_file = free_port(), free_port(), tmp_path / "engine.json"
    words = [word.replace("127.0.0.1:0", f"127.0.0.1:{agent_port}") for word in node_command(run_file, port)]
    node = {"name": "spec-0", "url": f"http://127.0.0.1:{port}", "pool": "speculative"}
    sections: dict[str, Any] = {name: {"listen": "127.0.0.1:0"} for name in ("gateway", "admin")}
    sections["nodes"] = [node | {"agent": f"http://127.0.0.1:{agent_port}"}]
    async with nothing_left(run_file), aiohttp.ClientSession() as session, started(*words) as agent:
        url, state = await ready_agent(agent, session)
        assert (state["name"], state["role"], state["engine"]["kind"]) == ("spec-0", "speculative", "llamacpp")
        killed = engine_of_agent(agent.pid)
        os.kill(killed, signal.SIGKILL)
        await reaches(session, url, lambda state: not state["healthy"])
        assert (await state_of(session, url))["error"].startswith("the engine was ended by SIGKILL")
        await reaches(session, url, lambda state: state["healthy"] and not state["draining"])
        engine = engine_of_agent(agent.pid)
        assert engine != killed
        async with live(FleetConfig.model_validate(sections)) as fleet:
            await eventually(lambda: heard(fleet))
            agent.kill()
            await agent.wait()
            await eventually(lambda: not heard(fleet))
            await answered(fleet)
            async with started(*words) as successor:
                url, state = await ready_agent(successor, session)
                assert state["role"] == "speculative"
                left = left_running(run_file)
                assert left is not None
                assert left.engine == engine
                assert is_alive(engine)
                await eventually(lambda: heard(fleet))
                async with session.post(f"{url}/speculation", json={"active": False}) as response:
                    assert response.status == 202
                await eventually(lambda: fleet.node("spec-0").pool is Pool.STANDARD)
                await answered(fleet)
                assert wait_until_gone(engine)
                left = left_running(run_file)
                assert left is not None
                await end_in_the_middle_of_a_stream(fleet, successor, session, url, left.engine)


@asynccontextmanager
async def drafting_agent() -> AsyncIterator[tuple[str, OwnEngine, str]]:
    """A real engine in the hands of an agent, with a draft model of its own model's size: both addresses."""
    told = node_agent_config(None, {"name": "spec-0", "listen": "127.0.0.1:0"})
    draft = f"draft:{find_model()}"
    with embedded_engine(told, model=None, speculator=draft, slots=1, port=None, on_output=lambda _output: None) as (
        complete,
        engine,
    ):
        assert isinstance(engine, OwnEngine)
        async with serving_agent(complete, engine) as (agent, url):
            ending = asyncio.Event()
            running = asyncio.create_task(agent.run(ending))
            try:
                await eventually(lambda: agent.state().healthy and not agent.state().draining, 60.0)
                yield complete.engine_url, engine, url
            finally:
                ending.set()
                await running


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.engine
async def test_a_real_engine_lays_its_draft_down_while_a_stream_ends_and_requests_go_on(
    shared_fleet: tuple[EngineNode, ...],
) -> None:
    async with drafting_agent() as (engine_url, engine, agent):
        nodes = [
            {"name": "spec-0", "url": engine_url, "pool": "speculative", "agent": agent},
            {"name": "std-0", "url": shared_fleet[1].url, "pool": "standard"},
        ]
        sections: dict[str, Any] = {name: {"listen": "127.0.0.1:0"} for name in ("gateway", "admin")}
        sections |= {"nodes": nodes, "pools": {"speculative": {"short_output_tokens": 8}}}
        sections["control"] = {"stale_after_s": 30.0}  # on a busy machine the agent may be late
        async with live(FleetConfig.model_validate(sections)) as fleet:
            await seen_through_a_switch(fleet, engine, agent)


async def seen_through_a_switch(fleet: Live, engine: OwnEngine, agent: str) -> None:
    node = fleet.node("spec-0")
    await eventually(lambda: node.has_room(1))  # the last request that warmed it took its only slot
    assert engine.pid is not None
    with_draft = resident_bytes(engine.pid)

    async def answered_by() -> str:
        answer = await fleet.client.chat.completions.create(model=node.models[0], messages=QUESTION, max_tokens=2)
        assert answer.choices[0].finish_reason == "length"
        return fleet.placements()[-1].node.name

    stream = await fleet.client.chat.completions.create(
        model=node.models[0], messages=QUESTION, max_tokens=12, stream=True
    )
    chunks = aiter(stream)
    await anext(chunks)
    assert fleet.placements()[-1].node.name == "spec-0"
    async with fleet.session.post(f"{agent}/speculation", json={"active": False}) as response:
        assert response.status == 202
    await eventually(lambda: node.state == "draining")
    assert await answered_by() == "std-0"
    assert [chunk async for chunk in chunks][-1].choices[0].finish_reason in ("length", "stop")
    await eventually(lambda: node.state == "unhealthy", 60.0)
    assert await answered_by() == "std-0"
    await eventually(lambda: node.pool is Pool.STANDARD and node.state == "ready", 60.0)
    await answered_by()
    assert engine.pid is not None
    assert with_draft - resident_bytes(engine.pid) > 0.5 * find_model().stat().st_size
    assert (await fleet.shown("spec-0"))["pool"] == "standard"
    await fleet.drained()
