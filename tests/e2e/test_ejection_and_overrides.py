"""The whole service: a node that answers its poller and fails its requests, and a fleet that operators change."""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import dataclass
from typing import Any

import openai

from live_service import COMMAND_ENVIRONMENT, Live, command, eventually, eventually_async, live
from scripted_node import Call, answer
from slipstream.config import FleetConfig
from slipstream.core.request import Pool
from slipstream.settings import settings_of
from vllm_like_node import MODEL, Drafts, VllmLike, vllm_like

CODE = "Write a Python function that reverses a string and returns it."


@dataclass
class Failing(VllmLike):
    """``failing``: completions are answered with 500, while its metrics are as ever."""

    failing: bool = False

    async def __call__(self, call: Call) -> None:
        if self.failing and call.target == "/v1/chat/completions":
            await answer(500, body=b'{"error": {"message": "CUDA error"}}')(call)
        else:
            await super().__call__(call)


def config_of(**nodes: tuple[str, str]) -> FleetConfig:
    """Nodes by name: url and pool."""
    return FleetConfig.model_validate(
        {
            "gateway": {"listen": "127.0.0.1:0"},
            "admin": {"listen": "127.0.0.1:0"},
            "control": {"poll_interval_s": 0.05, "stale_after_s": 5},
            "nodes": [{"name": name, "url": url, "pool": pool} for name, (url, pool) in nodes.items()],
        }
    )


async def ask(fleet: Live) -> tuple[str, str]:
    """Node and reason of one request; the node that failed it, if it did."""
    try:
        raw = await fleet.client.chat.completions.with_raw_response.create(
            model=MODEL, messages=[{"role": "user", "content": CODE}]
        )
        headers: Any = raw.headers
    except openai.InternalServerError as error:
        headers = error.response.headers
    return headers["x-slipstream-node"], headers["x-slipstream-reason"]


