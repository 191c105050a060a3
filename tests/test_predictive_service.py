"""Policy `predictive` in a running gateway: profiles from files, reloads, what is said, and what operators fix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from live_service import Live, eventually, live
from slipstream.cli import application
from slipstream.cli.explain import attempt_report
from slipstream.cli.status import fleet_report
from slipstream.cli.tables import candidate_table
from slipstream.cli.up import sections_of
from slipstream.config import FleetConfig, load
from slipstream.core.errors import ConfigError
from slipstream.core.overrides import Override, OverrideKind
from slipstream.core.policy import PolicyKind
from slipstream.core.request import Pool
from slipstream.settings import settings_of
from vllm_like_node import MODEL, Drafts, VllmLike, vllm_like

CODE = "Write a Python function that reverses a string and returns it."
CHAT = "Hello! How are you today?"
PROFILE: dict[str, Any] = {
    "form": "linear",
    "engine": "vllm",
    "version": "0.32.0",
    "hardware": "none",
    "model": MODEL,
    "date": "2026-11-30",
    "coefficients": {"step_s": 0.02, "token_s": 1e-4, "draft_pass_s": 1e-4, "draft_token_s": 1e-4},
}
"""Drafts are cheap: whatever is accepted, they pay."""
DEAR = PROFILE | {"coefficients": {"step_s": 0.02, "token_s": 1e-4, "draft_pass_s": 0.05, "draft_token_s": 0.05}}


class Files:
    """A configuration and its profile before two nodes."""

    def __init__(self, folder: Path, spec: VllmLike, std: VllmLike) -> None:
        self.path, self.profile = folder / "fleet.yaml", folder / "profile.json"
        self.nodes = [
            {"name": "spec-0", "url": spec.url, "pool": "speculative", "engine": "vllm", "speculator": "draft"},
            {"name": "std-0", "url": std.url, "pool": "standard", "engine": "vllm"},
        ]
        self.measured(PROFILE)

    def measured(self, document: object) -> None:
        self.profile.write_text(json.dumps(document))

    def write(self, policy: str = "predictive", **sections: Any) -> FleetConfig:
        data = {
            "gateway": {"listen": "127.0.0.1:0"},
            "admin": {"listen": "127.0.0.1:0"},
            "profile": "profile.json",
            "routing": {"policy": policy},
            "nodes": self.nodes,
        }
        self.path.write_text(json.dumps(data | sections))  # JSON is YAML
        return load(self.path)


async def went(fleet: Live, text: str, **headers: str) -> tuple[str, str]:
    answer = await fleet.client.chat.completions.with_raw_response.create(
        model=MODEL, messages=[{"role": "user", "content": text}], extra_headers=headers
    )
    return answer.headers["x-slipstream-node"], answer.headers["x-slipstream-reason"]


async def reloaded(fleet: Live) -> dict[str, Any]:
    before = sum(fleet.service.reloads.counts.values())
    fleet.service.reload("a test")
    await eventually(lambda: sum(fleet.service.reloads.counts.values()) > before)
    last: dict[str, Any] = (await fleet.admin("/fleet"))["config"]["last"]
    return last


def shown(what: Any) -> str:
    console = Console(record=True, width=80, color_system=None)
    with console.capture() as captured:
        console.print(what)
    return captured.get()


async def test_a_reload_changes_policy_targets_and_profile_while_requests_run(tmp_path: Path) -> None:
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std:
        files = Files(tmp_path, spec, std)
        async with live(files.write("threshold"), path=files.path) as fleet:
            assert await went(fleet, CHAT) == ("std-0", "below_floor")
            files.write()
            assert (await reloaded(fleet))["sentences"] == ["routing.policy threshold → predictive"]
            assert await went(fleet, CHAT) == ("spec-0", "speculative")
            files.measured(DEAR)
            assert (await reloaded(fleet))["result"] == "applied"
            assert await went(fleet, CODE) == ("std-0", "below_gain")
            files.write("round-robin")
            await reloaded(fleet)
            assert [await went(fleet, CODE) for _ in range(2)] == [("spec-0", "in_turn"), ("std-0", "in_turn")]
            await fleet.drained()
            states = {one["name"]: one["policy"] for one in (await fleet.admin("/fleet"))["nodes"]}
            assert states == {"spec-0": "round-robin", "std-0": "round-robin"}


async def test_what_is_foretold_of_candidates_and_where_a_node_takes_no_more_is_shown(tmp_path: Path) -> None:
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std:
        targets = {"interactive": {"ttft_ms": 500, "tpot_ms": 25}}
        config = Files(tmp_path, spec, std).write(routing={"policy": "predictive", "targets": targets})
        async with live(config) as fleet:
            assert await went(fleet, CODE, **{"x-request-id": "mine"}) == ("spec-0", "speculative")
            (attempt,) = (await fleet.admin("/decisions/mine"))["attempts"]
            foretold = {one["node"]: one["foretold"] for one in attempt["candidates"]}
            assert foretold["std-0"]["tpot_ms"] == pytest.approx(20.1)
            assert foretold["spec-0"]["tpot_ms"] < 10.0
            assert foretold["spec-0"]["worth"] > foretold["std-0"]["worth"]
            assert foretold["spec-0"]["cost"] == 0.0
            text = shown(attempt_report(attempt, ""))
            assert "TTFT TPOT worth cost" in " ".join(text.split())
            assert "20.1" in text
            (node, _) = (await fleet.admin("/fleet"))["nodes"]
            assert (node["policy"], node["ceiling"]) == ("predictive", 8)
            assert node["learned_ceiling"] > 8
            assert f"/{node['learned_ceiling']}" in shown(fleet_report(await fleet.admin("/fleet")))
            async with fleet.session.get(fleet.service.admin_url + "/metrics") as response:
                page = await response.text()
            named = 'slipstream_node_learned_ceiling_sequences{node="spec-0",pool="speculative"}'
            assert f"{named} {float(node['learned_ceiling'])}" in page


def test_a_candidate_beyond_its_forecast_has_dashes_for_figures() -> None:
    row = {"chosen": False, "node": "n", "pool": "standard", "occupancy": 9, "load": 0.5, "reason": None}
    foretold = {"ttft_ms": 40.2, "tpot_ms": 7.34, "worth": 0.714, "cost": 0.0}
    text = shown(candidate_table([row | {"foretold": foretold}, row | {"foretold": None}]))
    assert " ".join(text.split()).endswith(
        "40 7.3 0.71 0.00 could have served too n std 9 50% – – – – could have served too"
    )


async def test_nodes_without_a_profile_that_holds_are_left_to_threshold_and_that_is_said(tmp_path: Path) -> None:
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std:
        files = Files(tmp_path, spec, std)
        files.measured(PROFILE | {"version": "0.11.0"})
        async with live(files.write()) as fleet:
            assert await went(fleet, CHAT) == ("std-0", "below_floor")
            page = await fleet.admin("/fleet")
            assert [one["policy"] for one in page["nodes"]] == ["threshold"] * 2
            (told,) = page["not_foretold"]
            assert (
                "spec-0 and 1 other like it: its calibration is stale, so requests are placed there" in told["sentence"]
            )
            assert "placed there by threshold" in " ".join(shown(fleet_report(page)).split())
            assert told in (await fleet.admin("/advice"))["advice"]


async def test_what_operators_fix_at_run_time_holds(tmp_path: Path) -> None:
    async with (
        vllm_like(Drafts(20, 60)) as spec,
        vllm_like() as std,
        live(Files(tmp_path, spec, std).write()) as fleet,
    ):
        dispatcher, now = fleet.service.dispatcher, 0.0
        for override, reason in (
            (Override(OverrideKind.PIN_CATEGORY, "code", Pool.STANDARD), "pinned"),
            (Override(OverrideKind.SPECULATION, "fleet"), "pinned"),
            (Override(OverrideKind.DRAIN, "spec-0"), "draining"),
        ):
            assert await went(fleet, CODE) == ("spec-0", "speculative")
            dispatcher.override(override, now)
            assert await went(fleet, CODE) == ("std-0", reason)
            dispatcher.clear_override(override.kind, override.subject, now)


FAULTS = [
    (PROFILE | {"form": "table"}, "a table profile needs points"),
    (
        PROFILE | {"form": "table", "points": [{"k": k, "batch_size": 4, "step_ms": 9} for k in (0, 4)]},
        "the profile was measured from batch size 4 to 4 only",
    ),
]


@pytest.mark.parametrize(("document", "said"), FAULTS)
def test_a_profile_that_foretells_nothing_is_refused_before_anything_is_served(
    tmp_path: Path, document: dict[str, Any], said: str
) -> None:
    profile, path = tmp_path / "profile.json", tmp_path / "fleet.yaml"
    profile.write_text(json.dumps(document))
    nodes = [{"name": "n", "url": "http://127.0.0.1:1", "pool": "standard"}]
    path.write_text(json.dumps({"profile": "profile.json", "routing": {"policy": "predictive"}, "nodes": nodes}))
    with pytest.raises(ConfigError, match=said):
        settings_of(load(path))
    checked = CliRunner().invoke(application("config"), ["config", "check", str(path)])
    assert checked.exit_code == 1
    assert f"{profile}: found " in checked.output
    assert said in checked.output
    served = CliRunner().invoke(application("serve"), ["serve", "-c", str(path)])
    assert (served.exit_code, said in served.output) == (1, True)
    path.write_text(json.dumps({"profile": "profile.json", "nodes": nodes}))
    settings_of(load(path))  # its step times are nobody's business there


def test_targets_of_an_embedded_fleet_are_spelled_as_for_bench() -> None:
    sections = sections_of(PolicyKind.PREDICTIVE, Path("p.json"), "ttft:1s,tpot:50")
    targets = {"interactive": {"ttft_ms": 1000.0, "tpot_ms": 50.0}}
    assert sections == {"routing": {"policy": "predictive", "targets": targets}, "profile": "p.json"}
    assert sections_of(PolicyKind.THRESHOLD, None, None) == {"routing": {"policy": "threshold"}}


def test_up_asks_for_a_profile_that_can_be_read(tmp_path: Path) -> None:
    without = CliRunner().invoke(application("up"), ["up", "--policy", "predictive"])
    assert (without.exit_code, "--profile" in without.output) == (2, True)
    for words in (["--policy", "round-robin", "--goodput", "tpot:9"], ["--policy", "predictive", "--goodput", "tpot"]):
        told = CliRunner().invoke(application("up"), ["up", "--profile", "p.json", *words])
        assert (told.exit_code, "--goodput" in told.output) == (2, True)
    missing = ["up", "--policy", "predictive", "--profile", str(tmp_path / "none.json")]
    refused = CliRunner().invoke(application("up"), missing)
    assert refused.exit_code == 1
    assert "none.json: found no usable profile; allowed: a file that can be read" in " ".join(refused.output.split())
