"""Starting, dying, starting again and ending."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from engine_nodes import node_specs
from process_life import is_alive, state_of, wait_until_gone
from slipstream.core.request import Pool
from slipstream.embedded import node as node_module
from slipstream.embedded.errors import EngineNotInstalled, NodeStartFailed, PortTaken
from slipstream.embedded.fleet import EmbeddedFleet
from slipstream.embedded.model import find_model
from slipstream.embedded.node import EmbeddedNode, EmbeddedNodeSpec, NodeState

FLEET_PROGRAM = """
import asyncio, sys
from engine_nodes import embedded_fleet

async def main():
    async with embedded_fleet(speculative=1, standard=1, slots=1) as fleet:
        print(*(node.pid for node in fleet.nodes), flush=True)
        await asyncio.Event().wait()

if sys.argv[1] == "uvloop":
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
"""


async def eventually(condition: Callable[[], bool], deadline_s: float = 20) -> None:
    async with asyncio.timeout(deadline_s):
        while not condition():
            await asyncio.sleep(0.01)


def health(node: EmbeddedNode) -> int:
    with urllib.request.urlopen(f"{node.url}/health") as response:
        return int(response.status)


@pytest.mark.engine
async def test_nodes_start_together_and_are_gone_afterwards() -> None:
    seen: list[tuple[str, NodeState]] = []
    async with EmbeddedFleet(node_specs(1, 1, slots=1), on_progress=lambda n: seen.append((n.name, n.state))) as fleet:
        assert [(node.name, node.pool) for node in fleet.nodes] == [
            ("spec-0", Pool.SPECULATIVE),
            ("std-0", Pool.STANDARD),
        ]
        assert all(health(node) == 200 for node in fleet.nodes)
        assert all(node.ready_s is not None and node.ready_s < 5 for node in fleet.nodes)
        pids = [node.pid for node in fleet.nodes]
        assert all(pid is not None and os.getsid(pid) == pid for pid in pids)  # out of reach of the terminal's Ctrl-C
    assert not any(pid is not None and is_alive(pid) for pid in pids)
    assert seen[:2] == [("spec-0", NodeState.STARTING), ("std-0", NodeState.STARTING)]
    assert sorted(seen[2:4]) == [("spec-0", NodeState.READY), ("std-0", NodeState.READY)]
    assert sorted(seen[4:]) == [("spec-0", NodeState.STOPPED), ("std-0", NodeState.STOPPED)]
    await fleet.stop()  # a second time, nothing happens
    assert len(seen) == 6


@pytest.mark.engine
async def test_a_killed_node_is_started_again_on_its_port_after_doubling_waits_that_a_minute_of_life_resets() -> None:
    waits: list[float] = []
    now = 0.0
    seen: list[NodeState] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async with EmbeddedFleet(
        node_specs(1, 0, slots=1), sleep=sleep, clock=lambda: now, on_progress=lambda node: seen.append(node.state)
    ) as fleet:
        (node,) = fleet.nodes
        url = node.url
        for starts in (2, 3, 4):
            if starts == 4:
                now += 60
            assert node.pid is not None
            os.kill(node.pid, signal.SIGKILL)
            await eventually(lambda starts=starts: node.starts == starts)  # type: ignore[misc]  # bound to the loop's value
            assert node.url == url
            assert health(node) == 200
    assert waits == [0.5, 1.0, 0.5]
    assert seen[:5] == [NodeState.STARTING, NodeState.READY, NodeState.DOWN, NodeState.STARTING, NodeState.READY]


@pytest.mark.engine
async def test_a_node_whose_model_goes_away_is_given_up_after_some_restarts_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    model = tmp_path / "model.gguf"
    model.symlink_to(find_model())
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    doomed = EmbeddedNodeSpec("doomed", Pool.STANDARD, model, slots=1)
    async with EmbeddedFleet([doomed, *node_specs(0, 1, slots=1)], sleep=sleep) as fleet:
        node, other = fleet.nodes
        assert node.pid is not None
        model.unlink()
        os.kill(node.pid, signal.SIGKILL)
        await eventually(lambda: node.state is NodeState.FAILED)
        assert node.failure is not None
        assert "failed to load model" in str(node.failure)
        assert health(other) == 200
    assert waits == [0.5, 1, 2, 4, 8]
    assert node.state is NodeState.FAILED
    assert other.state is NodeState.STOPPED


async def test_a_bad_model_is_an_error_with_the_end_of_the_log_and_leaves_no_node_running(bad_model: Path) -> None:
    bad = EmbeddedNodeSpec("bad", Pool.STANDARD, bad_model)
    fleet = EmbeddedFleet([bad, *node_specs(0, 1, slots=1)])
    with pytest.raises(NodeStartFailed, match="Node bad ended with status 1") as caught:
        await fleet.__aenter__()
    assert any("failed to load model" in line for line in caught.value.log_lines)
    assert [node.pid for node in fleet.nodes] == [None, None]
    assert {node.state for node in fleet.nodes} == {NodeState.STOPPED}


async def test_a_node_that_is_not_ready_in_time_is_an_error_and_its_process_is_gone() -> None:
    fleet = EmbeddedFleet(node_specs(0, 1), start_timeout_s=0.001)
    with pytest.raises(NodeStartFailed, match=r"std-0 was not ready after 0\.001 s"):
        await fleet.__aenter__()
    assert fleet.nodes[0].pid is None


async def test_cancelling_the_start_leaves_no_process() -> None:
    pids: list[int] = []
    fleet = EmbeddedFleet(node_specs(0, 1))
    starting = asyncio.create_task(fleet.__aenter__())
    await eventually(lambda: fleet.nodes[0].pid is not None)
    pids.append(fleet.nodes[0].pid or 0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not is_alive(pids[0])


@pytest.mark.engine
async def test_a_node_that_does_not_heed_term_is_killed_after_the_grace() -> None:
    async with EmbeddedFleet(node_specs(0, 1, slots=1), stop_grace_s=0.1) as fleet:
        pid = fleet.nodes[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        await eventually(lambda: state_of(pid) == "T")
    assert not is_alive(pid)


@pytest.mark.engine
async def test_a_supervisor_that_fails_is_not_quiet_about_it() -> None:
    def explode(node: EmbeddedNode) -> None:
        if node.state is NodeState.DOWN:
            raise ZeroDivisionError

    fleet = EmbeddedFleet(node_specs(0, 1, slots=1), on_progress=explode)
    await fleet.__aenter__()
    pid = fleet.nodes[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: fleet.nodes[0].state is NodeState.DOWN)
    with pytest.raises(ZeroDivisionError):
        await fleet.stop()


async def test_a_taken_port_is_an_error_before_any_process_starts() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(PortTaken):
            await EmbeddedFleet([EmbeddedNodeSpec("std-0", Pool.STANDARD, find_model(), port=port)]).__aenter__()


async def test_a_missing_engine_is_an_error_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nothing(name: str) -> ModuleSpec | None:
        return None

    monkeypatch.setattr(node_module, "find_spec", find_nothing)
    with pytest.raises(EngineNotInstalled) as caught:
        await EmbeddedFleet(node_specs(0, 1)).__aenter__()
    pinned = (Path(__file__).parents[2] / "requirements" / "run.txt").read_text().split()
    assert f"pip install {next(line for line in pinned if line.startswith('xllamacpp=='))}`" in str(caught.value)


async def test_a_process_that_can_not_be_made_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(NodeStartFailed, match=r"could not be started: No such file or directory\.$"):
        await EmbeddedFleet(node_specs(0, 1)).__aenter__()


@pytest.mark.engine
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_nodes_are_gone_when_their_parent_is_killed(loop: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        [sys.executable, "-c", FLEET_PROGRAM, loop], stdout=subprocess.PIPE, env=environment
    ) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(is_alive(pid) for pid in pids)
        parent.kill()
        parent.wait()
        assert all(wait_until_gone(pid) for pid in pids)
