"""A gateway before nodes that were calibrated: what it learns of them, and what it does when they change."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from emulated_client import draft
from live_service import Live, eventually, live
from slipstream.cli import application
from slipstream.config import FleetConfig
from slipstream.core.advice import advise
from slipstream.emulate import EmulatedNode, emulated, vllm
from slipstream.emulate.alphas import Alphas
from slipstream.settings import settings_of

MODEL, OLD_VERSION = "emulated", vllm.VERSION
AT_ONCE = 8
ANSWER_TOKENS = 11
"""One from the prompt, then two steps of five."""
FAST_S, SLOW_S = 0.004, 0.08
PROFILE = {
    "engine": "vllm", "version": vllm.VERSION, "hardware": "none", "model": MODEL, "date": "2026-11-30",
    "speculators": ["draft-k4"], "system_fingerprints": [vllm.FINGERPRINT],
    "times": [
        {"k": 4, "batch_size": batch_size, "tpot_ms": 2.0, "interval_ms": [0.4, 8.0]} for batch_size in (1, 4, 16)
    ],
}  # fmt: skip
"""Wide enough for a busy machine: a slow node's tokens take 16 ms."""


def profile(folder: Path, **other: Any) -> Path:
    path = folder / f"{len(list(folder.iterdir()))}.json"
    path.write_text(json.dumps(PROFILE | other))
    return path


def config_of(url: str, file: Path) -> FleetConfig:
    node = {"name": "spec-0", "url": url, "pool": "speculative", "ceiling": 12, "instrument": "usage"}
    return FleetConfig.model_validate(
        {
            "gateway": {"listen": "127.0.0.1:0"},
            "admin": {"listen": "127.0.0.1:0"},
            "profile": str(file),
            "calibration": {"stale_ceiling": "default"},
            "nodes": [node],
        }
    )


def node_of(step_s: float, port: int = 0) -> Any:
    settings = draft(step_s=step_s, ttft_s=0.0, output_tokens=ANSWER_TOKENS, slots=16, alphas=Alphas(1.0))
    return emulated("vllm", settings, port=port)


async def traffic(fleet: Live, requests: int = 60) -> str:
    """Streamed requests, always so many at once; the id of the last one."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hello!"}], "stream": True}
    left = iter(range(requests))
    last = ""

    async def client() -> None:
        nonlocal last
        for _ in left:
            async with fleet.session.post(f"{fleet.base_url}/chat/completions", json=body) as response:
                assert response.status == 200, await response.text()
                await response.read()
                last = response.headers["x-request-id"]

    await asyncio.gather(*(client() for _ in range(AT_ONCE)))
    await fleet.service.calibrations.round()
    return last


async def command(fleet: Live, *arguments: str) -> str:
    runner = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"})
    words = [*arguments, "--url", fleet.service.admin_url]
    shown = await asyncio.to_thread(runner.invoke, application(arguments[0]), words)
    assert shown.exit_code == 0, shown.output
    assert max(map(len, shown.stdout.splitlines())) <= 80
    return shown.stdout


async def replaced(fleet: Live, node: EmulatedNode) -> int:
    """Stop a node and wait until that is known; its port."""
    await node.close()
    await eventually(lambda: not fleet.node("spec-0").healthy)
    port = urlsplit(node.url).port
    assert port is not None
    return port


async def test_a_node_that_gets_slower_or_changes_loses_its_calibration_until_it_has_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node_of(FAST_S) as node, live(config_of(node.url, profile(tmp_path))) as fleet:
        state, dispatcher = fleet.node("spec-0"), fleet.service.dispatcher
        await fleet.service.calibrations.round()
        await traffic(fleet)
        shown = await fleet.shown("spec-0")
        assert (shown["calibration_stale"], state.ceiling) == (False, 12)
        assert state.recheck.fingerprint.value == vllm.FINGERPRINT
        (learned,) = [one for one in shown["learned"] if one["least"] == 5]
        assert learned["profile_tpot_ms"] == pytest.approx(2.0)
        assert learned["requests"] > 30
        assert learned["ratio"] == pytest.approx(learned["tpot_ms"] / 2.0)
        table = await command(fleet, "status", "--learned")
        assert "5-8" in table
        assert "profile" in table

        async with node_of(SLOW_S, await replaced(fleet, node)) as slower:
            await fleet.service.ready(20.0)
            for _ in range(8):  # what came before the restart was seen is forgotten with what was before it
                await traffic(fleet, 40)
                if state.recheck.stale:
                    break
            (found,) = advise(dispatcher, monotonic())
            assert "no longer holds: time per token at 5 to 8 sequences is " in found.sentence
            assert "Its ceiling is 8 for as long." in found.sentence
            assert ((await fleet.shown("spec-0"))["ceiling_fallen_back"], state.ceiling) == (True, 8)
            last = await traffic(fleet, 1)
            assert "ceiling fell back to 8" in " ".join((await command(fleet, "explain", last)).split())
            port = await replaced(fleet, slower)

        monkeypatch.setattr(vllm, "VERSION", "9.9.9")
        async with node_of(FAST_S, port):
            await fleet.service.ready(20.0)
            await fleet.service.calibrations.round()
            (found,) = advise(dispatcher, monotonic())
            assert f"is older than the fleet: version {OLD_VERSION} became 9.9.9. " in found.sentence
            assert state.ceiling == 8

            measured_anew = config_of(node.url, profile(tmp_path, version="9.9.9"))
            fleet.service.apply(settings_of(measured_anew))
            await fleet.service.calibrations.round()
            assert (await fleet.admin("/advice"))["advice"] == []
            assert state.ceiling == 12
