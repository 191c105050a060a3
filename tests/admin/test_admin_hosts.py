"""Without a token, only who asks this machine by its own name is answered."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession

from fleets import dispatcher_of, fleet_of, standard
from slipstream.admin import Admin, serve_admin
from slipstream.config.values import is_loopback_name
from slipstream.telemetry import FleetCollector, Instruments

PATHS = ("/metrics", "/fleet", "/decisions", "/overrides", "/occupancy", "/nowhere")


@pytest.fixture
async def url() -> AsyncIterator[str]:
    dispatcher = dispatcher_of(fleet_of(standard("t")))
    collector = FleetCollector(dispatcher, Instruments(), ["code"], lambda: 0.5, lambda: None)
    async with serve_admin(Admin(dispatcher, collector, lambda: 0.5, version="1"), "127.0.0.1", 0) as address:
        yield address


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8081",
        "localhost.",
        "fleet.localhost:8081",
        "127.0.0.1",
        "127.9.9.9:1",
        "[::1]:8081",
        "[::1]",
    ],
)
def test_names_of_this_machine(host: str) -> None:
    assert is_loopback_name(host)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example:8081",
        "10.0.0.1",
        "0.0.0.0",
        "[::]",
        "",
        "[",
        "a b",
    ],
)
def test_other_names(host: str) -> None:
    assert not is_loopback_name(host)


@pytest.mark.parametrize("path", PATHS)
async def test_a_page_on_the_web_that_names_itself_like_this_machine_is_told_nothing(url: str, path: str) -> None:
    async with ClientSession(headers={"host": "rebound.example:8081"}) as session:
        async with session.get(url + path) as response:
            assert response.status == 403
            assert list(await response.json()) == ["error"]
        async with session.post(url + path, json={"kind": "speculation"}) as response:
            assert response.status == 403


async def test_health_is_answered_by_any_name_since_it_says_nothing_of_the_fleet(url: str) -> None:
    async with ClientSession() as session, session.get(url + "/health", headers={"host": "pod-7"}) as response:
        assert response.status == 200
