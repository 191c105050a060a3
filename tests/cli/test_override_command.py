"""`slipstream override` against a real admin API: what it does, says, and refuses."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from fleets import dispatcher_of, fleet_of, shape, speculative, standard
from slipstream.admin import Admin, serve_admin
from slipstream.cli import application
from slipstream.cli.override import duration, seconds_of
from slipstream.core.dispatch import Dispatcher
from slipstream.core.latency import Latency
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.policy import ThresholdSettings
from slipstream.core.request import PinSource, Pool
from slipstream.telemetry import FleetCollector, Instruments

ANSWERED = Outcome(Ending.COMPLETED, 200, Latency(0.1, 0.02, 1.0), 10, 64)


class Rig:
    """A fleet whose clock stands at ``now``, and the address of its admin API."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.now = 0.5
        self.dispatcher = dispatcher
        self.url = ""

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        """The command in a thread: it blocks, and the admin API answers on this loop."""
        runner = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"})
        words = [*arguments, "--url", self.url]
        result = await asyncio.to_thread(runner.invoke, application(arguments[0]), words, catch_exceptions=False)
        return result.exit_code, result.stdout, result.stderr

    async def override(self, *arguments: str) -> str:
        code, output, errors = await self.run("override", *arguments)
        assert (code, errors) == (0, "")
        return output

    def state(self, name: str) -> str:
        node = self.dispatcher.fleet.node(name)
        assert node is not None
        return node.state


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig(dispatcher_of(fleet_of(speculative("spec-0"), standard("std-0"))))

    def clock() -> float:
        return rig.now

    collector = FleetCollector(rig.dispatcher, Instruments(), ["code", "chat"], clock, lambda: None)
    admin = Admin(rig.dispatcher, collector, clock, "1", key_ids=lambda: ["team"])
    async with serve_admin(admin, "127.0.0.1", 0) as rig.url:
        yield rig


@pytest.mark.parametrize(
    ("words", "said", "cleared"),
    [
        (
            ("pin", "standard", "--category", "chat"),
            "requests of category chat go to the standard pool",
            ("clear", "pin_category", "chat"),
        ),
        (
            ("pin", "speculative", "--key", "team"),
            "requests with key team go to the speculative pool",
            ("clear", "pin_key", "team"),
        ),
        (("ceiling", "12", "--node", "spec-0"), "the ceiling of spec-0 is 12", ("clear", "node_ceiling", "spec-0")),
        (
            ("ceiling", "12", "--pool", "speculative"),
            "the ceiling of the speculative pool is 12",
            ("clear", "--all"),
        ),
        (("drain", "spec-0"), "spec-0 takes no new requests", ("resume", "spec-0")),
        (("speculation", "off"), "speculation is off: all requests go to the standard pool", ("speculation", "on")),
    ],
)
async def test_each_is_set_listed_shown_and_ended(
    rig: Rig, words: tuple[str, ...], said: str, cleared: tuple[str, ...]
) -> None:
    assert await rig.override(*words) == f"{said}, until it is cleared\n"
    assert await rig.override("list") == f"{said}, until it is cleared\n"
    _, status, _ = await rig.run("status")
    assert f"override: {said}" in " ".join(status.split())
    assert await rig.override(*cleared) == f"cleared: {said}\n"
    assert await rig.override("list") == "no override is in force\n"
    assert await rig.override(*cleared) == "there was no such override\n"
    assert "override:" not in (await rig.run("status"))[1]


async def test_a_time_and_a_note_are_kept_and_shown(rig: Rig) -> None:
    said = await rig.override("drain", "spec-0", "--for", "90m", "--note", "new driver")
    assert said == "spec-0 takes no new requests, for 1.5 h more (new driver)\n"
    rig.now = 1_800.5
    assert "for 1 h more" in await rig.override("list")
    rig.now = 5_400.5
    assert await rig.override("list") == "no override is in force\n"
    assert rig.state("spec-0") != "draining"


