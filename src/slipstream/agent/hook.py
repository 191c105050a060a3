"""Having an engine switched by whatever else can do that: a command, or an address."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

import aiohttp

from slipstream.agent.errors import HookFailed
from slipstream.agent.output import Output, legible

__all__ = ["run_hook", "tell_hook"]

SAID = 300
"""Characters of a hook's own words that are passed on."""
LAST_WORDS_S = 0.1
"""How long the output of a command that has ended is waited for: what it has left running may never end that."""


async def run_hook(command: tuple[str, ...]) -> None:
    """Run a command until it ends with status 0. What it leaves running goes on, heard by nobody. Raises `HookFailed`.

    Cancelled, it ends the command with all of its process group.
    """
    try:
        said, written = os.pipe()
        try:
            output = await Output.of(said, _to_nobody)
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=written,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        finally:
            os.close(written)
    except (OSError, ValueError) as error:
        raise HookFailed(f"{command[0]} can not be run: {error}") from error
    try:
        status = await process.wait()
    finally:
        if process.returncode is None:  # called off
            with suppress(ProcessLookupError):  # it has just ended
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if status != 0:
        await asyncio.wait([output.reading], timeout=LAST_WORDS_S)
        words = " ".join(output.last_lines())[-SAID:]
        raise HookFailed(f"{' '.join(command)} ended with status {status}: {words or 'it said nothing'}")


async def tell_hook(url: str, *, active: bool) -> None:
    """Post to an address whether speculation is to be active, until it answers with a 2xx status. Raises `HookFailed`.
    How long it may take is for whoever waits.
    """
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session,
            session.post(url, json={"active": active}, allow_redirects=False) as response,
        ):
            if not 200 <= response.status < 300:
                said = await response.content.read(4096)
                words = legible(said)[:SAID]
                raise HookFailed(f"{url} answered with status {response.status}: {words or 'it said nothing'}")
    except (aiohttp.ClientError, OSError) as error:
        raise HookFailed(f"{url} can not be reached: {error}") from error


def _to_nobody(_output: bytes) -> None:
    """A hook's output is none of the engine's."""
