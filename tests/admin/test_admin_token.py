"""With a token, the admin API answers its bearers only."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession

from fleets import dispatcher_of, fleet_of, speculative, standard
from slipstream.admin import Admin, serve_admin
from slipstream.telemetry import FleetCollector, Instruments

TOKEN = "admin-token-of-this-test"
PATHS = ("/metrics", "/fleet", "/decisions", "/decisions/x", "/advice", "/nowhere")


@pytest.fixture
async def url() -> AsyncIterator[str]:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    collector = FleetCollector(dispatcher, Instruments(), ["code"], lambda: 0.5, lambda: None)
    admin = Admin(dispatcher, collector, lambda: 0.5, version="1", token=lambda: TOKEN)
    assert TOKEN not in repr(admin)
    async with serve_admin(admin, "127.0.0.1", 0) as address:
        yield address


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": f"Bearer {TOKEN}x"},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
        {"authorization": "Bearer "},
        {"authorization": "Bearer"},
        {"authorization": TOKEN},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": "Bearer schl\u00fcssel"},
        {"x-api-key": TOKEN},
    ],
)
async def test_without_the_token_nothing_is_told(url: str, path: str, headers: dict[str, str]) -> None:
    async with ClientSession() as session, session.get(url + path, headers=headers) as response:
        assert response.status == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert (await response.json()) == {
            "error": {"message": "the admin API needs its token: send it as 'authorization: Bearer …'"}
        }


@pytest.mark.parametrize("spelling", ["Bearer", "bearer", "BEARER"])
async def test_with_the_token_everything_is_told(url: str, spelling: str) -> None:
    async with ClientSession(headers={"authorization": f"{spelling} {TOKEN}"}) as session:
        for path in PATHS:
            async with session.get(url + path) as response:
                assert response.status == (404 if path in ("/decisions/x", "/nowhere") else 200)


async def test_health_needs_no_token_since_orchestrators_have_none(url: str) -> None:
    async with ClientSession() as session, session.get(url + "/health") as response:
        assert (await response.json())["status"] == "ok"


async def test_the_token_is_the_one_that_there_is_now() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    collector = FleetCollector(dispatcher, Instruments(), ["code"], lambda: 0.5, lambda: None)
    tokens: list[str | None] = [None]
    admin = Admin(dispatcher, collector, lambda: 0.5, version="1", token=lambda: tokens[-1])
    async with serve_admin(admin, "127.0.0.1", 0) as address, ClientSession() as session:

        async def status(token: str, host: str = "127.0.0.1") -> int:
            headers = {"authorization": f"Bearer {token}", "host": host}
            async with session.get(address + "/fleet", headers=headers) as response:
                return response.status

        assert [await status(""), await status("", "gateway.example")] == [200, 403]
        tokens.append("first")
        assert [await status(""), await status("first"), await status("first", "gateway.example")] == [401, 200, 200]
        tokens.append("second")
        assert [await status("first"), await status("second")] == [401, 200]
