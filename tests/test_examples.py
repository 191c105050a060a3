"""Every file under examples/ can be used, and does what its comments say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from typer.testing import CliRunner

from fleets import report
from live_service import COMMAND_ENVIRONMENT, live
from slipstream.cli import application
from slipstream.config import FleetConfig, load, node_specs
from slipstream.core.policy import Reason
from slipstream.core.request import Pool, RequestShape
from slipstream.gateway.headers import RequestHead
from slipstream.service import build_dispatcher
from slipstream.settings import reader_of, settings_of
from vllm_like_node import MODEL, Drafts, vllm_like

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "the-nodes-own")


SCENARIOS = {file for file in EXAMPLES.glob("*.yaml") if "\nworkload:" in file.read_text()}
"""Simulated, and tried in tests/test_scenario_examples.py."""


@pytest.mark.parametrize("file", sorted({*EXAMPLES.glob("*.yaml")} - SCENARIOS), ids=lambda file: file.name)
def test_every_configuration_is_good(file: Path) -> None:
    result = CliRunner().invoke(application("config"), ["config", "check", str(file)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"{file}: good (")


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.py")), ids=lambda file: file.name)
def test_every_program_runs_without_what_the_gateway_needs(file: Path) -> None:
    refused = (
        "aiohttp",
        "httptools",
        "msgspec",
        "pydantic",
        "structlog",
        "typer",
        "uvloop",
        "yaml",
        "prometheus_client",
    )
    program = f"import runpy, sys; sys.modules.update(dict.fromkeys({refused!r})); runpy.run_path({str(file)!r})"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        env=COMMAND_ENVIRONMENT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_every_example_is_tried() -> None:
    assert {file.suffix for file in EXAMPLES.iterdir() if file.is_file()} == {".yaml", ".py"}
    assert {file.name for file in EXAMPLES.iterdir() if file.is_dir()} == {"traces"}


async def test_the_smallest_fleet_serves(tmp_path: Path) -> None:
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std:
        text = (EXAMPLES / "fleet.yaml").read_text()
        text = text.replace("http://10.0.0.1:8000", spec.url).replace("http://10.0.0.2:8000", std.url)
        file = tmp_path / "fleet.yaml"
        file.write_text(text + '\ngateway: {listen: "127.0.0.1:0"}\nadmin: {listen: "127.0.0.1:0"}\n')
        async with live(load(file)) as fleet:
            reasons = [await _asked(fleet.client, prompt) for prompt in ("Write a Python function.", "How are you?")]
    assert reasons == [("spec-0", "speculative"), ("std-0", "below_floor")]


async def _asked(client: Any, prompt: str) -> tuple[str, str]:
    messages = [{"role": "user", "content": prompt}]
    answer = await client.chat.completions.with_raw_response.create(model=MODEL, messages=messages)
    return answer.headers["x-slipstream-node"], answer.headers["x-slipstream-reason"]


def test_the_vllm_fleet_has_two_pools_their_ceilings_and_the_nodes_key() -> None:
    config = load(EXAMPLES / "two-pools-vllm.yaml")
    specs = node_specs(config)
    dispatcher = build_dispatcher(settings_of(config), specs, lambda: 0.5)
    nodes = [*dispatcher.fleet.nodes()]
    assert [(node.name, node.pool, node.ceiling) for node in nodes if node.pool is Pool.SPECULATIVE] == [
        ("spec-0", "speculative", 8),
        ("spec-1", "speculative", 12),
    ]
    assert [node.name for node in nodes if node.pool is Pool.STANDARD] == ["std-0", "std-1"]
    assert {(spec.engine, spec.models, spec.api_key) for spec in specs} == {("vllm", ("llama-70b",), "the-nodes-own")}


@pytest.mark.parametrize(
    ("category", "draw", "reason"),
    [
        ("code", 0.5, Reason.SPECULATIVE),
        ("code", 0.001, Reason.HOLDBACK),
        ("chat", 0.001, Reason.PINNED),
    ],
)
def test_the_vllm_fleet_holds_back_some_and_pins_chat(category: str, draw: float, reason: Reason) -> None:
    config = load(EXAMPLES / "two-pools-vllm.yaml")
    dispatcher = build_dispatcher(settings_of(config), node_specs(config), lambda: draw)
    now = monotonic()
    for node in dispatcher.fleet.nodes():
        dispatcher.report(node.name, now, now, report(speculating=node.pool is Pool.SPECULATIVE))
    shape = RequestShape("llama-70b", category, pinned_pool=config.routing.pins.get(category))
    assert dispatcher.place(shape, "r", now).decision.reason is reason


@pytest.mark.parametrize(
    ("category", "body", "named"),
    [
        ("sql", {"model": "warehouse-7b", "messages": [{"role": "user", "content": "How many customers?"}]}, None),
        ("sql", {"messages": [{"role": "user", "content": "A query that will join the tables of orders"}]}, None),
        ("code", {"messages": [{"role": "user", "content": "Write a query class in Python"}]}, None),
        (
            "support",
            {
                "messages": [
                    {"role": "system", "content": "You are the help desk of a bank."},
                    {"role": "user", "content": "My card is lost."},
                ]
            },
            None,
        ),
        ("structured", {"messages": [{"role": "user", "content": "Hello"}], "tools": [{"type": "function"}]}, None),
        ("chat", {"messages": [{"role": "user", "content": "Hello"}]}, None),
        ("support", {"messages": [{"role": "user", "content": "Hello"}]}, "support"),
    ],
)
def test_own_categories_take_what_their_comments_say(category: str, body: dict[str, Any], named: str | None) -> None:
    read = reader_of(_categories())
    head = RequestHead([] if named is None else [(b"x-slipstream-category", named.encode())])
    body_bytes = json.dumps({"model": "m", **body}).encode()
    assert read("/v1/chat/completions", body_bytes, head, None).category == category


def test_own_categories_keep_the_default_ones() -> None:
    assert {"sql", "support", "code", "chat"} <= _categories().categories.keys()


def _categories() -> FleetConfig:
    return load(EXAMPLES / "categories.yaml")
