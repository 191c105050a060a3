"""`slipstream config` gives a verdict that scripts and people can use."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]  # its stubs are not installed
import pytest
from typer.testing import CliRunner

from slipstream.cli.config import config_app

GOOD = """
nodes:
  - {name: a, url: "http://h:1", pool: speculative}
  - {name: b, url: "http://h:2", pool: standard}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "fleet.yaml"


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(config_app, arguments, catch_exceptions=False)
    return result.exit_code, result.output


@pytest.mark.parametrize("option", [[], ["-c"], ["--config"]])
def test_a_good_file_gets_a_line_and_status_0(file: Path, option: list[str]) -> None:
    file.write_text(GOOD)
    status, output = run("check", *option, str(file))
    assert status == 0
    assert output == f"{file}: good (1 speculative, 1 standard; gateway on 127.0.0.1:8080, admin on 127.0.0.1:8081)\n"


def test_a_bad_file_gets_every_problem_and_status_1(file: Path) -> None:
    file.write_text(GOOD + "gatewya: {}\nadmin: {listen: x}\n")
    status, output = run("check", str(file))
    assert status == 1
    first, second, verdict = output.splitlines()
    assert first.startswith(f'{file}:5: gatewya: found an unknown key (did you mean "gateway"?)')
    assert second.startswith(f"{file}:6: admin.listen: found")
    assert verdict == f"{file}: 2 problems"


def test_the_default_file_is_fleet_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    status, output = run("check")
    assert status == 1
    problem, verdict = output.splitlines()
    assert problem.startswith("fleet.yaml: found no such file; allowed: a file that is there: name yours with -c, or ")
    assert verdict == "fleet.yaml: 1 problem"


def test_the_verdict_as_json(file: Path) -> None:
    file.write_text(GOOD)
    status, output = run("check", "--json", str(file))
    assert (status, json.loads(output)) == (
        0,
        {"file": str(file), "ok": True, "problems": [], "warnings": [], "nodes": {"speculative": 1, "standard": 1}},
    )
    file.write_text("nodes: []")
    status, output = run("check", "--json", str(file))
    problem = {"file": str(file), "line": 1, "key": "nodes", "found": "an empty list", "allowed": "at least one entry"}
    assert (status, json.loads(output)) == (1, {"file": str(file), "ok": False, "problems": [problem], "warnings": []})


def test_a_warning_is_printed_and_the_file_is_good_all_the_same(file: Path) -> None:
    file.write_text('nodes: [{name: b, url: "http://h:2", pool: standard}]')
    warning = "no node is in the speculative pool, so nothing is ever speculated"
    status, output = run("check", str(file))
    verdict, told = output.splitlines()
    assert (status, told) == (0, f"{file}: warning: {warning}")
    assert verdict.startswith(f"{file}: good (1 standard; ")
    status, output = run("check", "--json", str(file))
    assert (status, json.loads(output)["ok"], json.loads(output)["warnings"]) == (0, True, [warning])


@pytest.mark.parametrize(("option", "title"), [((), "Slipstream fleet"), (("--scenario",), "Slipstream scenario")])
def test_the_schema_is_a_json_schema(option: tuple[str, ...], title: str) -> None:
    status, output = run("schema", *option)
    assert status == 0
    schema = json.loads(output)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["title"] == title


@pytest.mark.parametrize(
    ("deciding", "because"),
    [
        ("routing: {policy: predictive}\n", "routing.policy is predictive"),
        ("roles: {}\n", "nodes change their roles by it"),
        (
            "routing: {policy: predictive}\nroles: {}\n",
            "routing.policy is predictive and nodes change their roles by it",
        ),
    ],
)
def test_a_profile_that_something_is_decided_by_has_to_foretell(file: Path, deciding: str, because: str) -> None:
    told = {"engine": "vllm", "version": "1", "hardware": "none", "model": "m", "date": "2026-11-30"}
    points = [{"batch_size": 2, "k": k, "step_ms": 9} for k in (0, 4)]
    profile = file.with_name("profile.json")
    profile.write_text(json.dumps(told | {"form": "table", "points": points}))
    nodes = GOOD.replace("pool: standard", 'pool: standard, agent: "http://h:3"')
    file.write_text(f"{nodes}profile: {profile.name}\n")
    assert run("check", str(file))[0] == 0
    file.write_text(f"{nodes}profile: {profile.name}\n{deciding}")
    status, output = run("check", str(file))
    assert status == 1
    assert f"; allowed: step times from a batch size of 1 on, since {because}\n" in output
