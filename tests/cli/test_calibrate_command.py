"""`slipstream calibrate` from its options to tables, profile, picture and a gateway's ceiling."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from calibrated_nodes import beside, two_nodes
from fleets import dispatcher_of, fleet_of
from fleets import speculative as speculative_node
from slipstream.admin import Admin, serve_admin
from slipstream.calibrate.findings import Findings, findings_of
from slipstream.calibrate.run import Observed
from slipstream.cli import application
from slipstream.cli.calibrate_report import calibrate_report
from slipstream.costmodel.profiles import TableCosts, read_profile
from slipstream.telemetry import FleetCollector, Instruments

NODES = ("--standard", "http://127.0.0.1:1", "--speculative", "http://127.0.0.1:2")


def run(*arguments: object) -> Result:
    runner = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1", "SLIPSTREAM_ADMIN_TOKEN": ""})
    return runner.invoke(application("calibrate"), ["calibrate", *map(str, arguments)], catch_exceptions=False)


def test_tables_a_profile_and_a_picture(tmp_path: Path) -> None:
    profile, picture = tmp_path / "profile.json", tmp_path / "curve.png"
    dispatcher = dispatcher_of(fleet_of(speculative_node("spec-0")))
    collector = FleetCollector(dispatcher, Instruments(), ["code"], lambda: 0.5, lambda: None)
    admin = serve_admin(Admin(dispatcher, collector, lambda: 0.5, "1"), "127.0.0.1", 0)
    with beside(two_nodes()) as (standard, speculative), beside(admin) as admin_url:
        result = run(
            "--standard", standard.url, "--speculative", speculative.url, "--rounds", 2, "--largest", 2,
            "--context", 64, "--output-tokens", 41, "--hardware", "1x none", "--output", profile, "--plot", picture,
            "--apply", admin_url,
        )  # fmt: skip
        node = dispatcher.fleet.node("spec-0")
    assert result.exit_code == 0, result.output
    assert node is not None
    assert [override.measured for override in dispatcher.overrides] == [True]
    ceiling = json.loads(profile.read_text())["ceiling"]
    assert node.ceiling == ceiling in (1, 2), result.stdout
    lines = result.stdout.splitlines()
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80
    assert any(line.startswith("at once step ms verify ms") for line in lines)
    assert f"Ceiling {ceiling}" in result.stdout
    assert "Speedup: never below 1." in result.stdout
    assert "Ran at once (p95): 2 on the standard node, 2 on the speculative one." in result.stdout
    assert f"the ceiling of the speculative pool is {ceiling}" in " ".join(lines)
    costs = read_profile(profile)
    assert isinstance(costs, TableCosts)
    assert costs.step_s.keys() == {0, 4}
    assert costs.provenance.hardware == "1x none"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_one_json_object_and_too_few_requests() -> None:
    with beside(two_nodes()) as (standard, speculative):
        result = run(
            "--standard", standard.url, "--speculative", speculative.url, "--budget", "300ms", "--context", 16, "--json"
        )
    answer = json.loads(result.stdout)
    assert (result.exit_code, answer["verdict"]["status"]) == (5, 5)
    assert answer["ceiling"] is None
    assert answer["run"]["ended"] == "the budget of 0.3 s is used up"
    assert "no batch size was measured on both nodes" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "give --standard URL and --speculative URL, or --node URL and --agent URL, or --embedded"),
        (("--standard", "h:1", "--speculative", "http://b:1"), "a node's URL is http://HOST:PORT"),
        (("--standard", "http://a:1/v1", "--speculative", "http://a:1/"), "is given twice"),
        ((*NODES, "--gguf", "m.gguf"), "--gguf only counts beside --embedded"),
        ((*NODES, "--embedded"), "--embedded starts nodes of its own"),
        ((*NODES, "--speculator", "draft:x"), "--speculator is draft or ngram"),
        ((*NODES, "--context", "0"), "--context is 1 to"),
        ((*NODES, "--categories", " ,"), "--categories names at least one"),
        ((*NODES, "--form", "curve"), "--form is table or linear"),
        ((*NODES, "--budget", "soon"), "--budget takes a time"),
        ((*NODES, "--plot", "x.gif"), ".png"),
        ((*NODES, "--output", "p.json"), "give --hardware"),
        ((*NODES, "--output", "no/such/p.json"), "no folder"),
        ((*NODES, "--api-key-variable", "NO_SUCH_VARIABLE"), "is not set"),
    ],
)
def test_options_that_can_not_be(arguments: tuple[str, ...], sentence: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert result.stderr.startswith("slipstream calibrate: ")


def test_interrupted_it_tells_what_there_is_and_applies_nothing() -> None:
    with beside(two_nodes()) as (standard, speculative):

        def interrupt() -> None:
            deadline = time.monotonic() + 20.0
            while speculative.engine.running < 2 and time.monotonic() < deadline:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)

        person = threading.Thread(target=interrupt)
        person.start()
        result = run(
            "--standard", standard.url, "--speculative", speculative.url, "--largest", 2, "--context", 16,
            "--output-tokens", 21, "--apply", "http://127.0.0.1:1",
        )  # fmt: skip
        person.join()
    assert result.exit_code == 130, result.output
    assert "at once" in result.stdout
    assert "nothing was applied" in result.stdout
    assert "slipstream calibrate: interrupted" in result.stderr


def test_what_can_not_be_handed_on_is_an_error_beside_what_was_measured(tmp_path: Path) -> None:
    with beside(two_nodes()) as (standard, speculative):
        result = run(
            "--standard", standard.url, "--speculative", speculative.url, "--largest", 1, "--rounds", 2,
            "--context", 16, "--output-tokens", 41, "--apply", "http://127.0.0.1:1", "--json",
            "--output", tmp_path, "--hardware", "none",
        )  # fmt: skip
    assert result.exit_code == 1
    assert json.loads(result.stdout)["ceiling"] == 1
    assert f"no profile: {tmp_path} can not be written: Is a directory" in result.stderr
    assert "the ceiling was not applied: no admin API answers" in result.stderr


def test_a_script_that_wants_a_ceiling_applied_sees_by_the_status_that_too_few_requests_told_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def of_one_request_alone(observed: Observed) -> Findings:
        for arm in (observed.standard, *observed.speculative):
            arm.waves.update({point: told[:1] for point, told in arm.waves.items() if point.batch_size == 1})
        return findings_of(observed)

    monkeypatch.setattr("slipstream.cli.calibrate_run.findings_of", of_one_request_alone)
    with beside(two_nodes()) as (standard, speculative):
        result = run(
            "--standard", standard.url, "--speculative", speculative.url, "--largest", 2, "--rounds", 1,
            "--context", 16, "--output-tokens", 21, "--apply", "http://127.0.0.1:1",
        )  # fmt: skip
    assert result.exit_code == 5, result.output
    assert "nothing was applied, since no ceiling is sure" in result.stdout
    assert "too few requests to tell at 1" in result.stderr


@pytest.mark.engine
def test_it_starts_nodes_of_its_own(tmp_path: Path) -> None:
    """With no time to measure them: a page of the documents does that."""
    profile = tmp_path / "p.json"
    result = run("--embedded", "--budget", "50ms", "--slots", 1, "--output", profile)
    assert result.exit_code == 5, result.output
    assert "the budget of 0.05 s is used up" in " ".join(result.stdout.split())
    assert "no profile: too little was measured for a table" in " ".join(result.stdout.split())
    assert not profile.exists()


def test_a_node_that_is_not_there() -> None:
    result = run(*NODES, "--speculator", "draft")
    assert result.exit_code == 1
    assert "can not be reached" in result.stderr


def shown(answer: dict[str, Any]) -> str:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(calibrate_report(answer))
    return capture.get()


def test_what_is_not_known_is_a_dash() -> None:
    row = {
        "batch_size": 1,
        "speedup": 0.9,
        "speedup_interval": None,
        "standard_step_ms": 10.0,
        "speculative_step_ms": 12.0,
        "standard_tps": 100.0,
        "speculative_tps": 90.0,
        "tokens_per_step": 1.08,
    }
    curve = {"speculator": "ngram", "context_tokens": 64, "shape": "below 1 from the first point on", "crossovers": []}
    text = shown(
        {
            "title": "a against b",
            "curves": [curve | {"ceiling": None, "rows": [row]}],
            "acceptance": {"b": {}},
            "admitted": {"standard": None, "speculative": None},
            "fits": {"linear": None, "table": None},
            "recommendation": "Speculation does not pay here.",
            "plan": "0123",
            "run": {"wall_s": 3.0, "ended": None},
        }
    )
    assert "Speedup: below 1 from the first point on." in text
    assert "Ran at once (p95): – on the standard node" in text
    assert "0.90" in text