async def test_lines_are_as_wide_as_the_terminal_and_an_end_is_said_as_one(rig: Rig) -> None:
    note = "the driver of this node is replaced by the one that the vendor mended"
    said = await rig.override("speculation", "off", "--for", "90m", "--note", note)
    for output in (said, await rig.override("list")):
        first, *rest = output.splitlines()
        assert len(first) <= 80
        assert rest
        assert all(line.startswith("  ") and len(line) <= 80 for line in rest)
    rig.now = 1_800.5
    ended = await rig.override("clear", "--all")
    told = f"cleared: speculation is off: all requests go to the standard pool, with 1 h left ({note})"
    assert " ".join(ended.split()) == told
    assert max(map(len, ended.splitlines())) <= 80


async def test_a_ceiling_above_what_a_node_takes_is_said_to_have_effect_up_to_there(rig: Rig) -> None:
    rig.dispatcher.fleet.reconfigure(speculative("spec-0", limit=8), 0.5)
    said = await rig.override("ceiling", "12", "--node", "spec-0")
    told = "the ceiling of spec-0 is 12, with effect up to the 8 that its engine takes at once"
    assert " ".join(said.split()) == f"{told}, until it is cleared"
    said = await rig.override("ceiling", "12", "--pool", "speculative")
    assert "with effect up to the 8 that any of its engines takes at once" in " ".join(said.split())
    assert "effect" not in await rig.override("ceiling", "8", "--node", "spec-0")


async def test_json_is_what_the_admin_says(rig: Rig) -> None:
    set_one = json.loads(await rig.override("speculation", "off", "--json"))
    assert set_one["override"]["kind"] == "speculation"
    assert json.loads(await rig.override("list", "--json"))["overrides"] == [set_one["override"]]
    assert json.loads(await rig.override("clear", "--all", "--json"))["cleared"] == [set_one["override"]]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("drain", "spec-9"), "it must be a node of the fleet: spec-0, std-0"),
        (("pin", "standard", "--category", "chats"), "a configured category: code, chat"),
        (("clear", "stop", "spec-0"), "kind is 'stop', but must be one of"),
    ],
)
async def test_what_the_admin_refuses_is_one_sentence_and_status_1(
    rig: Rig, words: tuple[str, ...], sentence: str
) -> None:
    code, output, errors = await rig.run("override", *words)
    assert (code, output, len(errors.splitlines())) == (1, "", 1)
    assert sentence in errors


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("pin", "standard"), "give --category or --key"),
        (("pin", "fast", "--category", "chat"), "a pin needs a pool: speculative or standard"),
        (("pin", "standard", "--category", "chat", "--key", "team"), "not both"),
        (("ceiling", "12"), "give --node or --pool"),
        (("ceiling", "0", "--node", "spec-0"), "greater than or equal to 1"),
        (("drain", "spec-0", "--for", "soon"), "'soon' is no duration"),
        (("speculation", "maybe"), "turned on or off"),
        (("speculation", "on", "--note", "x"), "belong to off"),
        (("clear",), "give KIND and SUBJECT, or --all"),
        (("clear", "drain"), "give KIND and SUBJECT, or --all"),
        (("clear", "drain", "spec-0", "--all"), "give KIND and SUBJECT, or --all"),
    ],
)
async def test_a_command_that_can_not_be_meant_has_status_2_and_changes_nothing(
    rig: Rig, words: tuple[str, ...], sentence: str
) -> None:
    code, _, errors = await rig.run("override", *words)
    assert code == 2
    assert sentence in " ".join(errors.replace("│", " ").split())
    assert not rig.dispatcher.overrides.active


async def test_waiting_for_a_drain_ends_when_nothing_runs_there(rig: Rig) -> None:
    placements = [rig.dispatcher.place(shape("code"), f"r{n}", 0.5) for n in range(3)]
    waiting = asyncio.create_task(rig.run("override", "drain", "spec-0", "--wait"))
    async with asyncio.timeout(30):
        while rig.state("spec-0") != "draining":
            await asyncio.sleep(0.01)
    assert not waiting.done()
    for placement in placements:
        rig.dispatcher.settle(placement, ANSWERED, 0.6)
    code, output, errors = await waiting
    assert code == 0
    assert output.splitlines()[-1] == "spec-0 has drained: nothing of this gateway runs on it"
    assert "0 left" in errors


