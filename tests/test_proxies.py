"""The proxies' configurations of the how-to, in front of the whole service: streams, ids and clients that leave."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from documents import ROOT, fences
from gateway_rig import eventually
from live_service import Live, live
from scripted_node import STREAM_HEAD, Call, chunked, scripted_node, stall
from slipstream.config import FleetConfig
from vllm_like_node import MODEL, VllmLike

PAGE = ROOT / "docs" / "how-to" / "run-behind-a-proxy.md"
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"Yes"},"finish_reason":null}]}\n\n'


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def told(language: str, gateway: str, port: int) -> str:
    """The page's configuration, between these two ports."""
    (text,) = [text for found, _, text in fences(PAGE) if found == language]
    assert "8080" in text
    assert "8000" in text
    return text.replace("8000", str(port)).replace("8080", str(urlsplit(gateway).port))


def nginx(gateway: str, port: int, directory: Path) -> list[str]:
    """The words that start nginx, in the foreground and with nothing outside of ``directory``."""
    paths = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{path}_temp_path {directory}/{path};\n" for path in paths)
    (directory / "nginx.conf").write_text(
        f"daemon off;\nmaster_process off;\npid {directory}/pid;\nerror_log {directory}/error.log;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{temporary}{told('nginx', gateway, port)}}}\n"
    )
    return ["nginx", "-p", str(directory), "-e", str(directory / "error.log"), "-c", str(directory / "nginx.conf")]


def envoy(gateway: str, port: int, directory: Path) -> list[str]:
    """The words that start Envoy."""
    (directory / "envoy.yaml").write_text(told("yaml", gateway, port))
    return ["envoy", "-c", str(directory / "envoy.yaml"), "--concurrency", "1", "--use-dynamic-base-id", "-l", "error"]


@asynccontextmanager
async def started(words: list[str], port: int) -> AsyncIterator[str]:
    """A proxy that listens; yields its address."""
    process = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.DEVNULL)

    def listens() -> bool:
        assert process.returncode is None, "the proxy has ended"
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    try:
        await eventually(listens)
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def fleet_before(url: str) -> FleetConfig:
    return FleetConfig.model_validate(
        {
            "gateway": {"listen": "127.0.0.1:0"},
            "admin": {"listen": "127.0.0.1:0"},
            "nodes": [{"name": "std-0", "url": url, "pool": "standard", "engine": "vllm"}],
        }
    )


@pytest.mark.parametrize("words_of", [nginx, envoy])
async def test_a_stream_comes_through_as_it_is_made_with_its_id_and_the_node_learns_that_its_client_left(
    words_of: Callable[[str, int, Path], list[str]], tmp_path: Path
) -> None:
    if shutil.which(words_of.__name__) is None:
        pytest.skip(f"{words_of.__name__} is not installed")
    node = VllmLike()
    calls: list[Call] = []

    async def first_event_only(call: Call) -> None:
        if call.method == "POST":
            calls.append(call)
            await stall(STREAM_HEAD, chunked(EVENT))(call)
        else:
            await node(call)

    async with scripted_node(first_event_only) as scripted, live(fleet_before(scripted.url)) as fleet:
        port = free_port()
        async with started(words_of(fleet.service.gateway_url, port, tmp_path), port) as proxy:
            await streamed_in_part(fleet, proxy)
            await eventually(calls[0].gone.is_set)
            await fleet.drained()


async def streamed_in_part(fleet: Live, proxy: str) -> None:
    """Read the first event of a stream that has no end, and leave."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hello!"}], "stream": True}
    async with asyncio.timeout(20), fleet.session.post(f"{proxy}/v1/chat/completions", json=body) as response:
        assert response.status == 200
        event = await response.content.readuntil(b"\n\n")
        assert json.loads(event.removeprefix(b"data: "))["choices"][0]["delta"]["content"] == "Yes"
        assert response.headers["x-slipstream-node"] == "std-0"
        (decision,) = (await fleet.admin("/decisions"))["decisions"]
        assert decision["request_id"] == response.headers["x-request-id"]
        response.close()


async def test_nginx_leaves_a_body_that_is_too_large_to_the_gateway_and_keeps_none_on_disk(tmp_path: Path) -> None:
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not installed")
    async with scripted_node(VllmLike()) as scripted, live(fleet_before(scripted.url)) as fleet:
        port = free_port()
        async with started(nginx(fleet.service.gateway_url, port, tmp_path), port) as proxy:
            address = f"{proxy}/v1/chat/completions"
            async with (
                asyncio.timeout(20),
                fleet.session.post(address, data=BytesIO(bytes(32 * 1024 * 1024 + 1))) as response,
            ):
                assert response.status == 413
                assert (await response.json())["error"]["code"] == "body_too_large"
            message = [{"role": "user", "content": "x" * 4_000_000}]
            body = BytesIO(json.dumps({"model": MODEL, "messages": message, "max_tokens": 3}).encode())
            async with asyncio.timeout(20), fleet.session.post(address, data=body) as response:
                assert response.status == 200
    assert "a client request body is buffered to a temporary file" not in (tmp_path / "error.log").read_text()


@pytest.mark.parametrize("words_of", [nginx, envoy])
async def test_nothing_is_retried(words_of: Callable[[str, int, Path], list[str]], tmp_path: Path) -> None:
    if shutil.which(words_of.__name__) is None:
        pytest.skip(f"{words_of.__name__} is not installed")
    port, behind = free_port(), 0

    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal behind
        behind += 1
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    gateway = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with (
        started(words_of(gateway, port, tmp_path), port) as proxy,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(20)) as session,
        session.get(f"{proxy}/health") as response,
    ):
        assert response.status in {502, 503}
    server.close()
    await server.wait_closed()
    assert behind == 1
