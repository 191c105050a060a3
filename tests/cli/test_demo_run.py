"""`slipstream demo` as a person runs it: real engines, a real terminal's width, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine_nodes import children_of
from slipstream.cli import application

COMMAND = (sys.executable, "-m", "slipstream", "demo")
ENVIRONMENT = {**os.environ, "COLUMNS": "80", "TERM": "dumb"}

SHOWN_TWICE = """
import sys
import slipstream.cli, slipstream.cli.demo as demo

run_once = demo._run
runs = []

async def kept(*arguments):
    if not runs:
        runs.append(await run_once(*arguments))
    return runs[0]

demo._run = kept
sys.argv[1:] = ["demo", "--requests", "16"]
try:
    slipstream.cli.main()
except SystemExit as end:
    if end.code:
        raise
print(chr(12), end="")
sys.argv.append("--json")
slipstream.cli.main()
"""
"""One run of real engines as tables, a form feed, and the same run as JSON."""


@contextmanager
def started(*options: str, command: tuple[str, ...] = COMMAND) -> Iterator[subprocess.Popen[str]]:
    """The demo in a process of its own, which a failing test does not leave running."""
    with subprocess.Popen(
        (*command, *options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """Wait for the engines of the demo's two nodes, which are its keepers' children."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        engines = [engine for keeper in children_of(process.pid) for engine in children_of(keeper)]
        if len(engines) == 2:
            return engines
        time.sleep(0.01)
    pytest.fail(f"the demo started no two nodes: {process.communicate()[1] if process.poll() is not None else ''}")


def gone(pids: list[int]) -> bool:
    """Whether all of these processes have ended, within ten seconds."""
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.engine
def test_the_demo_shows_both_pools_in_80_columns_with_measured_acceptance_and_leaves_nothing_running() -> None:
    with started(command=(sys.executable, "-c", SHOWN_TWICE)) as process:
        workers = workers_of(process)
        output, errors = process.communicate(timeout=110)
    assert process.returncode == 0, errors
    assert gone(workers)
    tables, _, document = output.partition("\f")
    assert "16 requests in" in tables
    for word in ("Nodes", "Categories", "speculative", "below_floor", "Latency", "time per output token", "Advice"):
        assert word in tables
    assert max(map(len, tables.splitlines())) <= 80
    assert "Traceback" not in errors
    found = json.loads(document)
    assert found["verdict"]["ok"] is True
    assert found["verdict"]["requests"] == 16
    assert found["verdict"]["failed"] == 0
    assert {node["pool"] for node in found["nodes"]} == {"speculative", "standard"}
    assert all(node["peak_occupancy"] >= 1 and node["occupancy"] == 0 for node in found["nodes"])
    [speculative] = [node for node in found["nodes"] if node["pool"] == "speculative"]
    # The node counts more: the first drafts are over before its counters tell how many steps they took.
    assert 0 < sum(category["drafted"] or 0 for category in found["categories"]) <= speculative["drafted"]
    assert 0 <= sum(category["accepted"] or 0 for category in found["categories"]) <= speculative["accepted"]
    asked = [category for category in found["categories"] if category["requests"]["by_pool"]]
    assert len(asked) >= 5
    assert sum(sum(category["requests"]["by_pool"].values()) for category in asked) == 16
    assert sum(sum(category["requests"]["by_reason"].values()) for category in asked) == 16


@pytest.mark.engine
def test_an_interrupted_demo_ends_with_all_it_started() -> None:
    with started() as process:
        workers = workers_of(process)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "interrupted; all that was started has ended"
    assert "Traceback" not in output + errors
    assert gone(workers)


def test_a_model_that_is_not_there_is_one_line() -> None:
    with started("--model", "/no/such/model.gguf") as process:
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert output == ""
    assert errors == "There is no model file at /no/such/model.gguf.\n"


def test_without_an_installed_model_one_line_names_the_command() -> None:
    absent = "import slipstream.embedded.model as m; m.MODEL_PACKAGE = 'absent_package'; import slipstream.cli as c; "
    done = subprocess.run(
        (sys.executable, "-c", absent + "import sys; sys.argv[1:] = ['demo']; c.main()"),
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert "pip install" in line


@pytest.mark.parametrize("requests", ["11", "61", "many"])
def test_more_prompts_than_there_are_is_a_usage_error(requests: str) -> None:
    result = CliRunner(env=ENVIRONMENT).invoke(application("demo"), ["demo", "--requests", requests])
    assert result.exit_code == 2
    assert "--requests" in result.stderr
