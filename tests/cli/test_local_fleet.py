"""Nodes of this machine: they serve when they are handed over, what becomes of them is said, and all end together."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path

import aiohttp
import pytest

from agent_rig import EmulatedInHand
from engine_nodes import children_of
from live_service import eventually, eventually_async
from slipstream.agent.errors import EngineStartFailed
from slipstream.cli import local_fleet
from slipstream.cli.local_fleet import local_nodes
from slipstream.config.node_agent import NodeAgentConfig
from slipstream.core.request import Pool
from slipstream.embedded import node as node_module
from slipstream.embedded.errors import EngineNotInstalled, UnusableSpec


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> dict[str, EmulatedInHand]:
    """Emulated engines, by name, which take the places of llama.cpp's."""
    made: dict[str, EmulatedInHand] = {}

    @contextmanager
    def emulated(config: NodeAgentConfig, **_told: object) -> Iterator[tuple[NodeAgentConfig, EmulatedInHand]]:
        one = made[config.name] = EmulatedInHand()
        yield config.model_copy(update={"engine_url": one.url, "engine": "llamacpp"}), one

    monkeypatch.setattr(local_fleet, "embedded_engine", emulated)
    return made


async def usable(agent: str) -> None:
    """Wait until an agent says that its node may have requests."""
    async with aiohttp.ClientSession() as session:

        async def is_usable() -> bool:
            async with session.get(f"{agent}/state") as response:
                state = await response.json()
                return state["healthy"] and not state["draining"]

        await eventually_async(is_usable)


async def test_a_node_that_ends_is_started_again_and_given_up_when_that_is_in_vain_and_each_is_said(
    engines: dict[str, EmulatedInHand], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_fleet, "RESTARTS_IN_VAIN", 1)
    said: list[str] = []
    async with local_nodes(standard=2, say=said.append) as nodes:
        assert [(node["name"], node["pool"]) for node in nodes] == [
            ("spec-0", "speculative"),
            ("std-0", "standard"),
            ("std-1", "standard"),
        ]
        assert [node["url"] for node in nodes] == [engine.url for engine in engines.values()]
        assert {(node["engine"], node["speculator"]) for node in nodes} == {("llamacpp", "ngram")}
        assert [engine.starts for engine in engines.values()] == [[Pool.SPECULATIVE], [Pool.STANDARD], [Pool.STANDARD]]
        doomed = engines["std-0"]
        await doomed.die()
        await eventually(lambda: said == ["std-0 ended and is started again"])
        await usable(nodes[1]["agent"])
        doomed.broken.update(Pool)
        await doomed.die()
        await eventually(lambda: len(said) == 3)
        assert said[1:] == [
            "std-0 ended and is started again",
            "std-0 is given up: serve can not be run: it is broken",
        ]
        assert len(doomed.starts) == 3
        assert engines["std-1"].serves
    assert not any(engine.serves for engine in engines.values())
    assert len(said) == 3


async def test_an_agent_that_fails_is_not_quiet_about_it(engines: dict[str, EmulatedInHand]) -> None:
    async def fail(role: Pool, timeout_s: float) -> None:
        raise ZeroDivisionError(role, timeout_s)

    nodes = local_nodes(speculative=0)
    await nodes.__aenter__()
    engine = engines["std-0"]
    engine.start = fail  # type: ignore[method-assign]  # in place of an emulated start
    await engine.die()
    await eventually(lambda: "agent of std-0" not in {task.get_name() for task in asyncio.all_tasks()})
    with pytest.raises(ZeroDivisionError):
        await nodes.__aexit__(None, None, None)


async def test_a_model_that_can_not_be_loaded_is_one_sentence_with_the_end_of_the_log_and_leaves_no_process(
    tmp_path: Path,
) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF\x03\x00\x00\x00" + bytes(100))
    before = children_of(os.getpid())
    with pytest.raises(
        EngineStartFailed, match=r"std-0 can not be started: the engine ended with status 1; .*failed to load"
    ):
        async with local_nodes(speculative=0, model=bad):
            pass
    assert set(children_of(os.getpid())) <= set(before)


async def test_a_missing_engine_is_one_line_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nothing(_name: str) -> ModuleSpec | None:
        return None

    monkeypatch.setattr(node_module, "find_spec", find_nothing)
    with pytest.raises(EngineNotInstalled) as caught:
        async with local_nodes():
            pass
    pinned = (Path(__file__).parents[2] / "requirements" / "run.txt").read_text().split()
    assert f"pip install {next(line for line in pinned if line.startswith('xllamacpp=='))}`" in str(caught.value)


async def test_without_anything_that_drafts_there_is_no_node_to_start() -> None:
    with pytest.raises(UnusableSpec, match=r"spec-0 would not speculate in either role: use ngram or draft:PATH\.gguf"):
        async with local_nodes(speculator="none"):
            pass
