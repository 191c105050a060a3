"""A node paced by the engine model: how late its chunks are, and whether the simulator says the same of it.

`python -m benchmarks emulated-node`. Lateness is from when a step was due to when the kernel had what it brought, over
all steps; a process on another processor reads the streams, which the node does not wake. The agreement is of one plan,
over sockets in real time and in `sim`. On a machine that has other work, `chrt -f 10 python -m benchmarks
emulated-node` measures as on a quiet one.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
from functools import partial
from os import getloadavg
from typing import TypeAlias

import numpy as np
import uvloop

from benchmarks.emulate import read_by_another
from slipstream.core.node import SpeculatorKind
from slipstream.core.request import Pool
from slipstream.costmodel.catalogue import engine_named, hardware_named, model_named
from slipstream.costmodel.costs import RooflineCosts
from slipstream.costmodel.profiles import LinearCosts, Provenance
from slipstream.costmodel.roofline import Deployment
from slipstream.costmodel.speculator import HEADS
from slipstream.costmodel.steps import step_rows
from slipstream.emulate import NodeSettings, Pace, emulated
from slipstream.emulate.alphas import Alphas
from slipstream.enginemodel.acceptance import survival_of
from slipstream.enginemodel.settings import EngineSettings, Speculation
from slipstream.enginemodel.step_times import StepRows
from slipstream.load import Level, PlannedRequest, drive
from slipstream.sim.scenario import Category, Equipment, GatewaySettings, NodeGroup, Policy, PolicyKind, Scenario
from slipstream.sim.simulate import simulate
from slipstream.workload.arrivals import PoissonArrivals
from slipstream.workload.lengths import ExponentialLengths, LognormalLengths
from slipstream.workload.mix import CategoryTraffic, Mix, make_plan
from slipstream.workload.plan import Plan

COSTS = LinearCosts(Provenance("made", "1", "none", "none", "2026"), step_s=0.025, token_s=1e-6)
"""For lateness: every 25 ms all streams get a chunk, however many there are."""
SLOTS, K, ALPHA, SPREAD = 64, 4, 0.7, 0.1
SEEDS = range(1, 11)
"""Of the simulated runs: what is accepted is chance, and so a little different in each."""


async def measure(streams: int, tokens: int, speculator: SpeculatorKind | None) -> None:
    """Serve them and print how late the node was."""
    settings = NodeSettings(slots=streams, speculator=speculator, pace=Pace(step_rows(COSTS)))
    async with emulated("vllm", settings) as node:
        read = await read_by_another(node, streams, tokens)
        told = node.engine.lateness.as_json()
    drafting = "" if speculator is None else ", drafting"
    print(
        f"{streams} streams{drafting}, at most {node.engine.peak_running} at once: {read.events} events in "
        f"{read.wall_s:.1f} s, {1e6 * read.cpu_s / read.events:.1f} us of CPU each; late by "
        f"{told['p50_ms']:.1f} ms at the median, {told['p99_ms']:.1f} ms at the 99th percentile, "
        f"{told['max_ms']:.1f} ms at most; the machine's load {getloadavg()[0]:.1f}"
    )


Seen: TypeAlias = tuple[float | None, float | None]
"""TTFT and TPOT of a request, in seconds."""


def play(url: str, plan: Plan, latencies: multiprocessing.SimpleQueue[list[Seen]]) -> None:
    """Send each request of a plan when it arrives."""

    async def send(row: int) -> Seen:
        prompt = "." * (4 * int(plan.prompt_tokens[row]) - 4)
        tokens = int(plan.output_tokens[row])
        request = PlannedRequest("m", ({"role": "user", "content": prompt},), tokens, fields={"ignore_eos": True})
        await asyncio.sleep(float(plan.arrival_s[row]))
        (result,) = await drive(url, [request], [Level(1, 1)])
        assert result.latency is not None, result.error
        return result.latency.ttft_s, result.latency.tpot_s

    async def send_all() -> list[Seen]:
        return await asyncio.gather(*(send(row) for row in range(len(plan))))

    latencies.put(uvloop.run(send_all()))


async def served(settings: NodeSettings, plan: Plan) -> list[Seen]:
    """What a client in another process sees of the node."""
    context = multiprocessing.get_context("spawn")
    latencies: multiprocessing.SimpleQueue[list[Seen]] = context.SimpleQueue()
    async with emulated("vllm", settings) as node:
        client = context.Process(target=play, args=(f"{node.url}/v1", plan, latencies))
        client.start()
        found = await asyncio.to_thread(latencies.get)
        client.join()
    return found


def simulated(
    plan: Plan, standard: StepRows, speculative: StepRows, kind: PolicyKind, seed: int
) -> tuple[float, float]:
    """Mean TTFT and TPOT in virtual time, in seconds."""
    group = NodeGroup(
        "n",
        1,
        Pool.STANDARD,
        "m",
        Equipment(EngineSettings(slots=SLOTS), standard),
        Equipment(EngineSettings(slots=SLOTS, speculation=Speculation(k=K)), speculative),
    )
    scenario = Scenario(
        name="agreement",
        groups=(group,),
        categories=(Category("chat", survival_of(ALPHA, K), SPREAD),),
        plan_of=lambda _seed: plan,
        policies=(),
        targets={},
        seeds=tuple(SEEDS),
        window_s=plan.duration_s,
        gateway=GatewaySettings(forward_s=0.0),
    )
    run = simulate(scenario, Policy("alone", kind), seed)
    several = plan.output_tokens > 1
    tpot = (run.ended_s - run.first_token_s)[several] / (plan.output_tokens[several] - 1)
    return float(np.mean(run.first_token_s - plan.arrival_s)), float(np.mean(tpot))


def agree(seconds: float) -> None:
    """One plan on one profile, by an emulated node and by the simulator."""
    deployment = Deployment(model_named("Llama-3.1-8B"), hardware_named("A100"), engine_named("vllm"))
    standard = step_rows(deployment)
    speculative = step_rows(RooflineCosts(deployment, HEADS["eagle3"](deployment.model)))
    traffic = CategoryTraffic("chat", 1.0, LognormalLengths(800.0, 2000.0), ExponentialLengths(150.0))
    plan = make_plan(Mix(PoissonArrivals(10.0), (traffic,), (("m", 1.0),), seconds), 1)
    for name, kind, rows, speculator in (
        ("standard", PolicyKind.ALL_STANDARD, standard, None),
        ("speculative", PolicyKind.ALL_SPECULATIVE, speculative, SpeculatorKind.DRAFT),
    ):
        settings = NodeSettings(
            model="m", slots=SLOTS, pace=Pace(rows), alphas=Alphas(ALPHA, spread=SPREAD), speculator=speculator, k=K
        )
        found = uvloop.run(served(settings, plan))
        in_time = partial(simulated, plan, standard, speculative, kind)
        means = np.mean([in_time(seed) for seed in SEEDS], axis=0)
        for what, virtual, real in (
            ("TTFT", means[0], np.mean([ttft for ttft, _ in found if ttft is not None])),
            ("TPOT", means[1], np.mean([tpot for _, tpot in found if tpot is not None])),
        ):
            print(
                f"{name}, {len(plan)} requests: mean {what} {1e3 * real:.2f} ms served, {1e3 * virtual:.2f} ms "
                f"simulated: {real / virtual - 1.0:+.1%}"
            )


def main() -> None:
    """Measure 200 and 500 streams, then compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    for streams in (200, 500):
        for speculator in (None, SpeculatorKind.DRAFT):
            uvloop.run(measure(streams, options.tokens, speculator))
    agree(options.seconds)


if __name__ == "__main__":
    main()
