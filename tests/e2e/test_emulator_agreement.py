"""The simulator and an emulated node run one engine model: of one plan on one profile they say the same.

Nothing waits in the simulated gateway, since there is none before the node; all drafts are accepted, since chance would
need more requests than a test has time for (`python -m benchmarks emulated-node` takes that time).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from slipstream.core.latency import Latency
from slipstream.core.node import SpeculatorKind
from slipstream.core.request import Pool
from slipstream.costmodel.profiles import LinearCosts, Provenance
from slipstream.costmodel.steps import step_rows
from slipstream.emulate import NodeSettings, Pace, emulated
from slipstream.emulate.alphas import Alphas
from slipstream.enginemodel.settings import EngineSettings, Speculation
from slipstream.load import Level, PlannedRequest, drive
from slipstream.sim.scenario import (
    Category,
    Equipment,
    GatewaySettings,
    NodeGroup,
    Policy,
    PolicyKind,
    Scenario,
)
from slipstream.sim.simulate import simulate
from slipstream.workload.arrivals import PoissonArrivals
from slipstream.workload.lengths import UniformLengths
from slipstream.workload.mix import CategoryTraffic, Mix, make_plan
from slipstream.workload.plan import Plan

ROWS = step_rows(
    LinearCosts(
        Provenance("made", "1", "none", "m", "2026"),
        step_s=0.1,
        token_s=0.001,
        draft_pass_s=0.01,
        prefill_token_s=0.0006,
    )
)
SLOTS, K = 64, 3
ATTEMPTS = 3
PLAN = make_plan(
    Mix(
        arrivals=PoissonArrivals(11.0),
        categories=(CategoryTraffic("chat", 1.0, UniformLengths(50, 150), UniformLengths(3, 10)),),
        models=(("m", 1.0),),
        duration_s=5.0,
    ),
    seed=1,
)


def simulated(kind: PolicyKind, plan: Plan) -> tuple[float, float]:
    """Mean TTFT and TPOT in virtual time, in seconds."""
    standard = EngineSettings(slots=SLOTS)
    speculative = EngineSettings(slots=SLOTS, speculation=Speculation(k=K))
    group = NodeGroup("n", 1, Pool.STANDARD, "m", Equipment(standard, ROWS), Equipment(speculative, ROWS))
    scenario = Scenario(
        name="agreement",
        groups=(group,),
        categories=(Category("chat", (1.0,) * K),),
        plan_of=lambda _seed: plan,
        policies=(),
        targets={},
        seeds=(1,),
        window_s=plan.duration_s,
        gateway=GatewaySettings(forward_s=0.0),
    )
    run = simulate(scenario, Policy("alone", kind), 1)
    tpot = (run.ended_s - run.first_token_s) / (plan.output_tokens - 1)
    return float(np.mean(run.first_token_s - plan.arrival_s)), float(np.mean(tpot))


async def served(settings: NodeSettings) -> tuple[Plan, list[Latency]]:
    """The plan's requests over sockets, as a client sees them; and the plan as it came to the node, since on a busy
    machine requests come late, and which step they still catch makes more of a difference than all else.
    """
    async with emulated("vllm", settings) as node:
        latencies = await asyncio.gather(*(send(f"{node.url}/v1", row) for row in range(len(PLAN))))
        came = list(node.record.requests)
    plan = replace(
        PLAN,
        arrival_s=np.array([seen.at_s for seen in came]),
        prompt_tokens=np.array([seen.prompt_tokens for seen in came]),
        output_tokens=np.array([seen.output_tokens for seen in came]),
    )
    return plan, latencies


async def send(url: str, row: int) -> Latency:
    prompt = "." * (4 * int(PLAN.prompt_tokens[row]) - 4)
    tokens = int(PLAN.output_tokens[row])
    request = PlannedRequest("m", ({"role": "user", "content": prompt},), tokens, fields={"ignore_eos": True})
    await asyncio.sleep(float(PLAN.arrival_s[row]))
    (result,) = await drive(url, [request], [Level(1, 1)])
    assert (result.output_tokens, result.prompt_tokens) == (tokens, PLAN.prompt_tokens[row])
    assert result.latency is not None
    return result.latency


def means(latencies: Sequence[Latency]) -> tuple[float, float]:
    return (
        float(np.mean([one.ttft_s for one in latencies if one.ttft_s is not None])),
        float(np.mean([one.tpot_s for one in latencies if one.tpot_s is not None])),
    )


async def differences() -> list[float]:
    """By how much what was served is more than what is simulated, as a share: TTFT and TPOT, of both kinds of node."""
    standard = NodeSettings(model="m", slots=SLOTS, pace=Pace(ROWS))
    speculative = replace(standard, alphas=Alphas(1.0), speculator=SpeculatorKind.DRAFT, k=K)
    (as_standard, of_standard), (as_speculative, of_speculative) = await asyncio.gather(
        served(standard), served(speculative)
    )
    real = means(of_standard) + means(of_speculative)
    virtual = simulated(PolicyKind.ALL_STANDARD, as_standard) + simulated(PolicyKind.ALL_SPECULATIVE, as_speculative)
    return [one / other - 1.0 for one, other in zip(real, virtual, strict=True)]


async def test_simulated_and_served_latencies_agree_within_5_percent() -> None:
    """A machine that stands still for a while makes one run late; models that differ would differ in each."""
    found: list[list[float]] = []
    while len(found) < ATTEMPTS and not (found and max(map(abs, found[-1])) < 0.05):
        found.append(await differences())
    assert max(map(abs, found[-1])) < 0.05, found
