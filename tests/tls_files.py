"""Certificates that only tests trust, made by ``gateway/data/tls/make.sh``, and servers that show them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from slipstream.gateway.tls import server_context

__all__ = ["AUTHORITY", "STRANGER", "chain_and_key", "client_tls", "tls_before"]

_DIRECTORY = Path(__file__).parent / "gateway" / "data" / "tls"
AUTHORITY = str(_DIRECTORY / "authority.pem")
STRANGER = str(_DIRECTORY / "stranger.pem")


def chain_and_key(name: str) -> tuple[str, str]:
    """The files of a certificate: ``server`` and ``renewed`` are for this machine, ``elsewhere`` is for another."""
    return str(_DIRECTORY / f"{name}.pem"), str(_DIRECTORY / f"{name}.key")


def client_tls(version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    """A client that trusts the test's authority and speaks one version."""
    context = ssl.create_default_context(cafile=AUTHORITY)
    context.minimum_version = context.maximum_version = version
    return context


@asynccontextmanager
async def tls_before(url: str, name: str = "server") -> AsyncIterator[str]:
    """The address of a server that speaks TLS with a certificate, and passes all on to another as plain bytes."""
    plain = urlsplit(url)

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward = await asyncio.open_connection(plain.hostname, plain.port)
        await asyncio.gather(copy(reader, onward[1]), copy(onward[0], writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_context(*chain_and_key(name)))
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
