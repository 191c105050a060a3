"""A reader who types what a page says, on a machine where other ports are free and nodes live elsewhere."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import yaml

from agent_rig import free_port
from documents import Command, SavedFile
from live_service import UNMEASURED_ENVIRONMENT, command, eventually_async
from vllm_like_node import Drafts, vllm_like

__all__ = ["Reader", "reader"]

GATEWAY, ADMIN = "http://127.0.0.1:8080", "http://127.0.0.1:8081"
TIMEOUT_S = 60.0
SLIPSTREAM = f"""#!/bin/sh
case "$1" in status|explain|override) set -- "$@" --url "$ADMIN" ;; esac
exec '{sys.executable}' -m slipstream "$@"
"""
CURL = """#!/bin/sh
exec '{curl}' --fail-with-body "$@"
"""


class Reader:
    """Follows steps in one folder. ``gateway`` and ``admin`` are where the last started fleet is."""

    def __init__(self, folder: Path, programs: Path, running: AsyncExitStack, session: aiohttp.ClientSession) -> None:
        self.gateway, self.admin = GATEWAY, ADMIN
        self._folder = folder
        self._programs = programs
        self._running = running
        self._session = session
        self._saved: dict[str, str] = {}
        self._nodes: dict[str, str] = {}
        """Emulated nodes that the page starts: address as written → where it is."""
        self._servers: dict[str, str] = {}
        """Gateways that the page says where to find, likewise."""

    def save(self, file: SavedFile) -> None:
        """Save a file."""
        self._saved[file.name] = file.text
        (self._folder / file.name).write_text(file.text)

    async def run(self, step: Command) -> str:
        """Type a command; what it printed. Fails when it does, or prints something else than the page says.

        What serves until Ctrl-C goes on to the end, and is where everything after it is sent.
        """
        if step.line == "slipstream up":
            await self._start("up", "--port", "0", "--admin-port", "0")
        elif step.line.startswith("slipstream emulate "):
            await self._emulate(shlex.split(step.line.replace("\\\n", ""))[1:])
        elif step.line.startswith("slipstream node "):
            await self._beside(shlex.split(step.line.replace("\\\n", ""))[1:])
        elif step.line.startswith("slipstream serve -c "):
            name = step.line.rpartition(" ")[2]
            await self.serve(self._saved[name], name)
        else:
            return await self._run(step)
        return ""

    async def serve(self, configuration: str, name: str = "fleet.yaml") -> None:
        """``slipstream serve``, with a node on this machine for each of the configuration that nobody started."""
        data = yaml.safe_load(configuration)
        for node in data["nodes"]:
            if node["url"] in self._nodes:
                node["url"] = self._nodes[node["url"]]
                continue
            drafts = Drafts(20, 60) if node["pool"] == "speculative" else None
            node["url"] = (await self._running.enter_async_context(vllm_like(drafts))).url
        served = self._folder / f"served-{name}"
        free = {"listen": "127.0.0.1:0"}
        sections = {name: data.get(name, {}) | free for name in ("gateway", "admin")}
        served.write_text(yaml.safe_dump(data | sections))
        await self._start("serve", "-c", str(served))
        for section, real in (("gateway", self.gateway), ("admin", self.admin)):
            if "listen" in data.get(section, {}):
                self._servers[f"http://{data[section]['listen']}"] = real
        await eventually_async(lambda: self._usable(len(data["nodes"])))

    async def _usable(self, nodes: int) -> bool:
        async with self._session.get(f"{self.gateway}/ready") as response:
            return bool((await response.json()).get("usable_nodes") == nodes)

    async def _start(self, *arguments: str) -> None:
        self.gateway, self.admin = await self._running.enter_async_context(_serving(self._folder, 2, *arguments))

    async def _emulate(self, words: list[str]) -> None:
        port = words.index("--port") + 1
        written, words[port] = f"http://127.0.0.1:{words[port]}", "0"
        (self._nodes[written],) = await self._running.enter_async_context(_serving(self._folder, 1, *words))

    async def _beside(self, words: list[str]) -> None:
        """An agent and the emulated node that it starts, each on a free port."""
        agent, engine = words[words.index("--listen") + 1], words[words.index("--engine-url") + 1]
        words[words.index(agent)] = "127.0.0.1:0"
        port = free_port()
        words[words.index(engine)] = f"http://127.0.0.1:{port}"
        words[words.index("--port") + 1] = str(port)
        program = words.index("--") + 1
        words[program : program + 1] = command()
        served = _serving(self._folder, 2, *words)
        self._nodes[f"http://{agent}"], self._nodes[engine] = await self._running.enter_async_context(served)

    async def _run(self, step: Command) -> str:
        line = step.line
        for written, real in {GATEWAY: self.gateway, ADMIN: self.admin, **self._servers, **self._nodes}.items():
            line = line.replace(written, real)
        environment = UNMEASURED_ENVIRONMENT | {"ADMIN": self.admin, "PATH": f"{self._programs}:{os.environ['PATH']}"}
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            line,
            cwd=self._folder,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(TIMEOUT_S):
            printed = (await process.communicate())[0].decode()
        if step.output is None:
            assert process.returncode == 0, f"{step.line}\nended with status {process.returncode}:\n{printed}"
        else:
            wanted = ".*".join(re.escape(part) for part in step.output.split("…"))
            assert re.fullmatch(wanted, printed), f"{step.line}\nprinted:\n{printed}\nthe page says:\n{step.output}"
        return printed


@asynccontextmanager
async def reader(folder: Path, curl: str) -> AsyncIterator[Reader]:
    """A reader in an empty folder, whose fleets end with the block."""
    programs, work = folder / "programs", folder / "work"
    programs.mkdir()
    work.mkdir()
    for name, text in (("slipstream", SLIPSTREAM), ("curl", CURL.format(curl=curl))):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (programs / "python").symlink_to(sys.executable)
    async with AsyncExitStack() as running, aiohttp.ClientSession() as session:
        yield Reader(work, programs, running, session)


@asynccontextmanager
async def _serving(folder: Path, count: int, *arguments: str) -> AsyncIterator[list[str]]:
    """The first ``count`` addresses that a command tells of; it serves until Ctrl-C, and then must end well."""
    process = await asyncio.create_subprocess_exec(
        *command(*arguments),
        cwd=folder,
        env=UNMEASURED_ENVIRONMENT | {"PYTHONUNBUFFERED": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        announced = ""
        async with asyncio.timeout(TIMEOUT_S):
            while len(urls := re.findall(r"http://127\.0\.0\.1:\d+", announced)) < count:
                line = (await process.stdout.readline()).decode()
                assert line, f"slipstream {shlex.join(arguments)} ended before it served"
                announced += line
        yield urls[:count]
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(TIMEOUT_S):
            _, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
