"""Overrides over a real socket: set, seen everywhere, ended; and refused with a sentence."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientSession
from structlog.testing import capture_logs

from fleets import dispatcher_of, fleet_of, shape, speculative, standard
from slipstream.admin import Admin, serve_admin
from slipstream.admin.overrides import Known, read_override
from slipstream.core.dispatch import Dispatcher
from slipstream.core.latency import Latency
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.overrides import OverrideKind, Overrides
from slipstream.core.request import Pool
from slipstream.telemetry import FleetCollector, Instruments
from slipstream.telemetry.events import log_override
from slipstream.telemetry.fleet_readings import fleet_readings


class Rig:
    """A fleet, its clock, and a client of its admin API."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.now = 0.5
        self.dispatcher = dispatcher
        self.session: ClientSession
        self.url = ""

    async def ask(self, method: str, path: str, body: object = None, status: int = 200, **headers: str) -> Any:
        data = None if body is None else json.dumps(body)
        headers = {"content-type": "application/json"} | headers
        async with self.session.request(method, self.url + path, data=data, headers=headers) as response:
            assert response.status == status, await response.text()
            return await response.json()

    async def set(self, **body: object) -> Any:
        return (await self.ask("POST", "/overrides", body))["override"]

    async def refusal(self, body: object) -> str:
        sentence = (await self.ask("POST", "/overrides", body, 400))["error"]["message"]
        assert isinstance(sentence, str)
        return sentence

    async def metrics(self) -> str:
        async with self.session.get(self.url + "/metrics") as response:
            return await response.text()

    def went(self, category: str = "code", **fields: object) -> tuple[str, str]:
        placement = self.dispatcher.place(shape(category, **fields), "r", self.now)
        self.dispatcher.settle(placement, Outcome(Ending.COMPLETED, 200), self.now)
        return placement.node.name, placement.decision.reason


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    plain = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    dispatcher = Dispatcher(plain.fleet, plain.evidence, plain.policy, lambda: 0.5, Overrides(log_override))
    rig = Rig(dispatcher)

    def clock() -> float:
        return rig.now

    readings = fleet_readings(dispatcher, clock)
    collector = FleetCollector(dispatcher, Instruments(), ["code", "chat"], clock, lambda: None, readings)
    admin = Admin(dispatcher, collector, clock, version="1", key_ids=lambda: ["team"])
    async with serve_admin(admin, "127.0.0.1", 0) as url, ClientSession() as session:
        rig.url, rig.session = url, session
        yield rig


async def test_what_is_set_holds_and_is_seen_and_what_is_cleared_does_not(rig: Rig) -> None:
    shown = await rig.set(kind="pin_category", subject="code", value="standard", note="incident 42")
    expected = {
        "kind": "pin_category",
        "subject": "code",
        "value": "standard",
        "note": "incident 42",
        "measured": False,
    }
    assert shown == expected | {"limit": None, "age_s": 0, "ends_in_s": None}
    assert rig.went() == ("t", "pinned")
    assert (await rig.ask("GET", "/overrides"))["overrides"] == [shown]
    assert (await rig.ask("GET", "/fleet"))["overrides"] == [shown]
    assert 'slipstream_overrides{kind="pin_category"} 1.0' in await rig.metrics()
    assert (await rig.ask("DELETE", "/overrides/pin_category/code"))["cleared"] == [shown]
    assert rig.went() == ("s", "speculative")
    assert (await rig.ask("GET", "/overrides"))["overrides"] == []
    assert 'slipstream_overrides{kind="pin_category"} 0.0' in await rig.metrics()


async def test_doing_it_twice_is_doing_it_once(rig: Rig) -> None:
    for _ in range(2):
        await rig.set(kind="drain", subject="s")
    assert len((await rig.ask("GET", "/overrides"))["overrides"]) == 1
    assert [len((await rig.ask("DELETE", "/overrides/drain/s"))["cleared"]) for _ in range(2)] == [1, 0]


async def test_one_with_a_time_ends_by_itself(rig: Rig) -> None:
    assert (await rig.set(kind="drain", subject="s", for_s=60))["ends_in_s"] == 60
    rig.now = 60.0
    (one,) = (await rig.ask("GET", "/overrides"))["overrides"]
    assert one["ends_in_s"] == pytest.approx(0.5)
    rig.now = 60.5
    assert (await rig.ask("GET", "/fleet"))["overrides"] == []
    assert "draining" not in [node["state"] for node in (await rig.ask("GET", "/fleet"))["nodes"]]


