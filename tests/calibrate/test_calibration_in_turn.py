"""A calibration of one node in both its roles, one after the other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from agent_rig import EmulatedInHand, Rig, rig
from calibrated_nodes import PLAN, beside, known, terms, two_nodes
from slipstream.calibrate.findings import findings_of
from slipstream.calibrate.node import CalibratedNode
from slipstream.calibrate.report import Status, calibration_document, verdict_of
from slipstream.calibrate.run import Observed, Terms, calibrate_in_turn
from slipstream.cli import application
from slipstream.core.request import Pool
from slipstream.costmodel.profiles import TableCosts, read_profile

SHORT = replace(PLAN, batch_sizes=(1, 2))

InRole = Callable[[bool], Awaitable[CalibratedNode]]


async def in_turn(asked: list[bool], on: Terms, then: Callable[[bool], None] = lambda _drafts: None) -> Observed:
    """Two nodes stand for one that changes; ``asked`` gets the roles that it is asked to be in."""
    async with two_nodes() as (standard, speculative), known(standard.url, speculative.url) as nodes:

        async def in_role(drafts: bool) -> CalibratedNode:
            asked.append(drafts)
            then(drafts)
            return nodes[drafts]

        return await calibrate_in_turn(nodes[0], in_role, SHORT, on)


async def test_both_roles_are_measured_over_the_same_batches_the_speculator_first() -> None:
    asked: list[bool] = []
    said: list[str] = []
    findings = findings_of(await in_turn(asked, terms(said=said)))
    assert asked == [True, False]
    assert [one for one in said if one.startswith("the node")] == [
        "the node with its speculator",
        "the node without its speculator",
    ]
    (curve,) = findings.speculative[0].curves
    assert curve.batch_sizes == (1, 2)
    assert all(gain.speedup > 1.0 for gain in curve.gains)
    assert verdict_of(findings).status is Status.MEASURED


async def test_told_to_stop_between_its_roles_it_tells_what_there_is() -> None:
    stop, asked = asyncio.Event(), list[bool]()

    def stop_at_the_second(drafts: bool) -> None:
        if not drafts:
            stop.set()

    observed = await in_turn(asked, terms(stop=stop), stop_at_the_second)
    assert (observed.interrupted, observed.ended) == (True, "interrupted")
    assert observed.speculative[0].waves
    assert not observed.standard.waves


async def test_told_to_stop_at_once_it_has_nothing_to_tell() -> None:
    stop = asyncio.Event()
    stop.set()
    findings = findings_of(await in_turn([], terms(stop=stop)))
    assert verdict_of(findings).status is Status.INTERRUPTED
    assert calibration_document(findings)["ceiling"] is None


async def test_each_role_has_half_of_the_time() -> None:
    observed = await in_turn([], terms(0.02))
    assert observed.ended == "the budget of 0.02 s is used up"
    assert not observed.interrupted


def run(*arguments: object) -> Result:
    runner = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1", "SLIPSTREAM_AGENT_TOKEN": ""})
    words = ["calibrate", *map(str, arguments), "--context", "16", "--rounds", "1", "--largest", "2"]
    return runner.invoke(application("calibrate"), words, catch_exceptions=False)


@asynccontextmanager
async def served(role: Pool, token: str | None = None, *, switchable: bool = True) -> AsyncIterator[Rig]:
    """An agent that is heard, on the loop that this is entered on."""
    async with rig(EmulatedInHand(switchable=switchable), serve=True, token=token, role=role) as one:
        yield one


@pytest.mark.parametrize("before", Pool)
def test_a_node_changes_its_role_by_its_agent_and_is_as_it_was_after_it(before: Pool, tmp_path: Path) -> None:
    token, profile = tmp_path / "agent", tmp_path / "profile.json"
    token.write_text("secret")
    with beside(served(before, "secret")) as one:
        result = run(
            "--node", one.engine.url, "--agent", one.url, "--agent-token-file", token, "--json",
            "--output", profile, "--hardware", "none",
        )  # fmt: skip
        assert one.state.role is before
        assert set(one.engine.starts) == set(Pool)
    assert result.exit_code in (Status.MEASURED, Status.TOO_FEW), result.output
    costs = read_profile(profile)
    assert isinstance(costs, TableCosts)
    assert costs.step_s.keys() == {0, 4}
    answer = json.loads(result.stdout)
    assert [row["batch_size"] for row in answer["curves"][0]["rows"]] == [1, 2]
    assert [node["speculator"] for node in answer["nodes"]] == [None, "draft-k4"]
    assert answer["title"].endswith("with and without its speculator")


def test_a_node_that_does_not_come_back_is_said_to_be_as_it_is() -> None:
    with beside(served(Pool.STANDARD)) as one:
        one.engine.broken = {Pool.STANDARD}
        result = run("--node", one.engine.url, "--agent", one.url)
    assert result.exit_code == Status.UNUSABLE
    assert "the node did not become standard" in result.stderr
    assert "Traceback" not in result.output


def test_an_agent_with_one_role_an_agent_that_is_none_and_half_of_the_options() -> None:
    with beside(served(Pool.SPECULATIVE, switchable=False)) as one:
        fixed = run("--node", one.engine.url, "--agent", one.url)
        none = run("--node", one.engine.url, "--agent", one.engine.url)
    assert (fixed.exit_code, none.exit_code) == (1, 1)
    assert "has its engine in one role only" in fixed.stderr
    assert none.stderr.startswith("slipstream calibrate: ")
    for words, sentence in (
        (["--node", "http://a:1"], "give both"),
        (["--agent", "http://a:1"], "give both"),
        (["--node", "http://a:1", "--agent", "a:2"], "a node's URL is http://HOST:PORT"),
        (["--node", "http://a:1", "--agent", "http://a:2", "--standard", "http://a:3"], "leave --standard"),
        (["--node", "http://a:1", "--agent", "http://a:2", "--embedded"], "leave --standard"),
        (["--node", "http://a:1", "--agent", "http://a:2", "--agent-token-file", "nowhere"], "--agent-token-file"),
    ):
        result = run(*words)
        assert result.exit_code == 2, words
        assert sentence in result.stderr
