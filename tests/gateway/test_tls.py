"""TLS from clients and to nodes, with certificates that only the tests trust."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path
from typing import Any

import pytest

from gateway_rig import Client, eventually, rig
from scripted_node import answer, scripted_node, stall, stream
from slipstream.core.outcome import Ending
from slipstream.gateway.limits import Limits
from slipstream.gateway.tls import Authorities, Certificate, server_context
from tls_files import AUTHORITY, STRANGER, chain_and_key, client_tls, tls_before

DONE = b"data: [DONE]\n\n"


def certificate(name: str = "server") -> Certificate:
    return Certificate(server_context(*chain_and_key(name)))


def shown(client: Client) -> str:
    """Whose certificate the client sees."""
    peer: Any = client.writer.get_extra_info("peercert")
    return str(dict(field[0] for field in peer["subject"])["commonName"])


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_requests_are_answered_over_tls(version: ssl.TLSVersion) -> None:
    events = [b"data: {}\n\n", DONE]
    async with scripted_node(stream(events), answer()) as node, rig(node.url, certificate=certificate()) as gateway:
        async with Client.to(gateway, client_tls(version)) as client:
            client.post(stream=True)
            response = await client.response()
            assert (response.body, response.complete) == (b"".join(events), True)
            client.post(padding="x" * 400_000)
            assert (await client.response()).status == 200
            assert shown(client) == "server"
        assert len(node.calls[1].body) > 400_000


async def test_older_versions_of_tls_are_not_spoken() -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname = False
    old.verify_mode = ssl.CERT_NONE
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    async with rig(certificate=certificate()) as gateway:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            async with Client.to(gateway, old):
                pass


@pytest.mark.skipif(shutil.which("openssl") is None, reason="only the openssl command can ask for it")
async def test_a_client_can_not_have_tls_agreed_on_again() -> None:
    async with rig(certificate=certificate()) as gateway:
        asking = await asyncio.create_subprocess_exec(
            *("openssl", "s_client", "-tls1_2", "-connect", f"{gateway.host}:{gateway.port}", "-CAfile", AUTHORITY),
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT,
        )
        assert asking.stdin is not None
        assert asking.stdout is not None
        async with asyncio.timeout(20):
            await asking.stdout.readuntil(b"Verify return code: 0 (ok)")
            asking.stdin.write(b"R\n")
            assert b"no renegotiation" in await asking.stdout.read()
            await asking.wait()


async def test_a_malformed_request_over_tls_is_a_400_that_closes() -> None:
    async with rig(certificate=certificate()) as gateway, Client.to(gateway, client_tls()) as client:
        client.send(b"nonsense\r\n\r\n")
        assert (await client.response()).status == 400
        assert await client.closed()


async def test_a_client_that_speaks_no_tls_or_nothing_is_dropped_in_time() -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    async with rig(certificate=certificate(), limits=Limits(client_head_s=0.2)) as gateway:
        for data in b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01", b"":
            async with Client.to(gateway) as client:
                client.send(data)
                await client.reader.read()  # an alert at most
        await eventually(lambda: gateway.gateway.open_connections == 0)
    asyncio.get_running_loop().set_exception_handler(None)
    assert not told


async def test_a_client_that_leaves_over_tls_is_noticed_at_once() -> None:
    async with scripted_node(stall()) as node, rig(node.url, certificate=certificate()) as gateway:
        async with Client.to(gateway, client_tls()) as client:
            client.post()
            await eventually(lambda: len(node.calls) == 1)
        await asyncio.wait_for(node.calls[0].gone.wait(), 10)
        await eventually(lambda: not gateway.books.open)
        assert gateway.books.outcomes[0].ending is Ending.CLIENT_GONE


async def test_a_client_that_reads_nothing_over_tls_is_cut() -> None:
    async with (
        scripted_node(answer(body=b"x" * 30_000_000)) as node,
        rig(node.url, limits=Limits(write_s=0.2), certificate=certificate()) as gateway,
        Client.to(gateway, client_tls()) as client,
    ):
        client.stop_reading()
        client.post()
        await eventually(lambda: gateway.gateway.open_connections == 1)
        await eventually(lambda: gateway.gateway.open_connections == 0)


async def test_a_renewed_certificate_is_shown_to_new_connections_and_old_ones_go_on() -> None:
    own = certificate()
    async with rig(certificate=own) as gateway, Client.to(gateway, client_tls()) as before:
        own.newest = server_context(*chain_and_key("renewed"))
        async with Client.to(gateway, client_tls()) as after:
            for client in before, after:
                client.get("/health")
                assert (await client.response()).status == 200
            assert [shown(before), shown(after)] == ["server", "renewed"]


@pytest.mark.parametrize("files", [("nothing.pem", "nothing.key"), (AUTHORITY, chain_and_key("server")[1])])
def test_a_certificate_that_can_not_be_used_is_an_error(files: tuple[str, str]) -> None:
    with pytest.raises(OSError, match=r"No such file|KEY_VALUES_MISMATCH"):
        server_context(*files)


async def test_a_node_is_reached_over_tls_and_its_connection_is_kept() -> None:
    async with scripted_node(stream([b"data: {}\n\n", DONE]), answer()) as node, tls_before(node.url) as url:
        async with rig(url, authorities=AUTHORITY) as gateway, Client.to(gateway) as client:
            client.post(stream=True)
            assert (await client.response()).body.endswith(DONE)
            client.post(padding="x" * 400_000)
            assert (await client.response()).status == 200
        assert [call.connection for call in node.calls] == [1, 1]


@pytest.mark.parametrize(
    ("name", "authorities"),
    [("elsewhere", AUTHORITY), ("server", STRANGER), ("server", None), ("server", "nothing.pem")],
    ids=["another's name", "another's authority", "not known to the system", "no authorities"],
)
async def test_a_node_whose_certificate_is_not_trusted_gets_no_request(name: str, authorities: str | None) -> None:
    async with scripted_node(answer()) as node, tls_before(node.url, name) as url:
        async with rig(url, authorities=authorities) as gateway, Client.to(gateway) as client:
            client.post()
            response = await client.response()
            assert (response.status, response.error["code"]) == (502, "upstream_failed")
            assert gateway.books.outcomes[0].ending is Ending.UNREACHABLE
        assert not node.calls


def test_authorities_are_read_once() -> None:
    authorities = Authorities()
    assert authorities.context(AUTHORITY) is authorities.context(AUTHORITY)
    assert authorities.context(AUTHORITY) is not authorities.context(STRANGER)
    assert authorities.context(None).verify_mode is ssl.CERT_REQUIRED


def test_authorities_that_were_renewed_are_read_again_and_kept_where_they_can_not_be_used(tmp_path: Path) -> None:
    authorities = Authorities()
    file = tmp_path / "authorities.pem"
    file.write_bytes(Path(AUTHORITY).read_bytes())
    before = authorities.context(str(file))
    for unusable in "half a certific", "":
        file.write_text(unusable)
        assert authorities.context(str(file)) is before
    file.unlink()
    assert authorities.context(str(file)) is before
    file.write_bytes(Path(STRANGER).read_bytes())
    after = authorities.context(str(file))
    assert after is not before
    assert authorities.context(str(file)) is after
    assert after.get_ca_certs() == Authorities().context(STRANGER).get_ca_certs()