async def run(fleet: Live, *arguments: str) -> tuple[int, str]:
    """The command as a process of its own, with what it says."""
    process = await asyncio.create_subprocess_exec(
        *command(*arguments, "--url", fleet.service.admin_url),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=COMMAND_ENVIRONMENT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


async def metric(fleet: Live, series: str) -> float:
    async with fleet.session.get(fleet.service.admin_url + "/metrics") as response:
        page = await response.text()
    return next(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(series))


async def test_a_node_whose_requests_fail_is_ejected_though_its_metrics_answer_and_readmitted_when_it_works() -> None:
    async with (
        vllm_like(kind=Failing) as bad,
        vllm_like() as good,
        live(config_of(bad=(bad.url, "standard"), good=(good.url, "standard"))) as fleet,
    ):
        assert isinstance(bad, Failing)
        bad.failing = True

        async def ejected() -> bool:
            await ask(fleet)
            return fleet.node("bad").state == "ejected"

        await eventually_async(ejected)
        assert fleet.node("bad").healthy
        shown = await fleet.shown("bad")
        assert (shown["state"], shown["closed"], shown["eligible"]) == ("ejected", "unhealthy", False)
        assert "its requests fail" in shown["error"]
        assert await metric(fleet, 'slipstream_node_ejections_total{node="bad"') == 1.0
        assert await metric(fleet, 'slipstream_node_circuit_state{node="bad"') > 0.0
        advice = (await fleet.admin("/advice"))["advice"]
        assert [(one["code"], one["subject"]) for one in advice] == [("node_ejected", "bad")]
        assert (await run(fleet, "status"))[1].count("ejected") == 1
        bad.failing = False

        async def readmitted() -> bool:
            await ask(fleet)
            return fleet.node("bad").state == "ready"

        await eventually_async(readmitted)
        assert await metric(fleet, 'slipstream_node_circuit_state{node="bad"') == 0.0


async def test_of_two_failing_nodes_one_stays_in_so_that_clients_see_the_nodes_own_error() -> None:
    async with (
        vllm_like(kind=Failing) as one,
        vllm_like(kind=Failing) as two,
        live(config_of(one=(one.url, "standard"), two=(two.url, "standard"))) as fleet,
    ):
        assert isinstance(one, Failing)
        assert isinstance(two, Failing)
        one.failing = two.failing = True
        for _ in range(20):
            await ask(fleet)
        fewest, most = sorted(fleet.node(name).circuit.ejections for name in ("one", "two"))
        assert fewest == 0
        assert most >= 1
        assert all(placement.outcome is not None for placement in fleet.placements())
        assert {placement.outcome.status for placement in fleet.placements() if placement.outcome} == {500}


async def test_a_drained_node_finishes_what_it_has_while_the_command_waits() -> None:
    async with (
        vllm_like(Drafts(16, 48)) as spec,
        vllm_like() as std,
        live(config_of(spec=(spec.url, "speculative"), std=(std.url, "standard"))) as fleet,
    ):
        assert await ask(fleet) == ("spec", "speculative")
        spec.gate.clear()
        running = asyncio.create_task(ask(fleet))
        await eventually(lambda: spec.in_flight == 1)
        waiting = asyncio.create_task(run(fleet, "override", "drain", "spec", "--wait"))
        await eventually(lambda: fleet.node("spec").state == "draining")
        assert await ask(fleet) == ("std", "draining")
        assert not waiting.done()
        spec.gate.set()
        assert await running == ("spec", "speculative")
        code, said = await waiting
        assert code == 0
        assert "spec has drained: nothing of this gateway runs on it" in said
        assert (await run(fleet, "override", "resume", "spec"))[0] == 0
        assert await ask(fleet) == ("spec", "speculative")


async def test_one_switch_turns_speculation_off_and_on_again() -> None:
    async with (
        vllm_like(Drafts(16, 48)) as spec,
        vllm_like() as std,
        live(config_of(spec=(spec.url, "speculative"), std=(std.url, "standard"))) as fleet,
    ):
        assert (await run(fleet, "override", "speculation", "off", "--note", "incident"))[0] == 0
        assert {await ask(fleet) for _ in range(5)} == {("std", "pinned")}
        request_id = fleet.placements()[-1].request_id
        _, told = await run(fleet, "explain", request_id)
        assert "fixed by override speculation fleet" in " ".join(told.split())
        assert (await run(fleet, "override", "speculation", "on"))[0] == 0
        assert await ask(fleet) == ("spec", "speculative")
        assert {pool for _, pool, _ in fleet.service.dispatcher.requests} == {Pool.STANDARD, Pool.SPECULATIVE}


async def test_overrides_outlast_a_reload_and_hold_for_nodes_that_it_adds() -> None:
    async with vllm_like(Drafts(16, 48)) as spec, vllm_like(Drafts(16, 48)) as late, vllm_like() as std:
        nodes = {"spec": (spec.url, "speculative"), "std": (std.url, "standard")}
        async with live(config_of(**nodes)) as fleet:
            assert (await run(fleet, "override", "ceiling", "3", "--pool", "speculative"))[0] == 0
            assert (await run(fleet, "override", "drain", "spec"))[0] == 0
            config = config_of(**nodes, late=(late.url, "speculative"))
            pools = config.pools.model_copy(
                update={"speculative": config.pools.speculative.model_copy(update={"ceiling": 20})}
            )
            fleet.service.apply(settings_of(config.model_copy(update={"pools": pools})))
            await eventually(lambda: fleet.node("late").usable)
            assert [fleet.node(name).ceiling for name in ("spec", "late")] == [3, 3]
            assert fleet.node("spec").state == "draining"
            assert await ask(fleet) == ("late", "speculative")
            assert (await run(fleet, "override", "clear", "--all"))[0] == 0
            assert [fleet.node(name).ceiling for name in ("spec", "late")] == [20, 20]
            assert fleet.node("spec").state == "ready"


async def test_acceptance_by_occupancy_is_seen_through_the_service() -> None:
    async with (
        vllm_like(Drafts(16, 48)) as spec,
        vllm_like() as std,
        live(config_of(spec=(spec.url, "speculative"), std=(std.url, "standard"))) as fleet,
    ):
        spec.gate.clear()
        asked = [asyncio.create_task(ask(fleet)) for _ in range(4)]
        await eventually(lambda: spec.in_flight == 4)
        spec.gate.set()
        await asyncio.gather(*asked)
        groups = (await fleet.admin("/occupancy"))["groups"]
        (buckets,) = [group["buckets"] for group in groups if group["pool"] == "speculative"]
        assert [(bucket["least"], bucket["requests"], round(bucket["tau"], 9)) for bucket in buckets] == [
            (1, 1, 4.0),
            (2, 1, 4.0),
            (3, 2, 4.0),
        ]
