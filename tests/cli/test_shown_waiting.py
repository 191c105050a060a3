"""Requests in the queue, and for how long one was, as `slipstream status` and `slipstream explain` show it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import typer
from typer.testing import CliRunner

from fleets import dispatcher_of, fleet_of, shape, standard
from slipstream.admin import Admin, serve_admin
from slipstream.cli.explain import explain
from slipstream.cli.status import status
from slipstream.core.dispatch import Dispatcher
from slipstream.core.errors import AllFull
from slipstream.core.request import TrafficClass
from slipstream.telemetry import FleetCollector, Instruments

NOW = 11.0


class Rig:
    def __init__(self, dispatcher: Dispatcher, url: str, lengths: dict[TrafficClass, int]) -> None:
        self.dispatcher = dispatcher
        self.url = url
        self.lengths = lengths

    async def shown(self, *arguments: str) -> str:
        app = typer.Typer()
        app.command()(status)
        app.command()(explain)
        runner = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"})
        words = (*arguments, "--url", self.url)
        result = await asyncio.to_thread(runner.invoke, app, words, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    dispatcher = dispatcher_of(fleet_of(standard("a", limit=1)))
    lengths = dict.fromkeys(TrafficClass, 0)
    collector = FleetCollector(dispatcher, Instruments(), ["chat"], lambda: NOW, lambda: None)
    admin = Admin(dispatcher, collector, lambda: NOW, "1", queue_lengths=lambda: lengths)
    async with serve_admin(admin, "127.0.0.1", 0) as url:
        yield Rig(dispatcher, url, lengths)


async def test_status_shows_how_many_wait_when_any_do(rig: Rig) -> None:
    assert "waiting" not in await rig.shown("status")
    rig.lengths |= {TrafficClass.INTERACTIVE: 3}
    assert "waiting for a node with room: 3 interactive\n" in await rig.shown("status")
    rig.lengths |= {TrafficClass.BULK: 12}
    assert "waiting for a node with room: 3 interactive, 12 bulk\n" in await rig.shown("status")
    assert '"queue": {\n    "interactive": 3,\n    "bulk": 12\n  }' in await rig.shown("status", "--json")


async def test_explain_shows_how_long_a_request_waited_placed_or_not(rig: Rig) -> None:
    rig.dispatcher.place(shape("chat"), "late", 0.2, frozenset(), False, 0, 1.25)
    with pytest.raises(AllFull):
        rig.dispatcher.place(shape("chat"), "never", 10.2, frozenset(), False, 0, 10.0)
    assert "waited 1250 ms for a node with room\n" in await rig.shown("explain", "late")
    assert "waited 10.0 s for a node with room\n" in await rig.shown("explain", "never")
    assert '"queued_ms": 1250.0' in await rig.shown("explain", "late", "--json")


async def test_explain_says_nothing_of_waiting_where_there_was_none(rig: Rig) -> None:
    rig.dispatcher.place(shape("chat"), "at-once", 0.2)
    assert "waited" not in await rig.shown("explain", "at-once")