async def test_waiting_for_a_drain_of_an_idle_node_does_not_wait_and_with_json_says_nothing_more(rig: Rig) -> None:
    assert json.loads(await rig.override("drain", "spec-0", "--wait", "--json"))["override"]["subject"] == "spec-0"


async def test_an_interrupted_wait_leaves_the_node_draining(rig: Rig) -> None:
    rig.dispatcher.place(shape("code"), "r", 0.5)
    script = "from slipstream.cli import main; main()"
    words = ("override", "drain", "spec-0", "--wait", "--url", rig.url)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script, *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"},
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            assert b"takes no new requests" in await process.stdout.readline()
            process.send_signal(signal.SIGINT)
            _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 130
    assert b"Traceback" not in errors
    assert rig.state("spec-0") == "draining"


async def test_explain_names_the_override_that_fixed_a_pool(rig: Rig) -> None:
    await rig.override("pin", "standard", "--category", "code", "--note", "incident 42")
    rig.dispatcher.place(shape("code"), "pinned", 1.0)
    rig.now = 121.0
    _, output, _ = await rig.run("explain", "pinned")
    assert "because pinned" in output
    told = "its pool was fixed by override pin_category code, set 2.01 min ago (incident 42)"
    assert told in " ".join(output.split())


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (PinSource.CONFIGURATION, "fixed by routing.pins, for category code"),
        (PinSource.KEY, "fixed by the pool of key team, in gateway.keys"),
    ],
)
async def test_explain_says_what_was_configured_to_fix_a_pool(rig: Rig, source: PinSource, told: str) -> None:
    pinned = shape("code", key_id="team", pinned_pool=Pool.STANDARD, pinned_by=source)
    rig.dispatcher.place(pinned, "steered", 1.0)
    rig.dispatcher.policy.configure(ThresholdSettings(observe=True), rig.dispatcher.fleet.advance())
    rig.dispatcher.place(pinned, "observed", 1.0)
    assert f"its pool was {told}" in " ".join((await rig.run("explain", "steered"))[1].split())
    assert f"its pool would have been {told}" in " ".join((await rig.run("explain", "observed"))[1].split())


async def test_status_shows_what_occupancy_does(rig: Rig) -> None:
    _, output, _ = await rig.run("status", "--occupancy")
    assert output == "no answer has told of its acceptance or its time per token yet\n"
    for placement in [rig.dispatcher.place(shape("code"), f"r{n}", 0.5) for n in range(3)]:
        rig.dispatcher.settle(placement, ANSWERED, 0.5)
    _, output, _ = await rig.run("status", "--occupancy")
    assert [line for line in output.splitlines() if len(line) > 80] == []
    rows = [line.split() for line in output.splitlines() if line.startswith("spec")]
    assert [row[2] for row in rows] == ["1", "2", "3-4"]
    answer: Any = json.loads((await rig.run("status", "--occupancy", "--json"))[1])
    assert answer["groups"][0]["buckets"][0]["timed"] == 1


async def test_an_admin_that_does_not_answer_is_one_line_and_status_1(rig: Rig) -> None:
    rig.url = "http://127.0.0.1:1"
    for words in (("list",), ("drain", "spec-0"), ("clear", "--all")):
        code, output, errors = await rig.run("override", *words)
        assert (code, output, len(errors.splitlines())) == (1, "", 1)
        assert "is `slipstream serve`" in errors


def test_durations_are_read_and_written() -> None:
    assert [seconds_of(text) for text in ("90s", "30m", "1.5h", "2d")] == [90, 1_800, 5_400, 172_800]
    assert [duration(value) for value in (0, 59, 90, 5_400, 172_800)] == ["0 s", "59 s", "1.5 min", "1.5 h", "2 d"]
    for text in ("", "10", "m", "-5m", "1e3s", "5 m"):
        with pytest.raises(typer.BadParameter):
            seconds_of(text)
