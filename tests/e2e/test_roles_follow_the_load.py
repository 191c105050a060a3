"""Real engines that lay their draft down in a surge and take it up again: nothing fails and nothing is cut."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from live_service import Live, eventually, live
from slipstream.cli.local_fleet import ROLES, local_nodes
from slipstream.core.request import Pool
from slipstream.core.roles import RoleReason
from slipstream.embedded.model import find_model
from slipstream.service import loopback_config

WITHIN_S = 60.0
SOON = {"high_for_s": 0.5, "low_for_s": 0.5, "minimum_dwell_s": 1.0, "low_watermark": 0.3}


def resident_bytes() -> int:
    """Of all engines that this process has started: its children are their keepers."""
    found = 0
    for child in Path("/proc/self/task").iterdir():
        for keeper in (child / "children").read_text().split():
            for engine in Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split():
                status = Path(f"/proc/{engine}/status").read_text()
                found += 1024 * int(status.split("VmRSS:")[1].split()[0])
    return found


async def ask_again_and_again(fleet: Live, over: asyncio.Event, endings: list[str | None]) -> None:
    model = fleet.node("spec-0").models[0]
    while not over.is_set():
        stream = await fleet.client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "Say hello."}], max_tokens=8, stream=True
        )
        chunks = [chunk async for chunk in stream if chunk.choices]
        endings.append(chunks[-1].choices[0].finish_reason)


@pytest.mark.engine
async def test_in_a_surge_the_draft_is_unloaded_and_after_it_loaded_again_and_no_stream_is_cut() -> None:
    draft = f"draft:{find_model()}"
    async with local_nodes(speculator=draft, slots=2) as nodes:
        config = loopback_config(
            nodes,
            roles={**ROLES, **SOON},
            control={"stale_after_s": 30.0},  # on a busy machine agents may be late
            gateway={"listen": "127.0.0.1:0", "queue": {"timeout_s": WITHIN_S}},
        )
        async with live(config, 60.0) as fleet:
            node, roles = fleet.node("spec-0"), fleet.service.roles
            before = resident_bytes()
            over, endings = asyncio.Event(), list[str | None]()
            async with asyncio.TaskGroup() as clients:
                for _ in range(6):
                    clients.create_task(ask_again_and_again(fleet, over, endings))
                await eventually(lambda: node.pool is Pool.STANDARD and node.state in ("ready", "full"), WITHIN_S)
                assert before - resident_bytes() > 0.5 * find_model().stat().st_size
                over.set()
            assert len(endings) >= 6
            assert set(endings) <= {"length", "stop"}
            await eventually(
                lambda: any(one.pool is Pool.SPECULATIVE for one in fleet.service.dispatcher.fleet.nodes()), WITHIN_S
            )
            await eventually(lambda: roles.running is None, WITHIN_S)
            first, second = list(roles.changes)[:2]
            assert (first.node, first.pool, first.ok) == ("spec-0", Pool.STANDARD, True)
            assert (second.pool, second.ok) == (Pool.SPECULATIVE, True)
            assert first.verdict is not None
            assert first.verdict.reason is RoleReason.SURGE
