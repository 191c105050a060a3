"""A calibration that is older than the fleet stands in the admin API and under the table of nodes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from io import StringIO

import aiohttp
from rich.console import Console
from typer.testing import CliRunner

from fleets import MODEL, dispatcher_of, fleet_of, speculative
from slipstream.admin import Admin, serve_admin
from slipstream.cli import application
from slipstream.cli.status import learned_report
from slipstream.cli.tables import candidate_table
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


def node(name: str, *learned: dict[str, object]) -> dict[str, object]:
    return {"name": name, "pool": "speculative", "learned": learned}


LEARNED = {
    "least": 5, "most": 8, "requests": 12_345, "tpot_ms": 21.4, "interval_ms": [20.9, 22.0],
    "profile_tpot_ms": 18.0, "profile_interval_ms": [15.0, 20.0], "ratio": 21.4 / 18.0,
}  # fmt: skip
UNPROMISED = LEARNED | {"most": None, "interval_ms": None, "profile_tpot_ms": None, "ratio": None}


def shown(fleet: dict[str, object], width: int = 80) -> str:
    console = Console(width=width, record=True, file=StringIO())
    console.print(learned_report(fleet))
    return console.export_text()


def test_what_was_learned_stands_beside_the_profile_in_80_columns() -> None:
    fleet = {
        "nodes": [node("spec-0", LEARNED), node("a-node-with-a-long-name-and-a-number-1", UNPROMISED), node("std-0")],
        "stale_calibrations": [{"sentence": "The calibration of spec-0 no longer holds."}],
    }
    text = shown(fleet)
    assert max(map(len, text.splitlines())) <= 80
    rows = [line.split() for line in text.splitlines()]
    assert ["spec-0", "spec", "5-8", "12.3k", "21.4", "20.9–22.0", "18.0", "1.19"] in rows
    assert ["5+", "12.3k", "21.4", "–", "–", "–"] in [row[2:] for row in rows]
    assert "The calibration of spec-0 no longer holds." in text
    assert "1.19" in shown(fleet, 40)


def test_where_nothing_was_learned_that_is_said() -> None:
    assert "no streamed answer has told of its tokens yet" in shown({"nodes": [node("spec-0")]})


def test_a_ceiling_that_fell_back_is_seen_among_the_candidates() -> None:
    seen = {"node": "s", "pool": "speculative", "chosen": False, "reason": "saturated", "occupancy": 8, "load": 1.0}
    console = Console(width=80, record=True, file=StringIO())
    console.print(candidate_table([seen | {"ceiling": 8, "fallen_back": True, "foretold": None}]))
    assert "saturated, ceiling fell back to 8" in console.export_text()
