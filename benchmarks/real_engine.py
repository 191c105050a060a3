"""The simulator against a real engine: an embedded llama.cpp node is measured, and plans that it was not measured with
are served over sockets and simulated.

`python -m benchmarks real-engine`. The profile goes to build/real-engine-profile.json.

**Whose time.** While the node has a request, time is its own: the CPU seconds of its process, of which one thread
computes and the others do next to nothing. While it has none, time is the wall clock. On a quiet machine that is the
wall clock throughout. Requests are sent at their times by the same clock, so a node that others keep from its core gets
no more to do at once than it would have alone.

**A pace that drifts.** CPU seconds are not all alike: where others use the same caches and memory, a second of them
does up to half less. So a known computation is timed all along, seven times a second, and CPU seconds count for as much
less as it takes longer than at its fastest. What that misses is met by measuring the node right before each plan and
right after it, by simulating the plan on the mean of the two, and by many short plans. By how much they differ tells
how exact the mean over all of them is.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import count
from pathlib import Path
from statistics import fmean
from time import clock_gettime, monotonic, thread_time
from typing import Any, Final

import numpy as np
import uvloop
from numpy.typing import NDArray

from slipstream.core.request import Pool
from slipstream.costmodel.profiles import profile_of
from slipstream.costmodel.steps import step_rows
from slipstream.embedded.model import find_model, model_name
from slipstream.embedded.node import SLEEPING_THREADS, EmbeddedNodeSpec, worker_command
from slipstream.embedded.port import LOOPBACK, reserve_port
from slipstream.enginemodel.settings import EngineSettings
from slipstream.load import Level, LoadResult, PlannedRequest, drive, drive_at_times, made_prompt
from slipstream.sim.scenario import Category, Equipment, GatewaySettings, NodeGroup, Policy, PolicyKind, Scenario
from slipstream.sim.simulate import simulate
from slipstream.workload.arrivals import PoissonArrivals
from slipstream.workload.lengths import Lengths, UniformLengths
from slipstream.workload.mix import CategoryTraffic, Mix, make_plan
from slipstream.workload.plan import Plan

__all__ = ["Comparison", "Setup", "compare"]

PROFILE: Final = Path("build") / "real-engine-profile.json"
TOLERANCE: Final = 0.15
PACE_NUMBERS: Final = 4_000_000
"""16 MB are read and added: more than a processor's own caches hold, as of a model."""
PACE_S: Final = 0.15
CPU_SECONDS: Final = 2
"""Linux numbers the clock that tells a process's CPU time by its pid, and this is of the kind `CPUCLOCK_SCHED`."""
STEP_TOKENS: Final = 2048
"""llama.cpp's `n_batch`: decodes first, then prompts, up to so many tokens a step."""
TEMPLATE_TOKENS: Final = 17
"""Of the model's chat template, around the prompts made here."""
CHARACTERS_PER_TOKEN: Final = 3.4
"""Of the made text's beginning, with the vocabulary of this model."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What is measured: a round, with prompts of ``prompt_tokens`` and ``answer_tokens`` by number of streams, so many
    that each number takes about as long; then ``plans`` times a plan of ``requests``, at a ``rate`` a second, and the
    next round.
    """

    slots: int
    prompt_tokens: int
    answer_tokens: Mapping[int, int]
    plans: int
    requests: int
    rate: float
    prompt: Lengths
    output: Lengths


FULL: Final = Setup(
    slots=8,
    prompt_tokens=32,
    answer_tokens={1: 64, 2: 40, 4: 24, 8: 14},
    plans=10,
    requests=8,
    rate=0.4,
    prompt=UniformLengths(32, 80),
    output=UniformLengths(16, 48),
)


class Pace:
    """How much longer a known computation takes than at its fastest: the mean over the ``latest`` times of four, and
    over ``all`` of them, as factors.
    """

    __slots__ = ("_fastest_s", "_latest_s", "_numbers", "all", "latest")

    def __init__(self) -> None:
        self._numbers = np.ones(PACE_NUMBERS, np.float32)
        self._latest_s = deque([self._took_s() for _ in range(40)], maxlen=4)
        self._fastest_s = min(self._took_s() for _ in range(40))
        self.all: list[float] = []
        self.latest = 1.0

    def measure(self) -> None:
        """Compute once more."""
        self._latest_s.append(self._took_s())
        self.latest = fmean(self._latest_s) / self._fastest_s
        self.all.append(self.latest)

    def _took_s(self) -> float:
        began = thread_time()
        self._numbers.sum()
        return thread_time() - began


