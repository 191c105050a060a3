"""Simulated requests per second of one core: examples/fleet-16.yaml under each of its policies; and vllm-sr-sim.

python -m benchmarks.simulator [REQUESTS]

vllm-sr-sim gets the same requests on as many GPUs, without steps and without speculation: it knows neither. The Python
that VLLM_SR_SIM_PYTHON names runs it, into which it was installed (`pip install vllm-sr-sim`); so it shares no
dependencies with us. Each run has a process of its own, since memory is told for a whole process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from time import process_time

import numpy as np

from slipstream.scenarios import read_scenario
from slipstream.sim.scenario import PolicyKind, Scenario
from slipstream.sim.simulate import simulate
from slipstream.workload.plan import Plan

EXAMPLE = Path(__file__).parents[1] / "examples" / "fleet-16.yaml"
REQUESTS = 1_000_000

SR_SIM = """
import resource, sys, time
import numpy
from fleet_sim import Fleet, FleetConfig, H100_80GB, PoolConfig, Request
arrival, prompt, output = numpy.load(sys.argv[1]).values()
rows = enumerate(zip(arrival.tolist(), prompt.tolist(), output.tolist()))
requests = [(t, Request(n, t, i, o)) for n, (t, i, o) in rows]
pools = [PoolConfig("all", H100_80GB, int(sys.argv[2]), 8192, lb_strategy="least_loaded")]
fleet = Fleet(FleetConfig(pools, "LeastLoadedRouter"))
began = time.process_time()
fleet.run(requests)
print(time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def scenario_of(requests: int) -> Scenario:
    """The example, for so many requests, and at least its warm-up."""
    scenario = read_scenario(EXAMPLE)
    known = scenario.plan_of(1)
    rate = len(known) / known.duration_s
    return read_scenario(EXAMPLE, changes={"window_s": max(requests / rate - scenario.warm_up_s, 1.0)})


def measured(policy_name: str, requests: int) -> None:
    """Run one policy in this process, and print its row."""
    scenario = scenario_of(requests)
    policy = next(one for one in scenario.policies if one.name == policy_name)
    plan = scenario.plan_of(1)
    began = process_time()
    run = simulate(replace(scenario, plan_of=lambda _seed: plan), policy, 1)
    spent = process_time() - began
    steps = [node.steps for node in run.nodes]
    batch = np.average([node.mean_running for node in run.nodes], weights=steps)
    row(policy_name, len(plan), run.ended_at_s, spent, getrusage(RUSAGE_SELF).ru_maxrss)
    print(f"{'':20}{sum(steps) / len(plan):.1f} steps a request, {batch:.1f} sequences a step", flush=True)


def row(name: str, requests: int, simulated_s: float, spent_s: float, peak_kib: float) -> None:
    print(
        f"{name:20}{requests:>10,}{spent_s:>8.1f}{requests / spent_s:>12,.0f}{spent_s / requests * 1e6:>8.1f}"
        f"{simulated_s / spent_s:>12,.0f}{peak_kib / 1024:>8.0f}",
        flush=True,
    )


def sr_sim(plan: Plan, gpus: int) -> None:
    """Run vllm-sr-sim on the same requests, and print its row."""
    python = os.environ.get("VLLM_SR_SIM_PYTHON")
    if python is None:
        print("vllm-sr-sim: not measured, since VLLM_SR_SIM_PYTHON names no Python that has it")
        return
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"slipstream-benchmark-{os.getpid()}.npz"
    np.savez(path, arrival=plan.arrival_s, prompt=plan.prompt_tokens, output=plan.output_tokens)
    try:
        told = subprocess.run(
            [python, "-c", SR_SIM, str(path), str(gpus)], check=True, capture_output=True, text=True
        ).stdout.split()
    finally:
        path.unlink()
    row("vllm-sr-sim", len(plan), plan.duration_s, float(told[0]), float(told[1]))


def main(requests: int = REQUESTS) -> None:
    """Print the table: the gateway's own policy for so many requests, all else for a fifth of them."""
    print(f"{'':20}{'requests':>10}{'CPU s':>8}{'requests/s':>12}{'µs each':>8}{'× real time':>12}{'MiB':>8}")
    sys.stdout.flush()
    scenario = scenario_of(requests // 5)
    for policy in scenario.policies:
        if policy.kind is not PolicyKind.BOUND:
            count = requests if policy.kind is PolicyKind.THRESHOLD else requests // 5
            subprocess.run([sys.executable, "-m", "benchmarks.simulator", policy.name, str(count)], check=True)
    sr_sim(scenario.plan_of(1), sum(group.count * group.gpus for group in scenario.groups))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        measured(sys.argv[1], int(sys.argv[2]))
    else:
        main(*map(int, sys.argv[1:]))
