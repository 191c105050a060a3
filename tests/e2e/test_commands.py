"""`slipstream serve` and `slipstream up` as a person or a service manager runs them: processes, signals, statuses."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
from pathlib import Path

import aiohttp
import openai
import pytest

from engine_nodes import EngineNode, children_of
from process_life import is_alive, wait_until_gone
from served_command import START_S, accepts, ended, line_with, result, serving, started
from vllm_like_node import MODEL, vllm_like


def engines_of(pid: int) -> list[int]:
    """Those of a fleet that `up` has started: its children are their keepers."""
    return [engine for keeper in children_of(pid) for engine in children_of(keeper)]


def write_config(path: Path, node: str, gateway: str = "127.0.0.1:0", admin: str = "127.0.0.1:0") -> Path:
    path.write_text(
        f'gateway: {{listen: "{gateway}"}}\nadmin: {{listen: "{admin}"}}\n'
        f'nodes:\n  - {{name: std-0, url: "{node}", pool: standard}}\n'
    )
    return path


async def test_a_bad_configuration_is_refused_with_all_its_problems_before_anything_is_bound(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(
        "gateway: {lisen: 127.0.0.1:0}\npools: {speculative: {ceiling: none}}\n"
        "nodes:\n  - {name: a, url: 'http://127.0.0.1:1', pool: fast}\n"
    )
    status, output, errors = await ended("serve", "-c", str(path))
    assert (status, output) == (1, "")
    assert "lisen" in errors
    assert "listen" in errors
    assert "ceiling" in errors
    assert "fast" in errors
    assert "Traceback" not in errors
    assert all(f"{path}:{line}" in errors for line in (1, 2, 4))


async def test_a_missing_configuration_is_one_line(tmp_path: Path) -> None:
    status, _, errors = await ended("serve", "-c", str(tmp_path / "nowhere.yaml"))
    assert status == 1
    assert len(errors.splitlines()) == 1
    assert "nowhere.yaml" in errors


@pytest.mark.parametrize("part", ["gateway", "admin"])
async def test_a_taken_port_is_one_line_after_the_warnings_and_names_the_address(tmp_path: Path, part: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        path = write_config(tmp_path / "fleet.yaml", "http://127.0.0.1:1", **{part: address})
        status, output, errors = await ended("serve", "-c", str(path))
    assert (status, output) == (1, "")
    warning, error = errors.splitlines()
    assert warning == f"{path}: warning: no node is in the speculative pool, so nothing is ever speculated"
    assert error == f"can not listen on {address} ({part}): Address already in use"


async def test_up_with_a_model_that_is_not_there_is_one_line() -> None:
    status, output, errors = await ended("up", "--model", "/nonexistent")
    assert (status, output, errors) == (1, "", "There is no model file at /nonexistent.\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_serve_finishes_a_running_answer_when_told_to_stop(number: signal.Signals, tmp_path: Path) -> None:
    async with vllm_like() as node:
        path = write_config(tmp_path / "fleet.yaml", node.url)
        async with started("serve", "-c", str(path)) as process:
            announced = await line_with(process, "gateway on")
            found = re.match(
                r"gateway on (http://127\.0\.0\.1:\d+), admin on (http://127\.0\.0\.1:\d+), 1 node$", announced
            )
            assert found is not None, announced
            gateway, admin = found.groups()
            async with (
                aiohttp.ClientSession() as session,
                openai.AsyncOpenAI(base_url=f"{gateway}/v1", api_key="none", max_retries=0) as client,
            ):
                async with asyncio.timeout(START_S):
                    await serving(session, gateway)
                    node.gate.clear()
                    asking = asyncio.create_task(
                        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hello!"}])
                    )
                    while not node.in_flight:
                        await asyncio.sleep(0.02)
                    process.send_signal(number)
                    assert process.stderr is not None
                    while b"stopping" not in await process.stderr.readline():
                        pass
                    polls = node.asked["/metrics"]
                    while await accepts(gateway):
                        await asyncio.sleep(0.02)
                    # Until it is done, the fleet is watched and can be looked at.
                    async with session.get(f"{admin}/fleet") as response:
                        assert (await response.json())["nodes"][0]["own"] == 1
                    while node.asked["/metrics"] == polls:
                        await asyncio.sleep(0.02)
                assert process.returncode is None
                node.gate.set()
                assert (await asking).choices[0].message.content == "Yes."
            status, errors = await result(process)
            assert (status, "Traceback" in errors) == (0, False), errors


@pytest.mark.engine
async def test_serve_finishes_a_real_stream_when_told_to_stop(
    shared_fleet: tuple[EngineNode, ...], tmp_path: Path
) -> None:
    node = shared_fleet[1]
    path = write_config(tmp_path / "fleet.yaml", node.url)
    async with started("serve", "-c", str(path)) as process:
        gateway = (await line_with(process, "gateway on")).split()[2].rstrip(",")
        async with (
            aiohttp.ClientSession() as session,
            openai.AsyncOpenAI(base_url=f"{gateway}/v1", api_key="none", max_retries=0) as client,
        ):
            await serving(session, gateway)
            stream = await client.chat.completions.create(
                model=node.model,
                messages=[{"role": "user", "content": "Tell me a story."}],
                max_tokens=60,
                stream=True,
                extra_body={"ignore_eos": True},
            )
            count, finish_reason = 0, None
            async for chunk in stream:
                count += 1
                if count == 3:
                    process.send_signal(signal.SIGTERM)
                if chunk.choices:
                    finish_reason = chunk.choices[0].finish_reason or finish_reason
            assert finish_reason == "length"
            assert count >= 60
        status, errors = await result(process)
        assert (status, "Traceback" in errors) == (0, False), errors


@pytest.mark.engine
async def test_up_serves_what_it_says_and_ctrl_c_ends_everything() -> None:
    async with started("up", "--slots", "2", "--port", "0", "--admin-port", "0") as process:
        base = (await line_with(process, "base URL")).split()[-1]
        engines = engines_of(process.pid)
        assert len(engines) == 2
        async with openai.AsyncOpenAI(base_url=base, api_key="none", max_retries=0) as client:
            (model,) = [one.id async for one in client.models.list()]
            answer = await client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": "Say hello."}], max_tokens=4
            )
            assert answer.choices[0].message.content
        process.send_signal(signal.SIGINT)
        status, errors = await result(process)
        assert (status, errors) == (0, "stopping\n")
        assert not any(is_alive(engine) for engine in engines)


@pytest.mark.engine
async def test_up_says_that_a_node_died_and_starts_it_again_and_none_is_left_when_up_is_killed() -> None:
    async with started("up", "--slots", "1", "--standard", "0", "--port", "0", "--admin-port", "0") as process:
        await line_with(process, "base URL")
        (engine,) = engines_of(process.pid)
        os.kill(engine, signal.SIGKILL)
        assert process.stderr is not None
        async with asyncio.timeout(START_S):
            while b"spec-0 ended and is started again" not in await process.stderr.readline():
                pass
            while (again := engines_of(process.pid)) in ([], [engine]):
                await asyncio.sleep(0.02)
        process.kill()
        await process.wait()
        assert all([await asyncio.to_thread(wait_until_gone, one) for one in again])


@pytest.mark.engine
async def test_ctrl_c_while_up_is_still_starting_leaves_no_node_and_no_traceback() -> None:
    async with started("up", "--slots", "1", "--port", "0", "--admin-port", "0") as process:
        async with asyncio.timeout(START_S):
            while len(engines := engines_of(process.pid)) < 2:
                await asyncio.sleep(0.01)
        process.send_signal(signal.SIGINT)
        status, errors = await result(process)
        assert status != 0
        assert "Traceback" not in errors
        assert all([await asyncio.to_thread(wait_until_gone, engine) for engine in engines])


@pytest.mark.engine
async def test_up_on_a_taken_port_leaves_no_node() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, output, errors = await ended("up", "--slots", "1", "--standard", "0", "--port", str(port))
    assert (status, output) == (1, "")
    assert errors == f"can not listen on 127.0.0.1:{port} (gateway): Address already in use\n"