class NodeTime:
    """Seconds as a node has them: of its own CPU at the machine's ``pace`` while it has requests, of the wall clock
    while it has none.

    ``cpu_s`` and ``wall_s``: what it computed while it had requests, and how long that took.
    """

    __slots__ = ("_at", "_clock", "_computed", "_requests", "_seconds", "cpu_s", "pace", "wall_s")

    def __init__(self, pid: int) -> None:
        self._clock = ~pid << 3 | CPU_SECONDS
        self.pace = Pace()
        self._requests = 0
        self._seconds = self.cpu_s = self.wall_s = 0.0
        self._at, self._computed = monotonic(), clock_gettime(self._clock)

    def __call__(self) -> float:
        now, computed = monotonic(), clock_gettime(self._clock)
        if self._requests > 0:
            self._seconds += (computed - self._computed) / self.pace.latest
            self.cpu_s += computed - self._computed
            self.wall_s += now - self._at
        else:
            self._seconds += now - self._at
        self._at, self._computed = now, computed
        return self._seconds

    async def keep_pace(self) -> None:
        """Until it is cancelled."""
        while True:
            self()
            self.pace.measure()
            await asyncio.sleep(PACE_S)

    def sent(self, requests: int) -> None:
        """The node is about to get more requests."""
        self()
        self._requests += requests

    def answered(self, _result: LoadResult) -> None:
        """One of them has ended."""
        self()
        self._requests -= 1


@dataclass(frozen=True, slots=True)
class Measured:
    """A round: ``step_s`` by number of streams, what its prompts took, and ``seconds`` for all of it."""

    step_s: Mapping[int, float]
    prompt_s: float
    prompt_tokens: int
    context_tokens: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Compared:
    """A plan. ``served`` and ``simulated``: a row a request, with its TTFT, TPOT (NaN = one token) and E2E in seconds.

    ``drift``: by how much the round after it took longer than the one before it, as a share. ``late_s``: how late its
    requests were sent, on average.
    """

    served: NDArray[np.float64]
    simulated: NDArray[np.float64]
    drift: float
    late_s: float

    @property
    def errors(self) -> NDArray[np.float64]:
        """By how much simulated TTFT, TPOT and E2E are more than served, of their means, as shares."""
        found: NDArray[np.float64] = np.nanmean(self.simulated, axis=0) / np.nanmean(self.served, axis=0) - 1.0
        return found


