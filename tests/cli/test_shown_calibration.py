"""A calibration that is older than the fleet stands in the admin API and under the table of nodes."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import aiohttp
from typer.testing import CliRunner

from fleets import MODEL, dispatcher_of, fleet_of, speculative
from slipstream.admin import Admin, serve_admin
from slipstream.cli import application
from slipstream.core.calibration import Calibration
from slipstream.telemetry import FleetCollector, Instruments

OLD = Calibration("h100.json", "2026-11-30", "vllm", "0.32.0", MODEL, ("draft-k3",))


async def test_an_old_calibration_is_shown() -> None:
    dispatcher = dispatcher_of(fleet_of(replace(speculative("spec-0"), calibration=OLD)))
    collector = FleetCollector(dispatcher, Instruments(), ["code"], lambda: 0.5, lambda: None)
    async with (
        serve_admin(Admin(dispatcher, collector, lambda: 0.5, "1"), "127.0.0.1", 0) as url,
        aiohttp.ClientSession() as session,
    ):
        async with session.get(f"{url}/fleet") as response:
            (told,) = (await response.json())["stale_calibrations"]
        async with session.get(f"{url}/advice") as response:
            assert (await response.json())["advice"] == [told]
        runner = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"})
        shown = await asyncio.to_thread(runner.invoke, application("status"), ["status", "--url", url])
    assert (told["code"], told["subject"]) == ("calibration_stale", "spec-0")
    assert told["evidence"]["change"] == "speculator draft-k3 became draft-k4"
    assert told["sentence"] in " ".join(shown.stdout.split())
