"""A category routed away is still measured, so that it can come back."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from live_service import Live, live
from slipstream.config import FleetConfig
from slipstream.core.policy import Reason
from vllm_like_node import MODEL, Drafts, VllmLike, vllm_like

CHAT = "Hello! How are you today?"
EVERY = 5


def config_of(spec: VllmLike, std: VllmLike) -> FleetConfig:
    return FleetConfig.model_validate(
        {
            "gateway": {"listen": "127.0.0.1:0"},
            "admin": {"listen": "127.0.0.1:0"},
            "routing": {"probe_share": 1 / EVERY, "probe_interval_s": 3600.0},
            "nodes": [
                {"name": "spec-0", "url": spec.url, "pool": "speculative", "engine": "vllm"},
                {"name": "std-0", "url": std.url, "pool": "standard", "engine": "vllm"},
            ],
        }
    )


async def chat(fleet: Live, count: int = 1) -> None:
    await asyncio.gather(
        *(
            fleet.client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": CHAT}])
            for _ in range(count)
        )
    )


def reasons(fleet: Live) -> Counter[Reason]:
    return Counter(placement.decision.reason for placement in fleet.placements())


async def test_a_category_below_the_floor_is_probed_and_stays_there_while_it_drafts_badly() -> None:
    async with (
        vllm_like(Drafts(steps=40, accepted=20)) as spec,
        vllm_like() as std,
        live(config_of(spec, std)) as fleet,
    ):
        for _ in range(12 * EVERY):
            await chat(fleet)
        await fleet.drained()
        assert reasons(fleet) == {Reason.PROBE: 12, Reason.BELOW_FLOOR: 12 * (EVERY - 1)}
        assert spec.finished == 12
        category = await fleet.category("chat")
        assert (category["evidence_requests"], category["drafted"], category["accepted"]) == (12, 1920, 240)
        assert category["tau"] == 1.5
        assert category["alpha"] == pytest.approx(0.336, abs=0.001)  # 1 + α + α² + α³ + α⁴ = 1.5
        assert (await fleet.admin("/advice"))["advice"] == []


async def test_a_category_whose_probes_draft_well_comes_back() -> None:
    async with (
        vllm_like(Drafts(steps=14, accepted=50)) as spec,
        vllm_like() as std,
        live(config_of(spec, std)) as fleet,
    ):
        while not reasons(fleet)[Reason.SPECULATIVE]:
            assert reasons(fleet)[Reason.PROBE] <= 11, "ten measured requests outweigh the prior"
            await chat(fleet)
        await fleet.drained()
        assert reasons(fleet)[Reason.PROBE] >= 10
        assert (await fleet.category("chat"))["alpha"] > 0.6


async def test_at_most_one_probe_of_a_category_is_in_flight() -> None:
    async with (
        vllm_like(Drafts(steps=40, accepted=20)) as spec,
        vllm_like() as std,
        live(config_of(spec, std)) as fleet,
    ):
        spec.gate.clear()
        waiting = asyncio.create_task(chat(fleet, 8 * EVERY))
        async with asyncio.timeout(20):
            while spec.in_flight + std.finished < 8 * EVERY:
                await asyncio.sleep(0.01)
        assert (spec.in_flight, reasons(fleet)[Reason.PROBE]) == (1, 1)
        spec.gate.set()
        await waiting
        await chat(fleet)  # so many are due since that the next is a probe
        assert reasons(fleet)[Reason.PROBE] == 2
        assert spec.peak == 1