@dataclass(frozen=True, slots=True)
class Comparison:
    """The profile of all rounds, and each plan. ``had_core``: the share of a core that the node had while it had
    requests. ``pace``: how much longer a known computation took than at its fastest, all along, as factors.
    """

    profile: Mapping[str, Any]
    plans: Sequence[Compared]
    had_core: float
    pace: Sequence[float]

    def means(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean TTFT, TPOT and E2E in seconds over the requests of all plans: served, and simulated."""
        served = np.vstack([plan.served for plan in self.plans])
        simulated = np.vstack([plan.simulated for plan in self.plans])
        return np.nanmean(served, axis=0), np.nanmean(simulated, axis=0)

    def standard_errors(self) -> NDArray[np.float64]:
        """Of the error of the means of TTFT, TPOT and E2E, as shares, from how much the plans differ in theirs."""
        errors = np.array([plan.errors for plan in self.plans])
        found: NDArray[np.float64] = errors.std(axis=0, ddof=1) / np.sqrt(len(errors))
        return found


@dataclass(frozen=True, slots=True)
class RealNode:
    """An engine that nobody but who measures it asks for anything: it has no agent."""

    url: str
    model: str
    pid: int


@asynccontextmanager
async def real_node(spec: EmbeddedNodeSpec) -> AsyncIterator[RealNode]:
    """The node, once it serves; it ends with the block."""
    with reserve_port() as reservation:
        port = reservation.getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            *worker_command(spec, port),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **SLEEPING_THREADS},
        )
        try:
            assert process.stdout is not None
            if not await process.stdout.readline():
                raise RuntimeError(f"the engine ended with status {await process.wait()}")
            yield RealNode(f"http://{LOOPBACK}:{port}", model_name(spec.model), process.pid)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def compare(setup: Setup, on_plan: Callable[[Compared], None]) -> Comparison:
    """Measure a node, serve plans between the rounds, and simulate each on the rounds around it. ``on_plan`` hears of
    each as it is compared.
    """
    async with real_node(EmbeddedNodeSpec("real", Pool.STANDARD, find_model(), slots=setup.slots)) as node:
        time = NodeTime(node.pid)
        pacing = asyncio.create_task(time.keep_pace(), name="pace")
        try:
            rounds, plans = await interleaved(node, time, setup, on_plan)
        finally:
            pacing.cancel()
            await asyncio.wait([pacing])
    return Comparison(profile_from(rounds, node.model), plans, time.cpu_s / time.wall_s, time.pace.all)


async def interleaved(
    node: RealNode, time: NodeTime, setup: Setup, on_plan: Callable[[Compared], None]
) -> tuple[list[Measured], list[Compared]]:
    """Rounds, and the plans between any two."""
    numbers = count(1)
    await together(node, time, [request(node.model, next(numbers), 20, 4)])  # the first of a node takes longer
    rounds = [await measured(node, time, setup, numbers)]
    plans: list[Compared] = []
    for seed in range(1, setup.plans + 1):
        plan, results = await served(node, time, setup, seed, numbers)
        rounds.append(await measured(node, time, setup, numbers))
        compared = Compared(
            np.array([row_of(result) for result in results]),
            simulated(plan, setup.slots, profile_from(rounds[-2:], node.model)),
            rounds[-1].seconds / rounds[-2].seconds - 1.0,
            float(np.mean([result.sent_at - result.intended_at for result in results])),
        )
        plans.append(compared)
        on_plan(compared)
    return rounds, plans


def request(model: str, number: int, prompt_tokens: int, output_tokens: int) -> PlannedRequest:
    """With a prompt of about so many tokens that begins like no other, and an answer of exactly so many."""
    characters = round(max(1, prompt_tokens - TEMPLATE_TOKENS) * CHARACTERS_PER_TOKEN)
    text = made_prompt("chat", characters, number, 1)[:characters]
    fields: dict[str, Any] = {"ignore_eos": True, "cache_prompt": False, "temperature": 0.0}
    messages = ({"role": "system", "content": text}, {"role": "user", "content": "Go on."})
    return PlannedRequest(model, messages, output_tokens, fields=fields)


async def measured(node: RealNode, time: NodeTime, setup: Setup, numbers: Iterator[int]) -> Measured:
    """A round: for each number of streams, prompts that come together, then steps in which all of them decode."""
    step_s: dict[int, float] = {}
    prompt_s = context = 0.0
    prompt_tokens = 0
    began = time()
    for streams, tokens in setup.answer_tokens.items():
        requests = [request(node.model, next(numbers), setup.prompt_tokens, tokens) for _ in range(streams)]
        results = await together(node, time, requests)
        start = min(result.sent_at for result in results)
        chunks = [chunk_times(result) for result in results]
        latest = max(chunks, key=lambda times: times[0])
        decoding = latest[latest <= min(times[-1] for times in chunks)]
        step_s[streams] = float(decoding[-1] - decoding[0]) / (len(decoding) - 1)
        prompt_s += float(latest[0]) - start
        prompts = sum(result.prompt_tokens or 0 for result in results)
        prompt_tokens += prompts
        context += prompts / streams + len(decoding) / 2.0
    return Measured(step_s, prompt_s, prompt_tokens, context / len(step_s), time() - began)


async def served(
    node: RealNode, time: NodeTime, setup: Setup, seed: int, numbers: Iterator[int]
) -> tuple[Plan, list[LoadResult]]:
    """What arrives under a seed, its prompts as long as the engine counted them, and what became of each request."""
    traffic = CategoryTraffic("chat", 1.0, setup.prompt, setup.output)
    plan = make_plan(Mix(PoissonArrivals(setup.rate), (traffic,), ((node.model, 1.0),), requests=setup.requests), seed)
    requests = [
        request(node.model, next(numbers), int(plan.prompt_tokens[row]), int(plan.output_tokens[row]))
        for row in range(len(plan))
    ]
    results: list[LoadResult] = []

    def next_request(position: int) -> PlannedRequest:
        time.sent(1)
        return requests[position]

    def on_result(result: LoadResult) -> None:
        time.answered(result)
        results.append(result)

    arrival_s = plan.arrival_s - plan.arrival_s[0]
    await drive_at_times(
        f"{node.url}/v1",
        arrival_s.tolist(),
        next_request,
        on_result=on_result,
        headers={
            "connection": "close"
        },  # a node closes idle ones by the wall clock, and others may keep us from seeing it
        clock=time,
    )
    answers = whole(sorted(results, key=lambda result: result.position))
    counted = np.array([result.prompt_tokens for result in answers], plan.prompt_tokens.dtype)
    return replace(plan, arrival_s=arrival_s, prompt_tokens=counted), answers


async def together(node: RealNode, time: NodeTime, requests: Sequence[PlannedRequest]) -> list[LoadResult]:
    """All at once."""
    time.sent(len(requests))
    level = Level(len(requests), len(requests))
    return whole(await drive(f"{node.url}/v1", requests, [level], on_result=time.answered, clock=time))


def whole(results: list[LoadResult]) -> list[LoadResult]:
    """The same; all have to be answers of the length asked for."""
    for result in results:
        if result.error is not None or result.output_tokens != result.request.max_tokens:
            tokens = f"{result.output_tokens} of {result.request.max_tokens} tokens"
            raise RuntimeError(f"the node gave {tokens}: {result.error}")
    return results


def chunk_times(result: LoadResult) -> NDArray[np.float64]:
    """When each of its tokens came."""
    return first_token_at(result) + np.cumsum([0.0, *result.chunk_gaps])


def first_token_at(result: LoadResult) -> float:
    """Of an answer that was streamed."""
    assert result.latency is not None
    assert result.latency.ttft_s is not None
    return result.intended_at + result.latency.ttft_s


def row_of(result: LoadResult) -> tuple[float, float, float]:
    """TTFT, TPOT and E2E; NaN = unknown."""
    assert result.latency is not None
    found = (result.latency.ttft_s, result.latency.tpot_s, result.latency.e2e_s)
    ttft, tpot, e2e = (float("nan") if seconds is None else seconds for seconds in found)
    return ttft, tpot, e2e


def profile_from(rounds: Sequence[Measured], model: str) -> dict[str, Any]:
    """A profile's document: means over the rounds."""
    return {
        "form": "table",
        "engine": "llama.cpp",
        "version": version("xllamacpp"),
        "hardware": f"one thread of {processor()}",
        "model": model,
        "date": datetime.now(UTC).date().isoformat(),
        "note": f"mean of {len(rounds)} rounds, in CPU seconds at the machine's fastest pace",
        "context_tokens": round(float(np.mean([each.context_tokens for each in rounds])), 1),
        "prefill_token_ms": round(
            1e3 * sum(each.prompt_s for each in rounds) / sum(each.prompt_tokens for each in rounds), 4
        ),
        "points": [
            {
                "batch_size": streams,
                "k": 0,
                "step_ms": round(1e3 * float(np.mean([each.step_s[streams] for each in rounds])), 3),
            }
            for streams in rounds[0].step_s
        ],
    }


def processor() -> str:
    """What the machine's processor calls itself."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "an unnamed processor"


def simulated(plan: Plan, slots: int, profile: Mapping[str, Any]) -> NDArray[np.float64]:
    """TTFT, TPOT and E2E of each request on one node of that profile, with nothing before it."""
    costs = profile_of(profile, "the measured profile")
    equipment = Equipment(EngineSettings(slots=slots, step_tokens=STEP_TOKENS), step_rows(costs))
    scenario = Scenario(
        name="real engine",
        groups=(NodeGroup("real", 1, Pool.STANDARD, plan.models[0], equipment, None),),
        categories=(Category("chat", ()),),
        plan_of=lambda _seed: plan,
        policies=(),
        targets={},
        seeds=(1,),
        window_s=plan.duration_s,
        drain_s=600.0,
        gateway=GatewaySettings(forward_s=0.0, queue_timeout_s=600.0),
    )
    run = simulate(scenario, Policy("alone", PolicyKind.ALL_STANDARD), 1)
    more = np.where(plan.output_tokens > 1, plan.output_tokens - 1.0, np.nan)
    tpot = (run.ended_s - run.first_token_s) / more
    return np.stack((run.first_token_s - plan.arrival_s, tpot, run.ended_s - plan.arrival_s), axis=1)


def tell(plan: Compared) -> None:
    """Print what came of a plan."""
    ttft, tpot, e2e = plan.errors
    print(
        f"a plan of {len(plan.served)} requests, sent {1e3 * plan.late_s:.1f} ms late, with a round after it that took "
        f"{plan.drift:+.1%} of the one before: simulated TTFT {ttft:+.1%}, TPOT {tpot:+.1%}, E2E {e2e:+.1%}",
        flush=True,
    )


def main() -> None:
    """Measure, compare and write the profile."""
    found = uvloop.run(compare(FULL, tell))
    PROFILE.parent.mkdir(exist_ok=True)
    PROFILE.write_text(json.dumps(found.profile, indent=2) + "\n")
    low, high = np.quantile(found.pace, (0.05, 0.95))
    print(
        f"the node had {found.had_core:.0%} of a core; a known computation took {low:.2f} to {high:.2f} times as long "
        f"as at its fastest"
    )
    print(f"profile, written to {PROFILE}:")
    for point in found.profile["points"]:
        print(f"  {point['batch_size']} streams: {point['step_ms']:.1f} ms a step")
    print(f"  {found.profile['prefill_token_ms']:.2f} ms a prompt token")
    served_s, simulated_s = found.means()
    for what, real, virtual, error in zip(
        ("TTFT", "TPOT", "E2E"), served_s, simulated_s, found.standard_errors(), strict=True
    ):
        print(
            f"mean {what} {1e3 * real:.1f} ms served, {1e3 * virtual:.1f} ms simulated: {virtual / real - 1.0:+.1%}, "
            f"with a standard error of {error:.1%}"
        )
    holds = np.all(np.abs(simulated_s / served_s - 1.0)[1:] <= TOLERANCE)
    print(f"mean TPOT and E2E are {'' if holds else 'not '}predicted within {TOLERANCE:.0%}")


if __name__ == "__main__":
    main()
