"""`slipstream status --watch` while its gateway restarts, and status of a gateway that is not trusted."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import sys
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from fleets import dispatcher_of, fleet_of, speculative, standard
from slipstream.admin import Admin, serve_admin
from slipstream.gateway.tls import server_context
from slipstream.telemetry import FleetCollector, Instruments
from tls_files import AUTHORITY, chain_and_key

SCRIPT = "from slipstream.cli import main; main()"
PIPE = asyncio.subprocess.PIPE


def admin() -> Admin:
    dispatcher = dispatcher_of(fleet_of(speculative("spec-0"), standard("std-0")))
    return Admin(
        dispatcher, FleetCollector(dispatcher, Instruments(), ["code"], lambda: 0.5, lambda: None), lambda: 0.5, "1"
    )


async def status(*arguments: str, **environment: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SCRIPT, "status", *arguments),
        stdout=PIPE,
        stderr=PIPE,
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1", **environment},
    )


async def ended(process: asyncio.subprocess.Process) -> tuple[int | None, str]:
    try:
        async with asyncio.timeout(60):
            _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, " ".join(errors.decode().split())


@pytest.mark.parametrize("option", [[], ["--json"]])
async def test_watching_outlasts_a_restart_and_says_once_that_nothing_answers(option: list[str]) -> None:
    async with serve_admin(admin(), "127.0.0.1", 0) as url:
        process = await status("--watch", "--url", url, *option)
        assert process.stdout is not None
        assert process.stderr is not None
        async with asyncio.timeout(60):
            while b"spec-0" not in await process.stdout.readline():
                assert not process.stdout.at_eof(), await process.stderr.read()
    async with asyncio.timeout(60):
        said = (await process.stderr.readline()).decode()
    assert said.startswith(f"no admin API answers at {url}")
    assert said.endswith("Watching on until it answers.\n")
    async with serve_admin(admin(), "127.0.0.1", urlsplit(url).port or 0), asyncio.timeout(60):
        for _ in range(2):
            while b"std-0" not in await process.stdout.readline():
                assert not process.stdout.at_eof(), await process.stderr.read()
        process.send_signal(signal.SIGINT)
        assert await ended(process) == (0, "")


async def test_a_terminal_shows_that_nothing_answers_until_something_does() -> None:
    ours, theirs = pty.openpty()
    seen = bytearray()
    loop = asyncio.get_running_loop()

    def read() -> None:
        with suppress(OSError):
            seen.extend(os.read(ours, 65_536))

    async def shows(words: bytes) -> None:
        seen.clear()
        async with asyncio.timeout(60):
            while words not in b" ".join(seen.split()):
                await asyncio.sleep(0.02)

    loop.add_reader(ours, read)
    process = None
    try:
        async with serve_admin(admin(), "127.0.0.1", 0) as url:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", SCRIPT, "status", "--watch", "--url", url),
                stdout=theirs,
                env={**os.environ, "COLUMNS": "80", "LINES": "40", "NO_COLOR": "1", "TERM": "xterm"},
            )
            await shows(b"std-0")
        await shows(b"Watching on until")
        async with serve_admin(admin(), "127.0.0.1", urlsplit(url).port or 0):
            await shows(b"std-0")
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(60):
                assert await process.wait() == 0
    finally:
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
        loop.remove_reader(ours)
        os.close(ours)
        os.close(theirs)


async def test_a_certificate_that_is_not_trusted_is_named_and_so_is_what_helps() -> None:
    async with serve_admin(admin(), "127.0.0.1", 0, server_context(*chain_and_key("server"))) as url:
        code, errors = await ended(await status("--url", url))
        assert code == 1
        assert f"the certificate that {url} shows is not trusted here" in errors
        assert "SSL_CERT_FILE" in errors
        assert "running?" not in errors
        process = await status("--json", "--url", url, SSL_CERT_FILE=AUTHORITY)
        assert process.stdout is not None
        output = await process.stdout.read()
        assert await ended(process) == (0, "")
        assert [node["name"] for node in json.loads(output)["nodes"]] == ["spec-0", "std-0"]
