"""Between two polls the ledger alone keeps a speculative node at its ceiling; the node itself counts."""

from __future__ import annotations

import asyncio

from openai.types.chat import ChatCompletion

from live_service import Live, eventually, live
from slipstream.config import FleetConfig
from vllm_like_node import MODEL, Drafts, VllmLike, vllm_like

CEILING = 8
BURST = 40
CODE = "Write a Python function that reverses a string and returns it."


def config_of(spec: VllmLike, std: VllmLike) -> FleetConfig:
    # The speculative node last: the control loop's phases then leave at least 3 s from ready to its next poll.
    return FleetConfig.model_validate(
        {
            "gateway": {"listen": "127.0.0.1:0"},
            "admin": {"listen": "127.0.0.1:0"},
            "control": {"poll_interval_s": 5.0, "stale_after_s": 60.0},
            "nodes": [
                {"name": "std-0", "url": std.url, "pool": "standard", "engine": "vllm"},
                {"name": "spec-0", "url": spec.url, "pool": "speculative", "engine": "vllm"},
            ],
        }
    )


def burst(fleet: Live) -> list[asyncio.Task[ChatCompletion]]:
    return [
        asyncio.create_task(
            fleet.client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": CODE}])
        )
        for _ in range(BURST)
    ]


async def test_a_burst_between_two_polls_never_puts_more_than_the_ceiling_on_the_speculative_node() -> None:
    async with (
        vllm_like(Drafts(steps=20, accepted=60)) as spec,
        vllm_like() as std,
        live(config_of(spec, std)) as fleet,
    ):
        spec.gate.clear()
        std.gate.clear()
        polls = spec.asked["/metrics"]
        first = burst(fleet)
        await eventually(lambda: spec.in_flight + std.in_flight == BURST)
        assert (spec.in_flight, std.in_flight) == (CEILING, BURST - CEILING)
        assert spec.asked["/metrics"] == polls, "a poll came in between: nothing was shown"
        shown = await fleet.shown("spec-0")
        assert (shown["state"], shown["own"], shown["capacity_left"]) == ("saturated", CEILING, 0)
        assert shown["saturation_events"] == 1
        # A second one while places become free: what leaves makes room for as many, and no more.
        spec.gate.set()
        second = burst(fleet)
        await eventually(lambda: spec.finished >= CEILING)
        std.gate.set()
        answers = await asyncio.gather(*first, *second)
        await fleet.drained()
        assert {answer.choices[0].message.content for answer in answers} == {"Yes."}
        assert spec.peak == CEILING
        assert spec.finished + std.finished == 2 * BURST
        assert spec.finished > CEILING
        assert (await fleet.shown("spec-0"))["capacity_left"] == CEILING


async def test_two_speculative_nodes_share_a_burst_evenly() -> None:
    async with vllm_like(Drafts(20, 60)) as one, vllm_like(Drafts(20, 60)) as two, vllm_like() as std:
        nodes = [
            {"name": name, "url": node.url, "pool": pool, "engine": "vllm"}
            for name, node, pool in (
                ("spec-0", one, "speculative"),
                ("spec-1", two, "speculative"),
                ("std-0", std, "standard"),
            )
        ]
        config = FleetConfig.model_validate(
            {"gateway": {"listen": "127.0.0.1:0"}, "admin": {"listen": "127.0.0.1:0"}, "nodes": nodes}
        )
        async with live(config) as fleet:
            for node in (one, two, std):
                node.gate.clear()
            requests = burst(fleet)
            await eventually(lambda: one.in_flight + two.in_flight + std.in_flight == BURST)
            assert (one.peak, two.peak) == (CEILING, CEILING)
            for node in (one, two, std):
                node.gate.set()
            await asyncio.gather(*requests)
            await fleet.drained()
            assert max(one.peak, two.peak) == CEILING
