"""Roles of nodes over a real socket, and the command that shows and changes them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from rich.console import Console
from typer.testing import CliRunner

from fleets import dispatcher_of, fleet_of, speculative, standard
from slipstream.admin import Admin, serve_admin
from slipstream.cli import application
from slipstream.cli.status import fleet_report
from slipstream.core.request import Pool
from slipstream.core.roles import NotChangeable, Payoff, RoleChange, RoleReason, RoleVerdict
from slipstream.telemetry import FleetCollector, Instruments

PAYOFF = Payoff(600.0, 990.0, 400.0, 30.0)
VERDICT = RoleVerdict(RoleReason.SURGE, 1.25, 1, 0, raised=False, node="s", pool=Pool.STANDARD, payoff=PAYOFF)


class SaidRoles:
    """Roles of which the test says how they are. A change is only put down."""

    def __init__(self) -> None:
        self.verdict: RoleVerdict | None = None
        self.changes: list[RoleChange] = []

    async def change(self, name: str, pool: Pool) -> RoleChange:
        if self.changes:
            raise NotChangeable(f"{self.changes[-1].node} is changing its role: one node does at a time")
        self.changes.append(RoleChange(name, pool, "operator", 4.0))
        return self.changes[-1]


class Rig:
    def __init__(self, url: str, roles: SaidRoles, session: aiohttp.ClientSession) -> None:
        self.url = url
        self.roles = roles
        self.session = session

    async def ask(self, method: str, body: bytes | None = None, content_type: str = "application/json") -> Any:
        headers = {"content-type": content_type}
        async with self.session.request(method, f"{self.url}/roles", data=body, headers=headers) as response:
            return response.status, await response.json()

    async def run(self, *words: str) -> tuple[int, str, str]:
        runner = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"})
        words = ("roles", *words, "--url", self.url)
        result = await asyncio.to_thread(runner.invoke, application("roles"), words, catch_exceptions=False)
        return result.exit_code, result.stdout, result.stderr


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    dispatcher, roles = dispatcher_of(fleet_of(speculative("s"), standard("t"))), SaidRoles()
    collector = FleetCollector(dispatcher, Instruments(), ["code"], lambda: 5.0, lambda: None)
    admin = Admin(dispatcher, collector, lambda: 5.0, version="1", roles=roles)
    async with serve_admin(admin, "127.0.0.1", 0) as url, aiohttp.ClientSession() as session:
        yield Rig(url, roles, session)


async def test_a_role_is_changed_and_shown(rig: Rig) -> None:
    assert await rig.ask("GET") == (200, {"verdict": None, "changes": []})
    status, answer = await rig.ask("POST", b'{"node": "t", "pool": "speculative"}')
    shown = {"node": "t", "pool": "speculative", "by": "operator", "age_s": 1.0, "took_s": 1.0, "ok": None, "why": None,
             "phases_s": None, "verdict": None}  # fmt: skip
    assert (status, answer) == (202, {"change": shown})
    async with rig.session.get(f"{rig.url}/fleet") as response:
        fleet = await response.json()
    assert fleet["changing_role"] == shown
    console = Console(width=80)
    with console.capture() as printed:
        console.print(fleet_report(fleet))
    assert "t becomes speculative, for 1 s now" in printed.get()
    change = rig.roles.changes[0]
    change.ok, change.ended_at, change.phases = True, 4.5, {"draining": 0.1, "starting": 0.4}
    change.verdict = rig.roles.verdict = VERDICT
    _, answer = await rig.ask("GET")
    (told,) = answer["changes"]
    assert (told["ok"], told["took_s"], told["phases_s"]) == (True, 0.5, {"draining": 0.1, "starting": 0.4})
    assert told["verdict"] == answer["verdict"]
    assert answer["verdict"]["payoff"] == {
        "gain_tps": 600.0,
        "dwell_s": 990.0,
        "lost_tps": 400.0,
        "transition_s": 30.0,
        "pays": True,
    }
    assert (await rig.ask("POST", b'{"node": "s", "pool": "standard"}'))[0] == 409


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "the body must be a JSON object of node and pool"),
        (b'{"node": "s"}', "the body must be a JSON object of node and pool"),
        (b'{"node": "x", "pool": "standard"}', "node is 'x', but must be one of the fleet's"),
        (b'{"node": "s", "pool": "both"}', "pool is 'both', but must be speculative or standard"),
    ],
)
async def test_what_is_no_change_is_refused_with_a_sentence(rig: Rig, body: bytes, said: str) -> None:
    status, answer = await rig.ask("POST", body)
    assert status == 400
    assert said in answer["error"]["message"]
    assert rig.roles.changes == []


async def test_a_browser_can_not_change_a_role(rig: Rig) -> None:
    assert (await rig.ask("POST", b'{"node": "s", "pool": "standard"}', "text/plain"))[0] == 415


async def test_without_anything_that_changes_them_roles_stay() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s")))
    collector = FleetCollector(dispatcher, Instruments(), ["code"], lambda: 5.0, lambda: None)
    async with (
        serve_admin(Admin(dispatcher, collector, lambda: 5.0, "1"), "127.0.0.1", 0) as url,
        aiohttp.ClientSession() as session,
    ):
        rig = Rig(url, SaidRoles(), session)
        assert await rig.ask("GET") == (200, {"verdict": None, "changes": []})
        assert (await rig.ask("POST", b'{"node": "s", "pool": "standard"}'))[0] == 409


async def test_the_command_shows_roles_changes_and_what_the_load_calls_for(rig: Rig) -> None:
    code, output, _ = await rig.run("list")
    assert code == 0
    assert "Roles change by hand alone" in output
    rig.roles.verdict = VERDICT
    rig.roles.changes = [
        RoleChange("s", Pool.STANDARD, "controller", 1.0, VERDICT, 3.0, ok=False, why="it did not drain in 120 s"),
        RoleChange("t", Pool.SPECULATIVE, "agent", 4.0),
    ]
    code, output, _ = await rig.run("list")
    assert max(map(len, output.splitlines())) <= 80
    said = " ".join(output.split())
    assert "Load 125% of the fleet's room: 0 of its nodes should be speculative, 1 are (surge)." in said
    assert "A change would gain 600 tokens/s for 990 s and lose 400 for 30 s." in said
    rows = [line.rstrip().split(maxsplit=5) for line in output.splitlines() if "controller" in line or "agent" in line]
    assert rows == [["t", "speculative", "agent", "1", "1", "runs"],
                    ["s", "standard", "controller", "4", "2", "it did not drain in 120 s"]]  # fmt: skip
    told = json.loads((await rig.run("list", "--json"))[1])
    assert [node["name"] for node in told["nodes"]] == ["s", "t"]
    assert told["verdict"]["reason"] == "surge"


async def test_the_command_changes_a_role_or_says_why_not(rig: Rig) -> None:
    code, output, _ = await rig.run("set", "t", "speculative")
    assert (code, output.split(":")[0]) == (0, "t becomes speculative")
    code, _, errors = await rig.run("set", "s", "standard")
    assert (code, errors) == (1, "t is changing its role: one node does at a time\n")
    assert (await rig.run("set", "s", "both"))[0] == 2
    rig.roles.changes.clear()
    assert json.loads((await rig.run("set", "t", "speculative", "--json"))[1])["change"]["node"] == "t"
