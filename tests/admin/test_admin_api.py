"""The admin API over a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientSession
from structlog.testing import capture_logs

from fleets import MODEL, dispatcher_of, fleet_of, report, shape, speculative, standard
from slipstream.admin import Admin, serve_admin
from slipstream.core.acceptance import SpeculationSample
from slipstream.core.dispatch import Dispatcher
from slipstream.core.errors import UnknownModel
from slipstream.core.latency import Latency
from slipstream.core.node import NodeReport, SpeculativeCounters
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.request import RequestShape
from slipstream.telemetry import FleetCollector, Instruments

NOW = 0.5
ANSWERED = Outcome(Ending.COMPLETED, 200, Latency(0.1, 0.02, 1.0), 10, 64, SpeculationSample(100, 60, 25, 86))


class Rig:
    """A fleet and a client of its admin API."""

    def __init__(self, dispatcher: Dispatcher, session: ClientSession, url: str) -> None:
        self.dispatcher = dispatcher
        self._session = session
        self.url = url

    def serve(self, request_id: str, category: str = "code", outcome: Outcome | None = ANSWERED) -> None:
        placement = self.dispatcher.place(shape(category), request_id, 0.2)
        if outcome is not None:
            self.dispatcher.settle(placement, outcome, 0.3)

    async def get(self, path: str, status: int = 200) -> Any:
        async with self._session.get(self.url + path) as response:
            assert response.status == status, await response.text()
            return await response.json()

    async def refusal(self, path: str, status: int) -> str:
        answer = await self.get(path, status)
        sentence = answer["error"]["message"]
        assert isinstance(sentence, str)
        return sentence


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    collector = FleetCollector(dispatcher, Instruments(), ["code", "chat"], lambda: NOW, lambda: None)
    admin = Admin(dispatcher, collector, lambda: NOW, version="1.2.3")
    async with serve_admin(admin, "127.0.0.1", 0) as url, ClientSession() as session:
        yield Rig(dispatcher, session, url)


async def test_the_fleet_shows_nodes_with_what_is_unknown_as_null(rig: Rig) -> None:
    counters = SpeculativeCounters(drafted=400, accepted=220, verify_steps=100)
    rig.dispatcher.report("s", 0.1, 0.2, NodeReport(8, 0, None, None, True, 4, counters=counters))
    fleet = await rig.get("/fleet")
    first, second = fleet["nodes"]
    expected = {"name": "s", "pool": "speculative", "state": "saturated", "occupancy": 8, "ceiling": 8}
    expected |= {"capacity_left": 0, "alpha": None, "k": 4, "tau": None, "drafted": 400, "accepted": 220}
    expected |= {
        "saturation_events": 1,
        "eligible": False,
        "closed": "saturated",
        "kv_use": None,
        "speculator": "draft-k4",
    }
    assert {key: first[key] for key in expected} == expected
    assert 0 < first["saturated_share"] < 1
    assert (second["ceiling"], second["capacity_left"], second["saturated_share"]) == (None, 256, None)
    assert fleet["blind"] is False


async def test_the_fleet_shows_categories_with_requests_by_pool_and_reason(rig: Rig) -> None:
    for number in range(3):
        rig.serve(f"r{number}")
    rig.serve("c", "chat")
    code, chat = (await rig.get("/fleet"))["categories"]
    assert (code["name"], code["drafted"], code["accepted"]) == ("code", 300, 180)
    assert code["tau"] == pytest.approx(3.4)
    low, high = code["interval"]
    assert low <= code["alpha"] <= high
    assert code["requests"] == {"by_pool": {"speculative": 3}, "by_reason": {"speculative": 3}}
    assert (chat["alpha"], chat["interval"], chat["drafted"]) == (None, None, None)
    assert chat["requests"] == {"by_pool": {"standard": 1}, "by_reason": {"below_floor": 1}}


async def test_decisions_come_newest_first_and_can_be_filtered(rig: Rig) -> None:
    rig.serve("a")
    rig.serve("b", "chat")
    rig.serve("c", outcome=None)
    decisions = (await rig.get("/decisions"))["decisions"]
    assert [decision["request_id"] for decision in decisions] == ["c", "b", "a"]
    running, _, done = decisions
    assert (running["ending"], running["ttft_ms"], running["status"]) == (None, None, None)
    assert done["age_s"] == pytest.approx(0.3)
    assert (done["ending"], done["ttft_ms"], done["tpot_ms"], done["e2e_ms"]) == ("completed", 100, 20, 1000)
    assert (done["node"], done["pool"], done["reason"], done["drafted"]) == ("s", "speculative", "speculative", 100)
    for query, found in (
        ("limit=1", ["c"]),
        ("category=chat", ["b"]),
        ("reason=speculative", ["c", "a"]),
        ("node=t", ["b"]),
        ("node=t&category=code", []),
    ):
        answer = await rig.get(f"/decisions?{query}")
        assert [decision["request_id"] for decision in answer["decisions"]] == found


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("limit=0", "limit is '0', but must be a whole number from 1 to 10000"),
        ("limit=many", "limit is 'many'"),
        ("limit=99999999999999", "must be a whole number"),
        ("reason=nope", "reason is 'nope', but must be one of speculative, no_speculator"),
        ("category=cod", "category is 'cod', but must be one of code, chat"),
        ("resaon=probe", "there is no parameter 'resaon': use limit, category, reason, node; did you mean reason?"),
        ("zzz=1", "there is no parameter 'zzz': use limit, category, reason, node"),
    ],
)
async def test_a_query_that_can_not_be_meant_is_refused(rig: Rig, query: str, sentence: str) -> None:
    assert sentence in await rig.refusal(f"/decisions?{query}", 400)


async def test_one_decision_is_explained_candidate_by_candidate(rig: Rig) -> None:
    rig.serve("wanted", "chat")
    rig.dispatcher.report("s", 0.4, 0.4, report(8))
    answer = await rig.get("/decisions/wanted")
    (attempt,) = answer["attempts"]
    assert attempt["node"] == "t"
    assert [(c["node"], c["chosen"], c["reason"], c["occupancy"]) for c in attempt["candidates"]] == [
        ("s", False, "below_floor", 0),
        ("t", True, "below_floor", 0),
    ]


async def test_a_retried_request_has_its_attempts_in_order(rig: Rig) -> None:
    rig.serve("again", outcome=Outcome(Ending.UNREACHABLE))
    rig.serve("again")
    attempts = (await rig.get("/decisions/again"))["attempts"]
    assert [(attempt["node"], attempt["ending"]) for attempt in attempts] == [("s", "unreachable"), ("t", "completed")]


async def test_an_attempt_tells_what_was_known_of_acceptance(rig: Rig) -> None:
    rig.serve("early", "chat")
    sample = SpeculationSample(100, 5, 25, 31)
    speculator = rig.dispatcher.fleet.node("s").speculator  # type: ignore[union-attr]  # the fleet has it
    assert speculator is not None
    for _ in range(20):
        version = rig.dispatcher.fleet.advance()
        rig.dispatcher.evidence.credit(MODEL, speculator, "chat", "s", sample, version, 0.4)
    rig.serve("late", "chat")
    ((early,), (late,)) = [(await rig.get(f"/decisions/{name}"))["attempts"] for name in ("early", "late")]
    known = {"speculator": "draft-k4", "measure": "alpha", "floor": 0.6}
    assert early["acceptance"] == [known | {"value": 0.5, "source": "prior"}]
    (figure,) = late["acceptance"]
    assert figure == known | {"value": figure["value"], "source": "blended"}
    assert figure["value"] < 0.4


async def test_a_request_that_no_node_was_found_for_is_explained(rig: Rig) -> None:
    with pytest.raises(UnknownModel):
        rig.dispatcher.place(RequestShape("gpt", "code"), "lost", 0.2)
    (attempt,) = (await rig.get("/decisions/lost"))["attempts"]
    assert attempt["refusal"] == {
        "error": "UnknownModel",
        "sentence": "no node of this fleet serves the model 'gpt'",
    }
    assert {attempt[key] for key in ("node", "pool", "reason", "ending", "status", "e2e_ms")} == {None}
    assert (attempt["attempt"], attempt["model"], attempt["acceptance"]) == (1, "gpt", [])
    assert [(c["node"], c["chosen"], c["reason"]) for c in attempt["candidates"]] == [
        ("s", False, "wrong_model"),
        ("t", False, "wrong_model"),
    ]
    assert (await rig.get("/decisions"))["decisions"] == []


async def test_an_unknown_request_is_not_found(rig: Rig) -> None:
    assert "'nobody'" in await rig.refusal("/decisions/nobody", 404)


async def test_advice_comes_with_evidence(rig: Rig) -> None:
    assert (await rig.get("/advice"))["advice"] == []
    rig.dispatcher.report("s", 0.1, 0.2, report(0, speculating=False))
    (advice,) = (await rig.get("/advice"))["advice"]
    assert (advice["code"], advice["subject"]) == ("no_speculator", "s")
    assert advice["sentence"].endswith(".")
    assert advice["evidence"] == {"engine": "vllm"}


async def test_health_names_the_version(rig: Rig) -> None:
    assert await rig.get("/health") == {"status": "ok", "version": "1.2.3"}


async def test_metrics_are_prometheus_text(rig: Rig) -> None:
    async with ClientSession() as session, session.get(rig.url + "/metrics") as response:
        assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert 'slipstream_node_healthy{node="s",pool="speculative"} 1.0' in await response.text()


async def test_an_unknown_path_is_told_what_there_is(rig: Rig) -> None:
    assert "there is no /nope; there are /metrics, /fleet" in await rig.refusal("/nope", 404)


async def test_what_only_reads_can_not_be_changed(rig: Rig) -> None:
    async with ClientSession() as session, session.post(rig.url + "/fleet") as response:
        assert response.status == 405
        assert response.headers["allow"] == "GET, HEAD"
        assert "/fleet does not take POST, but GET, HEAD" in (await response.json())["error"]["message"]


async def test_a_fault_of_ours_is_a_sentence_and_a_line_in_the_log() -> None:
    dispatcher = dispatcher_of(fleet_of(standard("t")))

    def broken() -> float:
        raise ZeroDivisionError("the clock stopped")

    collector = FleetCollector(dispatcher, Instruments(), [], broken, lambda: None)
    admin = Admin(dispatcher, collector, broken, version="0")
    with capture_logs() as logs:
        async with (
            serve_admin(admin, "127.0.0.1", 0) as url,
            ClientSession() as session,
            session.get(url + "/fleet") as response,
        ):
            assert response.status == 500
            text = await response.text()
    assert "ZeroDivisionError" not in text
    assert "clock" not in text
    assert [(entry["event"], entry["path"]) for entry in logs] == [("admin request failed", "/fleet")]


async def test_an_address_that_is_taken_is_an_os_error(rig: Rig) -> None:
    port = int(rig.url.rsplit(":", 1)[1])
    admin = Admin(
        rig.dispatcher, FleetCollector(rig.dispatcher, Instruments(), [], lambda: NOW, lambda: None), lambda: NOW, "0"
    )
    with pytest.raises(OSError, match="address"):
        async with serve_admin(admin, "127.0.0.1", port):
            pass


async def test_ipv6_loopback_is_written_with_brackets(rig: Rig) -> None:
    collector = FleetCollector(rig.dispatcher, Instruments(), [], lambda: NOW, lambda: None)
    async with serve_admin(Admin(rig.dispatcher, collector, lambda: NOW, "0"), "::1", 0) as url:
        assert url.startswith("http://[::1]:")
