"""`slipstream status` and `slipstream explain` against a real admin API, in 80 columns."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import typer
from aiohttp import web
from rich.console import Console
from typer.testing import CliRunner

from fleets import dispatcher_of, fleet_of, report, shape, speculative, standard
from slipstream.admin import Admin, serve_admin
from slipstream.cli.explain import attempt_report, explain
from slipstream.cli.status import status
from slipstream.cli.tables import (
    bucket_name,
    candidate_table,
    category_table,
    node_table,
    number,
    occupancy_table,
    share,
)
from slipstream.core.acceptance import SpeculationSample
from slipstream.core.dispatch import Dispatcher
from slipstream.core.errors import AllFull, EngineUnreachable, UnknownModel
from slipstream.core.latency import Latency
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.policy import ThresholdSettings
from slipstream.core.request import RequestShape
from slipstream.telemetry import FleetCollector, Instruments

NOW = 0.5
ANSWERED = Outcome(Ending.COMPLETED, 200, Latency(0.1, 0.02, 1.0), 10, 64, SpeculationSample(100, 60, 25, 86))
LONG = "standard-node-in-a-zone-with-a-very-long-name-that-goes-on-and-on-0"


class Rig:
    def __init__(self, dispatcher: Dispatcher, url: str) -> None:
        self.dispatcher = dispatcher
        self.url = url

    def serve(self, request_id: str, category: str = "code", outcome: Outcome | None = ANSWERED) -> None:
        placement = self.dispatcher.place(shape(category, output_limit=200), request_id, 0.2)
        if outcome is not None:
            self.dispatcher.settle(placement, outcome, 0.3)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    dispatcher = dispatcher_of(fleet_of(speculative("spec-0"), standard(LONG)))
    collector = FleetCollector(dispatcher, Instruments(), ["code", "chat", "math"], lambda: NOW, lambda: None)
    async with serve_admin(Admin(dispatcher, collector, lambda: NOW, "1"), "127.0.0.1", 0) as url:
        yield Rig(dispatcher, url)


async def run(*arguments: str) -> tuple[int, str, str]:
    """The command in a thread (it blocks, and the admin API answers on this loop), in 80 columns."""
    app = typer.Typer()
    app.command()(status)
    app.command()(explain)
    runner = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"})
    result = await asyncio.to_thread(runner.invoke, app, arguments, catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


async def test_status_shows_nodes_and_categories_within_80_columns(rig: Rig) -> None:
    for count in range(3):
        rig.serve(f"r{count}")
    rig.serve("c", "chat")
    rig.dispatcher.report("spec-0", 0.4, 0.45, report(9))
    code, output, _ = await run("status", "--url", rig.url)
    assert code == 0
    assert [line for line in output.splitlines() if len(line) > 80] == []
    assert "spec-0" in output
    assert "saturated" in output
    assert "9/8" in output
    assert "0/256" in output
    assert "speculative:3" in output
    assert "below_floor:1" in output
    assert "3.40" in output
    assert "math" not in output
    assert LONG not in output
    (row,) = (line for line in output.splitlines() if line.startswith(LONG[:8]))
    head, tail = row.split(maxsplit=1)[0].split("…")
    assert LONG.startswith(head)
    assert LONG.endswith(tail)
    assert len(tail) >= 8
    assert "tok/step" in output
    assert re.search(r"^code +0\.\d\d +3\.40 +3\.40 +300 +180 ", output, re.MULTILINE)


def test_a_long_category_is_shortened_and_takes_no_column_away() -> None:
    def row(name: str) -> dict[str, Any]:
        requests = {"by_pool": {"speculative": 3, "standard": 9}, "by_reason": {"speculative": 3, "below_floor": 9}}
        figures = {"alpha": 0.61, "tau": 2.31, "tokens_per_step": 2.31, "drafted": 400, "accepted": 131}
        return {"name": name, **figures, "evidence_requests": 12, "requests": requests}

    def shown(*names: str) -> str:
        console = Console(width=80)
        with console.capture() as capture:
            console.print(category_table(row(name) for name in names))
        return capture.get()

    long = "answers-that-quote-the-handbook-of-the-machine-" + "x" * 14
    output = shown("summarization", long)
    assert "left out" not in output
    assert max(map(len, output.splitlines())) <= 80
    assert "summarization " in output
    assert "…" in output
    assert "below_floor:9" in output


async def test_a_speculative_node_without_speculator_is_not_said_to_be_ready(rig: Rig) -> None:
    rig.dispatcher.report("spec-0", 0.4, 0.45, report(speculating=False))
    _, output, _ = await run("status", "--url", rig.url)
    (row,) = (line.split() for line in output.splitlines() if line.startswith("spec-0"))
    assert row[:5] == ["spec-0", "spec", "no_speculator", "0/8", "0"]
    rig.dispatcher.report("spec-0", 0.46, 0.47, report())
    assert "no_speculator" not in (await run("status", "--url", rig.url))[1]


async def test_status_says_what_is_wrong_with_a_node_and_that_nothing_came_yet(rig: Rig) -> None:
    for _ in range(2):
        rig.dispatcher.report_failed("spec-0", 0.3, EngineUnreachable("no connection within 1 s"))
    _, output, _ = await run("status", "--url", rig.url)
    assert "unhealthy" in output
    assert "–/8" in output
    assert "spec-0: no connection within 1 s" in output
    assert "no requests yet" in output


async def test_status_tells_when_the_gateway_itself_is_blind(rig: Rig) -> None:
    rig.dispatcher.fleet.expire(100.0)
    _, output, _ = await run("status", "--url", rig.url)
    assert "every node's telemetry is stale at once" in output


async def test_status_as_json_is_what_the_admin_says(rig: Rig) -> None:
    code, output, _ = await run("status", "--json", "--url", rig.url + "/")
    assert code == 0
    assert [node["name"] for node in json.loads(output)["nodes"]] == ["spec-0", LONG]


@pytest.mark.parametrize(
    ("option", "terminal"), [([], {"FORCE_COLOR": "1"}), ([], {"NO_COLOR": "1"}), (["--json"], {"NO_COLOR": "1"})]
)
async def test_watching_goes_on_until_interrupted(rig: Rig, option: list[str], terminal: dict[str, str]) -> None:
    script = "from slipstream.cli import main; main()"
    environment = {**os.environ, "COLUMNS": "80", "PYTHONUNBUFFERED": "1", **terminal}
    command = [sys.executable, "-c", script, "status", "--watch", "--url", rig.url, *option]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            seen = 0
            while seen < 2:  # the second one is a refresh
                line = await process.stdout.readline()
                assert line, "it ended by itself"
                seen += b"spec-0" in line
            process.send_signal(signal.SIGINT)
            _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (process.returncode, errors) == (0, b"")


async def test_explain_shows_the_decision_and_every_candidate(rig: Rig) -> None:
    rig.serve("wanted", "chat")
    code, output, _ = await run("explain", "wanted", "--url", rig.url)
    assert code == 0
    assert [line for line in output.splitlines() if len(line) > 80] == []
    assert "wanted, 0 s ago: chat, m, interactive, not streamed, at most 200 tokens" in output
    assert "because below_floor" in output
    assert "completed, status 200, TTFT 100 ms, TPOT 20 ms, E2E 1000 ms, output tokens 64" in output
    assert "60 of 100 draft tokens accepted" in output.replace("\n", " ")
    assert "→" in output


async def test_explain_shows_every_attempt_and_one_that_runs_still(rig: Rig) -> None:
    rig.serve("twice", outcome=Outcome(Ending.UNREACHABLE))
    rig.serve("twice", outcome=None)
    _, output, _ = await run("explain", "twice", "--url", rig.url)
    assert "unreachable" in output
    assert "still running" in output
    assert "twice, request 1 of 2 with this id, 0 s ago" in output
    assert "twice, request 2 of 2 with this id, 0 s ago" in output


async def test_explain_numbers_the_attempts_of_a_request(rig: Rig) -> None:
    rig.serve("again", outcome=Outcome(Ending.UNREACHABLE))
    rig.dispatcher.settle(rig.dispatcher.place(shape(), "again", 0.3, frozenset({"spec-0"})), ANSWERED, 0.4)
    _, output, _ = await run("explain", "again", "--url", rig.url)
    assert "again, attempt 1 of 2, 0 s ago" in output
    assert "again, attempt 2 of 2, 0 s ago" in output
    assert "with this id" not in output


async def test_explain_shows_why_a_request_was_refused(rig: Rig) -> None:
    with pytest.raises(UnknownModel):
        rig.dispatcher.place(RequestShape("gpt", "code"), "lost", 0.2)
    code, output, _ = await run("explain", "lost", "--url", rig.url)
    assert code == 0
    assert "refused, because no node of this fleet serves the model 'gpt'" in output
    assert output.count("wrong_model") == 2
    assert "→" not in output


async def test_explain_shows_the_figure_behind_below_floor(rig: Rig) -> None:
    rig.serve("low", "chat")
    rig.serve("high", "code")
    _, low, _ = await run("explain", "low", "--url", rig.url)
    _, high, _ = await run("explain", "high", "--url", rig.url)
    assert "chat with draft-k4: alpha 0.5 (prior), not above the floor 0.6\n" in low
    assert "code with draft-k4: alpha 0.75 (prior), above the floor 0.6\n" in high


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0.02037, "20.4 ms"),
        (0.02, "20 ms"),
        (0.1004, "100 ms"),
        (9.9994, "9999 ms"),
        (10.45, "10.4 s"),
        (1234.5, "1234.5 s"),
    ],
)
async def test_explain_writes_durations_with_a_fixed_point(rig: Rig, seconds: float, written: str) -> None:
    rig.serve("slow", outcome=Outcome(Ending.COMPLETED, 200, Latency(None, None, seconds)))
    _, output, _ = await run("explain", "slow", "--url", rig.url)
    assert f"E2E {written}" in output


async def test_explain_says_when_nodes_and_acceptance_of_then_are_forgotten(rig: Rig) -> None:
    rig.serve("old", "chat")
    state = rig.dispatcher.fleet.node("spec-0")
    assert state is not None
    for _ in range(21_000):
        rig.dispatcher.fleet.admit("spec-0", 1, "code", 0.3)
        rig.dispatcher.fleet.release(state, 1, "code", 0.3)
    _, output, _ = await run("explain", "old", "--url", rig.url)
    assert "because below_floor" in output
    assert "how other nodes looked then is no longer known" in output
    assert "floor 0.6" not in output


async def test_explain_does_not_invent_acceptance_that_is_unknown(rig: Rig) -> None:
    rig.serve("wanted")
    (attempt,) = json.loads((await run("explain", "--json", "wanted", "--url", rig.url))[1])["attempts"]
    attempt["acceptance"][0]["value"] = None
    console = Console(width=80)
    with console.capture() as printed:
        console.print(attempt_report(attempt, ""))
    assert "code with draft-k4: alpha unknown, floor 0.6\n" in re.sub(" +\n", "\n", printed.get())


async def test_explain_says_of_a_refused_request_that_it_did_not_fit(rig: Rig) -> None:
    rig.dispatcher.policy.settings = ThresholdSettings(fallback=False)
    rig.dispatcher.fleet.admit(LONG, 1, "chat", 0.1)
    with pytest.raises(AllFull):
        rig.dispatcher.place(shape("chat", sequences=256), "wide", 0.2)
    _, output, _ = await run("explain", "wide", "--url", rig.url)
    assert "at its limit" in output
    assert "no room for it" in output
    assert "below_floor" in output


async def test_explain_tells_long_names_of_nodes_apart(rig: Rig) -> None:
    other = LONG.removesuffix("0") + "1"
    rig.dispatcher.fleet.add(standard(other), 0.1)
    rig.serve("wanted", "chat")
    _, output, _ = await run("explain", "wanted", "--url", rig.url)
    assert [line for line in output.splitlines() if len(line) > 80] == []
    names = {word for line in output.splitlines() for word in line.split() if word.startswith(LONG[:8]) and "…" in word}
    assert {name[-1] for name in names} == {"0", "1"}


async def test_explain_as_json_is_what_the_admin_says(rig: Rig) -> None:
    rig.serve("a/b c")
    code, output, _ = await run("explain", "--json", "a/b c", "--url", rig.url)
    assert code == 0
    assert json.loads(output)["request_id"] == "a/b c"


async def test_a_request_nobody_remembers_is_one_line_and_status_1(rig: Rig) -> None:
    code, output, errors = await run("explain", "nobody", "--url", rig.url)
    assert (code, output) == (1, "")
    assert errors == "no decision on a request 'nobody' is remembered; the last 10,000 are\n"


@pytest.mark.parametrize(
    ("url", "sentence"), [("http://127.0.0.1:1", "is `slipstream serve`"), ("8081", "is no address")]
)
async def test_an_admin_that_does_not_answer_is_one_line_and_status_1(url: str, sentence: str) -> None:
    for command in (["status"], ["status", "--watch"], ["status", "--json"], ["explain", "x"]):
        code, output, errors = await run(*command, "--url", url)
        assert (code, output) == (1, "")
        assert sentence in errors
        assert len(errors.splitlines()) == 1


@pytest.mark.parametrize("body", ["hello", "[1]", ""])
@pytest.mark.parametrize("answer_status", [200, 404])
async def test_another_server_on_the_port_is_recognised(body: str, answer_status: int) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text=body, status=answer_status)

    application: Any = web.Application()
    application.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        code, _, errors = await run("status", "--url", f"http://127.0.0.1:{runner.addresses[0][1]}")
    finally:
        await runner.cleanup()
    assert code == 1
    assert "port?" in errors
    assert len(errors.splitlines()) == 1


def test_numbers_are_short_and_unknown_is_a_dash() -> None:
    assert [number(n) for n in (None, 0, 9999, 12_345, 1_234_567, 2e9)] == ["–", "0", "9999", "12.3k", "1.2M", "2.0G"]
    assert [number(0.714, 2), share(None), share(0.5)] == ["0.71", "–", "50%"]


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80])
def test_in_a_narrow_terminal_whole_columns_are_left_out_and_named(width: int) -> None:
    node = {"name": LONG, "pool": "standard", "state": "saturated", "occupancy": 9, "ceiling": 8, "limit": 256}
    node |= {"capacity_left": 0, "alpha": 0.8, "k": 4, "tau": 3.4, "drafted": 300, "accepted": 200}
    candidate = {"node": LONG, "pool": "standard", "chosen": True, "reason": "below_floor", "occupancy": 3, "load": 0.3}
    bucket = {"least": 9, "most": 12, "requests": 3, "tau": 3.1, "alpha": 0.7, "tokens_per_step": 3.0}
    buckets = [bucket | {"timed": 12, "tpot_ms": 20.0}]
    console = Console(width=width)
    with console.capture() as printed:
        console.print(node_table([node | {"saturated_share": 0.5}]))
        console.print(candidate_table([candidate]))
        console.print(occupancy_table([{"pool": "speculative", "speculator": "draft-k4", "buckets": buckets}]))
    lines = printed.get().splitlines()
    assert max(map(len, lines)) <= width
    # What is shown is shown whole.
    for word in ("saturated", "below_floor", "9-12", "20.0"):
        assert any(word in line.split() for line in lines), word
    assert ("left out, for want" in " ".join(lines)) == (width < 80)


def test_buckets_are_named_by_their_sequences() -> None:
    assert [bucket_name(1, 1), bucket_name(3, 4), bucket_name(65, None)] == ["1", "3-4", "65+"]