async def test_every_kind_does_what_it_says(rig: Rig) -> None:
    await rig.set(kind="pin_key", subject="team", value="standard")
    assert rig.went(key_id="team") == ("t", "pinned")
    await rig.set(kind="node_ceiling", subject="s", value=3)
    assert (await rig.ask("GET", "/fleet"))["nodes"][0]["ceiling"] == 3
    await rig.set(kind="pool_ceiling", subject="speculative", value=5)
    assert (await rig.ask("GET", "/fleet"))["nodes"][0]["ceiling"] == 3
    await rig.ask("DELETE", "/overrides/node_ceiling/s")
    assert (await rig.ask("GET", "/fleet"))["nodes"][0]["ceiling"] == 5
    await rig.set(kind="drain", subject="s")
    assert rig.went() == ("t", "draining")
    await rig.ask("DELETE", "/overrides/drain/s")
    await rig.set(kind="speculation")
    assert rig.went() == ("t", "pinned")
    cleared = (await rig.ask("DELETE", "/overrides"))["cleared"]
    assert {one["kind"] for one in cleared} == {"pin_key", "pool_ceiling", "speculation"}
    assert rig.went(key_id="team") == ("s", "speculative")


async def test_an_explanation_names_the_override_that_pinned_a_request_even_when_it_is_over(rig: Rig) -> None:
    await rig.set(kind="pin_category", subject="code", value="standard", note="try")
    rig.dispatcher.place(shape("code"), "pinned", 1.0)
    rig.now = 2.0
    await rig.ask("DELETE", "/overrides")
    rig.dispatcher.place(shape("code"), "free", 3.0)
    rig.dispatcher.place(shape("code", pinned_pool=None), "other", 3.0)
    (pinned,) = (await rig.ask("GET", "/decisions/pinned"))["attempts"]
    assert (pinned["reason"], pinned["override"]["note"]) == ("pinned", "try")
    (free,) = (await rig.ask("GET", "/decisions/free"))["attempts"]
    assert free["override"] is None


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"kind": "stop"}, "kind is 'stop', but must be one of pin_category, pin_key, node_ceiling"),
        (
            {"subject": "s"},
            "must be a JSON object of kind, subject, value, for_s, note, measured: Object missing required field",
        ),
        ({"kind": "drain", "subject": "s", "colour": 1}, "unknown field `colour`"),
        ({"kind": "drain", "subject": "x"}, "subject is 'x', but for drain it must be a node of the fleet: s, t"),
        ({"kind": "drain"}, "subject is 'fleet', but for drain it must be a node of the fleet: s, t"),
        ({"kind": "drain", "subject": "s", "value": 1}, "takes none: while it is in force, the node takes no new"),
        ({"kind": "node_ceiling", "subject": "t", "value": 1}, "a node of the speculative pool: s"),
        ({"kind": "node_ceiling", "subject": "s", "value": 0}, "a whole number of sequences, 1 to 1000000"),
        ({"kind": "node_ceiling", "subject": "s", "value": 10**30}, "a whole number of sequences, 1 to 1000000"),
        ({"kind": "node_ceiling", "subject": "s", "value": "8"}, "a whole number of sequences, 1 to 1000000"),
        ({"kind": "node_ceiling", "subject": "s", "value": True}, "Expected `int | str | null`"),
        ({"kind": "pool_ceiling", "subject": "standard", "value": 1}, "the pool that has ceilings: speculative"),
        ({"kind": "pin_category", "subject": "cod", "value": "standard"}, "a configured category: code, chat"),
        ({"kind": "pin_category", "subject": "code", "value": "fast"}, "a pin needs a pool: speculative or standard"),
        ({"kind": "pin_category", "subject": "code"}, "value is None, but a pin needs a pool"),
        ({"kind": "pin_key", "subject": "sk-secret", "value": "standard"}, "the id of a configured key: team"),
        ({"kind": "speculation", "value": "on"}, "takes none: while it is in force, speculation is off"),
        ({"kind": "speculation", "subject": "s"}, "left out or: fleet"),
        ({"kind": "drain", "subject": "s", "measured": True}, "measured is true, but drain is no ceiling"),
        (
            {"kind": "speculation", "for_s": 0},
            "for_s is 0, but must be 1 to 2592000 seconds",
        ),
        ({"kind": "speculation", "note": "x" * 201}, "at most 200 printable characters"),
        ({"kind": "speculation", "note": "a\nb"}, "at most 200 printable characters on one line"),
    ],
)
async def test_what_can_not_be_meant_changes_nothing_and_is_told_what_is_allowed(
    rig: Rig, body: dict[str, object], sentence: str
) -> None:
    assert sentence in await rig.refusal(body)
    assert (await rig.ask("GET", "/overrides"))["overrides"] == []


