"""The life of `slipstream serve`: signals, a configuration that changes, a terminal that goes, the grace at the end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from live_service import COMMAND_ENVIRONMENT, command
from served_command import START_S, accepts, line_with, result, serving, started
from vllm_like_node import MODEL, VllmLike, vllm_like

HELLO = {"model": MODEL, "messages": [{"role": "user", "content": "Hello!"}]}


def config(node: str, **keys: str) -> str:
    """A file before one node, with further lines."""
    lines = {"gateway": '{listen: "127.0.0.1:0"}', "admin": '{listen: "127.0.0.1:0"}', "log": "{level: info}"} | keys
    text = "".join(f"{key}: {value}\n" for key, value in lines.items())
    return f'{text}nodes:\n  - {{name: std-0, url: "{node}", pool: standard, engine: vllm}}\n'


@dataclass
class Serving:
    """A process that serves, its two addresses, and a client's session."""

    process: asyncio.subprocess.Process
    gateway: str
    admin: str
    session: aiohttp.ClientSession

    async def error_with(self, words: str) -> str:
        """The next line of the log with ``words`` in it."""
        assert self.process.stderr is not None
        async with asyncio.timeout(START_S):
            while line := (await self.process.stderr.readline()).decode():
                if words in line:
                    return line
        raise AssertionError(f"the process ended without a line with {words!r}")

    async def fleet(self) -> Any:
        async with self.session.get(f"{self.admin}/fleet") as response:
            return await response.json()

    async def ask(self) -> int:
        async with self.session.post(f"{self.gateway}/v1/chat/completions", json=HELLO) as response:
            await response.read()
            return response.status


@asynccontextmanager
async def serve(path: Path) -> AsyncIterator[Serving]:
    async with started("serve", "-c", str(path)) as process, aiohttp.ClientSession() as session:
        words = (await line_with(process, "gateway on")).replace(",", "").split()
        assert "is read again when it changes" in await line_with(process, str(path))
        await serving(session, words[2])
        yield Serving(process, words[2], words[5], session)


async def held_request(served: Serving, node: VllmLike) -> asyncio.Task[int]:
    """A request that the node does not answer before its gate is opened."""
    node.gate.clear()
    asking = asyncio.create_task(served.ask())
    async with asyncio.timeout(START_S):
        while not node.in_flight:
            await asyncio.sleep(0.02)
    return asking


async def test_sighup_and_a_changed_file_are_taken_in_and_a_bad_file_is_not(tmp_path: Path) -> None:
    async with vllm_like() as node:
        path = tmp_path / "fleet.yaml"
        path.write_text(config(node.url))
        async with serve(path) as served:
            path.write_text(config(node.url, routing="{holdback: 0.5}"))
            served.process.send_signal(signal.SIGHUP)
            line = await served.error_with("config.reloaded")
            assert "cause=SIGHUP" in line
            assert "routing.holdback 0.0 → 0.5" in line

            path.write_text(config(node.url, routing="{holdback: 5}"))
            line = await served.error_with("config.refused")
            assert "cause='a file changed'" in line
            assert f"{path}:4: routing.holdback: found 5; allowed: at most 1" in line
            assert (await served.fleet())["config"]["reloads"] == {"applied": 1, "refused": 1}
            assert await served.ask() == 200

            path.write_text(config(node.url, log="{level: info, format: json}"))
            entry = json.loads(await served.error_with("config.reloaded"))
            assert entry["changed"] == "routing.holdback 0.5 → 0.0; log.format console → json"
            served.process.send_signal(signal.SIGTERM)
            status, errors = await result(served.process)
            assert (status, errors) == (0, "stopping: no new requests, running ones may finish\n")


