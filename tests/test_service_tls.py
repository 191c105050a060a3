"""A whole service on https: clients, operators and nodes, and certificates that are renewed."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from live_service import eventually
from slipstream.config import load
from slipstream.config.loading import parse
from slipstream.core.errors import ConfigError
from slipstream.service import Service, running
from slipstream.settings import read_settings
from tls_files import AUTHORITY, chain_and_key, client_tls, tls_before
from vllm_like_node import MODEL, Drafts, vllm_like

FLEET = """
gateway: {{listen: "127.0.0.1:0", tls: {{certificate: chain.pem, key: key.pem}}}}
admin: {{listen: "127.0.0.1:0", tls: {{certificate: chain.pem, key: key.pem}}}}
nodes: [{{name: spec-0, url: "{url}", pool: speculative, ca: {ca}}}]
"""


def install(directory: Path, name: str, *targets: str) -> None:
    """Put a certificate and its key where the configuration names them, or one of the two."""
    for target, source in zip(("chain.pem", "key.pem"), chain_and_key(name), strict=True):
        if target in (targets or ("chain.pem", "key.pem")):
            (directory / target).write_bytes(Path(source).read_bytes())


async def shown_at(url: str) -> str:
    """Whose certificate a new connection sees."""
    host, port = url.removeprefix("https://").rsplit(":", 1)
    _, writer = await asyncio.open_connection(host, int(port), ssl=client_tls())
    peer: Any = writer.get_extra_info("peercert")
    writer.close()
    return str(dict(field[0] for field in peer["subject"])["commonName"])


async def asked(service: Service) -> tuple[int, int]:
    """The statuses of a completion and of the admin API's health."""
    tls = ssl.create_default_context(cafile=AUTHORITY)
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hello!"}]}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session:
        async with session.post(f"{service.gateway_url}/v1/chat/completions", json=body) as answer:
            status = answer.status
        async with session.get(f"{service.admin_url}/health") as answer:
            return status, answer.status


async def test_everything_is_served_and_reached_over_https_and_certificates_are_renewed(tmp_path: Path) -> None:
    install(tmp_path, "server")
    path = tmp_path / "fleet.yaml"
    async with vllm_like(Drafts(20, 60)) as node, tls_before(node.url) as url:
        path.write_text(FLEET.format(url=url, ca=AUTHORITY))
        async with running(load(path), path) as service:
            await service.ready(20)
            assert await asked(service) == (200, 200)
            urls = service.gateway_url, service.admin_url
            assert [await shown_at(url) for url in urls] == ["server", "server"]

            install(tmp_path, "renewed")
            service.reload("renewed certificates")
            await eventually(lambda: service.reloads.last is not None)
            assert [await shown_at(url) for url in urls] == ["renewed", "renewed"]
            assert await asked(service) == (200, 200)

            install(tmp_path, "server", "chain.pem")  # not that of the key beside it
            service.reload("half a renewal")
            await eventually(lambda: service.reloads.counts["refused"] == 1)
            assert [await shown_at(url) for url in urls] == ["renewed", "renewed"]
            assert await asked(service) == (200, 200)


def test_https_is_not_turned_on_or_off_while_it_runs(tmp_path: Path) -> None:
    install(tmp_path, "server")
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET.format(url="https://a", ca=AUTHORITY))
    plain = parse('nodes: [{name: a, url: "http://a", pool: standard}]\ngateway: {listen: "127.0.0.1:0"}', "f")
    with pytest.raises(
        ConfigError, match=r"gateway\.tls: found a certificate; allowed: no certificate, as at the star"
    ):
        read_settings(path, plain)