async def test_a_kind_that_there_is_not_can_not_be_cleared(rig: Rig) -> None:
    answer = await rig.ask("DELETE", "/overrides/stop/s", status=400)
    assert "kind is 'stop'" in answer["error"]["message"]


async def test_a_body_that_is_no_json_or_endless_is_refused(rig: Rig) -> None:
    for body, status in ((b"{", 400), (b"\xff", 400), (b" " * 70_000, 413)):
        headers = {"content-type": "application/json"}
        async with rig.session.post(rig.url + "/overrides", data=body, headers=headers) as response:
            assert response.status == status
            assert (await response.json())["error"]["message"]


async def test_a_page_on_the_web_can_not_make_a_browser_set_one(rig: Rig) -> None:
    """What a form can send is refused, and what it would have to ask about first gets no permission."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = await rig.ask("POST", "/overrides", {"kind": "speculation"}, 415, **{"content-type": kind})
        assert "content-type application/json" in answer["error"]["message"]
    headers = {"origin": "http://evil.example", "access-control-request-method": "DELETE"}
    async with rig.session.options(rig.url + "/overrides", headers=headers) as response:
        assert response.status == 405
        assert not [name for name in response.headers if name.lower().startswith("access-control")]
    assert not rig.dispatcher.overrides.active


async def test_every_change_is_an_event_in_the_log(rig: Rig) -> None:
    with capture_logs() as logs:
        await rig.set(kind="drain", subject="s", note="new driver", for_s=10)
        await rig.set(kind="drain", subject="s")
        await rig.ask("DELETE", "/overrides/drain/s")
        await rig.set(kind="drain", subject="s", for_s=10)
        rig.now = 11.0
        await rig.ask("GET", "/overrides")
    changes = ["set", "replaced", "set", "cleared", "set", "expired"]
    assert [entry["event"] for entry in logs] == [f"override.{change}" for change in changes]
    assert logs[0] == {
        "event": "override.set",
        "log_level": "info",
        "kind": OverrideKind.DRAIN,
        "subject": "s",
        "value": None,
        "for_s": 10.0,
        "note": "new driver",
    }


async def test_acceptance_and_time_per_token_are_told_by_occupancy(rig: Rig) -> None:
    assert [group["buckets"] for group in (await rig.ask("GET", "/occupancy"))["groups"]] == [[], []]
    placements = [rig.dispatcher.place(shape("code"), f"r{n}", 0.5) for n in range(3)]
    for placement in placements:
        outcome = Outcome(Ending.COMPLETED, 200, Latency(0.1, 0.02, 1.0), 10, 64)
        rig.dispatcher.settle(placement, outcome, 0.5)
    speculative_group, standard_group = (await rig.ask("GET", "/occupancy"))["groups"]
    assert (speculative_group["pool"], speculative_group["nodes"]) == ("speculative", ["s"])
    assert (speculative_group["speculator"], speculative_group["models"]) == ("draft-k4", ["m"])
    found = [(bucket["least"], bucket["most"], bucket["timed"]) for bucket in speculative_group["buckets"]]
    assert found == [(1, 1, 1), (2, 2, 1), (3, 4, 1)]
    assert speculative_group["buckets"][0]["tpot_ms"] == pytest.approx(20, rel=0.05)
    assert standard_group["buckets"] == []
    page = await rig.metrics()
    assert 'slipstream_occupancy_requests_total{occupancy="3-4",pool="speculative"} 1.0' in page
    assert 'slipstream_occupancy_requests_total{occupancy="65+",pool="standard"} 0.0' in page
    assert 'slipstream_occupancy_tpot_seconds{occupancy="1",pool="speculative"}' in page


def test_without_keys_there_is_none_to_pin() -> None:
    body = b'{"kind": "pin_key", "subject": "team", "value": "standard"}'
    with pytest.raises(ValueError, match="the id of a configured key: there is none"):
        read_override(body, Known(("code",), (), {}), 0.0)


def test_of_many_nodes_some_are_named() -> None:
    nodes = dict.fromkeys((f"n{n}" for n in range(1_000)), Pool.STANDARD)
    with pytest.raises(ValueError, match=r"n0, n1, .*, n9 and 990 more$"):
        read_override(b'{"kind": "drain", "subject": "x"}', Known((), (), nodes), 0.0)