async def test_sighup_does_not_end_a_command_that_only_begins(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(config("http://127.0.0.1:9"))
    async with started("serve", "-c", str(path)) as process:
        assert process.stderr is not None
        async with asyncio.timeout(START_S):
            while b"warning" not in await process.stderr.readline():
                pass
        process.send_signal(signal.SIGHUP)
        await line_with(process, "gateway on")
        process.send_signal(signal.SIGTERM)
        status, errors = await result(process)
        assert (status, "Traceback" in errors) == (0, False), errors


async def test_a_config_map_is_taken_in_when_kubernetes_swaps_it(tmp_path: Path) -> None:
    async with vllm_like() as node:
        for version, text in (("v1", config(node.url)), ("v2", config(node.url, routing="{holdback: 0.5}"))):
            (tmp_path / version).mkdir()
            (tmp_path / version / "fleet.yaml").write_text(text)
        (tmp_path / "..data").symlink_to("v1")
        path = tmp_path / "fleet.yaml"
        path.symlink_to("..data/fleet.yaml")
        async with serve(path) as served:
            (tmp_path / "..new").symlink_to("v2")
            (tmp_path / "..new").replace(tmp_path / "..data")
            assert "routing.holdback 0.0 → 0.5" in await served.error_with("config.reloaded")


async def test_what_does_not_end_within_the_grace_is_told_so_and_the_exit_is_still_0(tmp_path: Path) -> None:
    async with vllm_like() as node:
        path = tmp_path / "fleet.yaml"
        path.write_text(config(node.url, gateway='{listen: "127.0.0.1:0", grace_s: 0.1}'))
        async with serve(path) as served:
            asking = await held_request(served, node)
            served.process.send_signal(signal.SIGTERM)
            assert await asking == 503
            status, errors = await result(served.process)
            assert (status, "Traceback" in errors) == (0, False), errors
            assert "gateway.grace_over" in errors
            assert "broken_off=1" in errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_it_at_once_and_a_reload_comes_too_late(
    number: signal.Signals, tmp_path: Path
) -> None:
    async with vllm_like() as node:
        path = tmp_path / "fleet.yaml"
        path.write_text(config(node.url))
        async with serve(path) as served:
            asking = await held_request(served, node)
            served.process.send_signal(signal.SIGTERM)
            await served.error_with("stopping")
            served.process.send_signal(signal.SIGHUP)
            async with asyncio.timeout(START_S):
                while await accepts(served.gateway):
                    await asyncio.sleep(0.02)
            assert (await served.fleet())["config"]["last"] is None
            served.process.send_signal(number)
            status, errors = await result(served.process)
            assert (status, "Traceback" in errors) == (-number, False), errors
            with pytest.raises(aiohttp.ClientError):
                await asking


@pytest.mark.parametrize("prefix", [(), ("nohup",)])
async def test_losing_its_terminal_stops_it_gently_where_sighup_alone_would_be_a_reload_unless_nohup_says_otherwise(
    prefix: tuple[str, ...], tmp_path: Path
) -> None:
    async with vllm_like() as node:
        path = tmp_path / "fleet.yaml"
        path.write_text(config(node.url))
        ours, its = os.openpty()

        def take_terminal() -> None:
            os.setsid()
            ioctl(its, termios.TIOCSCTTY, 0)

        process = await asyncio.create_subprocess_exec(
            *prefix,
            *command("serve", "-c", str(path)),
            stdin=its,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=COMMAND_ENVIRONMENT,
            preexec_fn=take_terminal,
        )
        os.close(its)
        try:
            await line_with(process, "gateway on")
            process.send_signal(signal.SIGHUP)
            assert process.stderr is not None
            async with asyncio.timeout(START_S):
                while b"config.reloaded" not in await process.stderr.readline():
                    pass
            os.close(ours)
            if prefix:
                async with asyncio.timeout(START_S):
                    while b"config.reloaded" not in await process.stderr.readline():
                        pass
                process.terminate()
            status, errors = await result(process)
            assert (status, "Traceback" in errors, "stopping" in errors) == (0, False, True), errors
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()
