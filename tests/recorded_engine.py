"""A node that answers with recorded pages, over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

DATA = Path(__file__).parent / "engines" / "data"


def recorded(folder: str, name: str) -> bytes:
    """A recorded page."""
    return (DATA / folder / name).read_bytes()


def recorded_payloads(folder: str, name: str) -> tuple[bytes, ...]:
    """What a gateway hands on of a recorded response: its body, or the last three data payloads of its stream."""
    body = recorded(folder, name).replace(b"\r\n", b"\n").partition(b"\n\n")[2]
    if "stream" not in name:
        return (body,)
    data = [line.removeprefix(b"data: ") for line in body.split(b"\n") if line.startswith(b"data: ")]
    return tuple(payload for payload in data if payload != b"[DONE]")[-3:]


class RecordedEngine:
    """Answers GET by the table ``pages``, which a test may change as it goes on.

    A page is a body (status 200), a status, or ``None``: no answer at all, ever. Other paths are 404. A body may be
    served raw, head and all, by putting it in ``raw``. ``asked`` lists paths and authorization, ``connections``
    counts those that were opened.
    """

    def __init__(self, pages: Mapping[str, bytes | int | None]) -> None:
        self.pages = dict(pages)
        self.raw: dict[str, bytes] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.connections = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    async def start(self) -> None:
        """Listen, on the same port as before if there was one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse connections, and break those there are."""
        if self._server is not None:
            self._server.close()
            for writer in self._writers:
                writer.transport.abort()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                path = head.split(" ", 2)[1]
                headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
                self.asked.append((path, headers.get("authorization")))
                if path in self.raw:
                    writer.write(self.raw[path])
                    await writer.drain()
                    break
                page = self.pages.get(path, 404)
                if page is None:
                    await reader.read()
                    break
                status, body = (200, page) if isinstance(page, bytes) else (page, b"{}")
                writer.write(b"HTTP/1.1 %d -\r\ncontent-length: %d\r\n\r\n" % (status, len(body)) + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()


@asynccontextmanager
async def recorded_engine(pages: Mapping[str, bytes | int | None]) -> AsyncIterator[RecordedEngine]:
    """A `RecordedEngine` that listens for as long as the block lasts."""
    engine = RecordedEngine(pages)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


def llamacpp_pages(folder: str = "llamacpp-b11549-draft", load: str = "metrics-busy.txt") -> dict[str, bytes]:
    """The pages of a recorded llama.cpp, by path."""
    return {
        "/metrics": recorded(folder, load),
        "/v1/models": recorded(folder, "models.json"),
        "/props": recorded(folder, "props.json"),
        "/slots": recorded(folder, "slots-idle.json"),
    }


def vllm_pages() -> dict[str, bytes]:
    """The pages of a recorded vLLM with a speculator, by path."""
    folder = "vllm-0.32.0-ngram"
    return {
        "/metrics": recorded(folder, "metrics-busy.txt"),
        "/v1/models": recorded(folder, "models.json"),
        "/version": recorded(folder, "version.json"),
    }


def sglang_pages() -> dict[str, bytes]:
    """The pages of an SGLang with a speculator, written by hand, by path."""
    folder = "sglang-0.5.23-by-hand"
    return {
        "/v1/loads": recorded(folder, "loads-busy.json"),
        "/metrics": recorded(folder, "metrics-busy.txt"),
        "/v1/models": recorded(folder, "models.json"),
        "/server_info": recorded(folder, "server-info.json"),
    }


def trtllm_pages() -> dict[str, bytes]:
    """The pages of a TensorRT-LLM with a speculator, written by hand, by path."""
    folder = "trtllm-by-hand"
    return {
        "/prometheus/metrics": recorded(folder, "metrics-busy.txt"),
        "/metrics": recorded(folder, "metrics.json"),
        "/v1/models": recorded(folder, "models.json"),
        "/version": recorded(folder, "version.json"),
        "/server_info": recorded(folder, "server-info.json"),
    }
