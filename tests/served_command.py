"""`slipstream` as a person or a service manager runs it: a process with output, errors, signals and a status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from live_service import COMMAND_ENVIRONMENT, command

__all__ = ["START_S", "accepts", "ended", "line_with", "result", "serving", "started"]

START_S = 60.0
END_S = 40.0


@asynccontextmanager
async def started(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command, running in a session of its own; killed at the end if it has not ended."""
    process = await asyncio.create_subprocess_exec(
        *command(*arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=COMMAND_ENVIRONMENT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ended(*arguments: str) -> tuple[int | None, str, str]:
    """Status, output and errors of a command that ends by itself."""
    async with started(*arguments) as process, asyncio.timeout(START_S):
        output, errors = await process.communicate()
    return process.returncode, output.decode(), errors.decode()


async def line_with(process: asyncio.subprocess.Process, words: str) -> str:
    """The next line of output with ``words`` in it."""
    assert process.stdout is not None
    async with asyncio.timeout(START_S):
        while line := (await process.stdout.readline()).decode():
            if words in line:
                return line
    assert process.stderr is not None
    raise AssertionError(f"no line with {words!r}: {(await process.stderr.read()).decode()}")


async def result(process: asyncio.subprocess.Process) -> tuple[int, str]:
    """Status and errors, once it has ended."""
    assert process.stderr is not None
    async with asyncio.timeout(END_S):
        errors = (await process.stderr.read()).decode()
        return await process.wait(), errors


async def serving(session: aiohttp.ClientSession, gateway: str) -> None:
    """Wait until a node is usable."""
    async with asyncio.timeout(START_S):
        while True:
            async with session.get(f"{gateway}/ready") as response:
                if response.status == 200:
                    return
            await asyncio.sleep(0.02)


async def accepts(gateway: str) -> bool:
    """Whether a new client is let in."""
    host, _, port = gateway.removeprefix("http://").rpartition(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except ConnectionRefusedError:
        return False
    writer.close()
    return True
