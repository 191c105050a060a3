"""The simulator against a real engine: an embedded llama.cpp node is measured, and a plan that it was not measured with
is served over sockets and simulated.

`python -m benchmarks real-engine`. The profile goes to build/real-engine-profile.json.

**Whose time.** While the node has a request, time is its own: the CPU seconds of its process, of which one thread
computes and the others do next to nothing. While it has none, time is the wall clock. On a quiet machine that is the
wall clock throughout. Requests are sent at their times by the same clock, so a node that others keep from its core gets
no more to do at once than it would have alone.

**Which runs hold.** CPU seconds are not all alike where others use the same caches and memory. So the profile is
measured in rounds, between which the plan is served. A run holds if the node had at least `LEAST_CORE` of a core while
it had requests, if the pace at which prompts are processed was within `PACE_TOLERANCE` of its mean in every round, if
on average requests were sent within `LATE_TOLERANCE` of mean E2E of their time, and if every answer came whole. None of
it looks at what is compared. On a machine that has other work, `chrt -f 10 python -m benchmarks real-engine` gives the
node a core.

**Slots.** llama.cpp gives each slot a cache of its own and computes sequences in one pass only if their slots are
neighbours. It gives a request the slot that is free for longest, unless a tenth of the prompt is there already.
Prompts here begin differently, so which slots are busy is as good as drawn, and each number of streams is measured on
slots with about as many gaps as drawn ones have: B of S are in B(S − B + 1)/S passes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import count
from pathlib import Path
from time import clock_gettime, monotonic
from typing import Any, Final

import numpy as np
import uvloop
from numpy.typing import NDArray

from slipstream.core.request import Pool
from slipstream.costmodel.profiles import profile_of
from slipstream.costmodel.steps import step_rows
from slipstream.embedded import EmbeddedFleet, EmbeddedNode, EmbeddedNodeSpec
from slipstream.embedded.model import find_model
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
LEAST_CORE: Final = 0.7
PACE_TOLERANCE: Final = 0.1
LATE_TOLERANCE: Final = 0.05
CPU_SECONDS: Final = 2
"""Linux numbers the clock that tells a process's CPU time by its pid, and this is of the kind `CPUCLOCK_SCHED`."""
STEP_TOKENS: Final = 2048
"""llama.cpp's `n_batch`: decodes first, then prompts, up to so many tokens a step."""
TEMPLATE_TOKENS: Final = 17
"""Of the model's chat template, around the prompts made here."""
CHARACTERS_PER_TOKEN: Final = 3.4
"""Of the made text's beginning, with the vocabulary of this model."""

Round = tuple[tuple[int, ...], ...]
"""The slots of each number of streams that is measured, one after another."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What is measured. ``rounds`` of the profile, each with as many streams as the others, a plan of ``requests``
    between any two; ``profile_tokens`` are of prompt and answer. ``rate`` is in requests a second.
    """

    slots: int
    rounds: tuple[Round, ...]
    profile_tokens: tuple[int, int]
    requests: int
    rate: float
    prompt: Lengths
    output: Lengths


FULL: Final = Setup(
    slots=8,
    rounds=(
        ((3,), (2, 5), (0, 1, 4, 6), tuple(range(8))),
        ((6,), (4, 5), (2, 3, 5, 6), tuple(range(8))),
        ((1,), (0, 6), (1, 3, 4, 6), tuple(range(8))),
        ((4,), (3, 7), (0, 5, 6, 7), tuple(range(8))),
    ),
    profile_tokens=(56, 24),
    requests=16,
    rate=0.8,
    prompt=UniformLengths(32, 80),
    output=UniformLengths(16, 48),
)


class NodeTime:
    """Seconds as a node has them: of its own CPU while it has requests, of the machine while it has none.

    ``cpu_s`` and ``wall_s``: what it computed while it had requests, and how long that took.
    """

    __slots__ = ("_at", "_clock", "_computed", "_requests", "_seconds", "cpu_s", "wall_s")

    def __init__(self, pid: int) -> None:
        self._clock = ~pid << 3 | CPU_SECONDS
        self._requests = 0
        self._seconds = self.cpu_s = self.wall_s = 0.0
        self._at, self._computed = monotonic(), clock_gettime(self._clock)

    def __call__(self) -> float:
        now, computed = monotonic(), clock_gettime(self._clock)
        if self._requests > 0:
            self._seconds += computed - self._computed
            self.cpu_s += computed - self._computed
            self.wall_s += now - self._at
        else:
            self._seconds += now - self._at
        self._at, self._computed = now, computed
        return self._seconds

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
    """A round of the profile: ``step_s`` by number of streams, and what its prompts took."""

    step_s: Mapping[int, float]
    prompt_s: float
    prompt_tokens: int
    context_tokens: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """``served`` and ``simulated``: a row a request, with its TTFT, TPOT (NaN = one token) and E2E in seconds.

    ``pace``: seconds a prompt token, by round. ``late_s``: how late requests were sent, on average. ``had_core``: the
    share of a core that the node had while it had requests.
    """

    profile: Mapping[str, Any]
    served: NDArray[np.float64]
    simulated: NDArray[np.float64]
    pace: Sequence[float]
    late_s: float
    had_core: float

    @property
    def drift(self) -> float:
        """By how much the pace of a round was off its mean, at most."""
        return float(np.max(np.abs(np.array(self.pace) / np.mean(self.pace) - 1.0)))

    @property
    def holds(self) -> bool:
        """Whether the machine let the node be measured."""
        late = self.late_s > LATE_TOLERANCE * float(self.served[:, 2].mean())
        return self.had_core >= LEAST_CORE and self.drift <= PACE_TOLERANCE and not late

    def means(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean TTFT, TPOT and E2E in seconds: served, and simulated."""
        return np.nanmean(self.served, axis=0), np.nanmean(self.simulated, axis=0)


async def compare(setup: Setup) -> Comparison:
    """Measure a node, serve plans between the rounds, and simulate them on the profile of all rounds."""
    spec = EmbeddedNodeSpec("real", Pool.STANDARD, find_model(), slots=setup.slots)
    async with EmbeddedFleet([spec]) as fleet:
        (node,) = fleet.nodes
        numbers = count(1)
        assert node.pid is not None
        time = NodeTime(node.pid)
        await together(node, time, [request(node.model, next(numbers), 20, 4)])  # the first of a node takes longer
        rounds = [await measured(node, time, setup, setup.rounds[0], numbers)]
        plans, results = [], []
        for seed, layout in enumerate(setup.rounds[1:], 1):
            plan, answers = await served(node, time, setup, seed, numbers)
            plans.append(plan)
            results += answers
            rounds.append(await measured(node, time, setup, layout, numbers))
    profile = profile_from(rounds, node.model)
    return Comparison(
        profile,
        np.array([row_of(result) for result in results]),
        np.vstack([simulated(plan, setup.slots, profile) for plan in plans]),
        [each.prompt_s / each.prompt_tokens for each in rounds],
        float(np.mean([result.sent_at - result.intended_at for result in results])),
        time.cpu_s / time.wall_s,
    )


def request(model: str, number: int, prompt_tokens: int, output_tokens: int, slot: int | None = None) -> PlannedRequest:
    """With a prompt of about so many tokens that begins like no other, and an answer of exactly so many."""
    characters = round(max(1, prompt_tokens - TEMPLATE_TOKENS) * CHARACTERS_PER_TOKEN)
    text = made_prompt("chat", characters, number, 1)[:characters]
    fields: dict[str, Any] = {"ignore_eos": True, "cache_prompt": False, "temperature": 0.0}
    if slot is not None:
        fields["id_slot"] = slot
    messages = ({"role": "system", "content": text}, {"role": "user", "content": "Go on."})
    return PlannedRequest(model, messages, output_tokens, fields=fields)


async def measured(node: EmbeddedNode, time: NodeTime, setup: Setup, layout: Round, numbers: Iterator[int]) -> Measured:
    """A round: for each number of streams, prompts that come together, then steps in which all of them decode."""
    step_s: dict[int, float] = {}
    prompt_s = context = 0.0
    prompt_tokens = 0
    for slots in layout:
        streams = len(slots)
        requests = [request(node.model, next(numbers), *setup.profile_tokens, slot) for slot in slots]
        results = await together(node, time, requests)
        start = min(result.sent_at for result in results)
        chunks = [chunk_times(result) for result in results]
        latest = max(chunks, key=lambda times: times[0])
        decoding = latest[latest <= min(times[-1] for times in chunks)]
        step_s[streams] = float(decoding[-1] - decoding[0]) / (len(decoding) - 1)
        prompt_s += float(latest[0]) - start
        tokens = sum(result.prompt_tokens or 0 for result in results)
        prompt_tokens += tokens
        context += tokens / streams + len(decoding) / 2.0
    return Measured(step_s, prompt_s, prompt_tokens, context / len(layout))


async def served(
    node: EmbeddedNode, time: NodeTime, setup: Setup, seed: int, numbers: Iterator[int]
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


async def together(node: EmbeddedNode, time: NodeTime, requests: Sequence[PlannedRequest]) -> list[LoadResult]:
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
        "note": f"mean of {len(rounds)} rounds, in CPU seconds",
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


def main() -> None:
    """Measure, compare and write the profile."""
    found = uvloop.run(compare(FULL))
    PROFILE.parent.mkdir(exist_ok=True)
    PROFILE.write_text(json.dumps(found.profile, indent=2) + "\n")
    print(f"profile, written to {PROFILE}:")
    for point in found.profile["points"]:
        print(f"  {point['batch_size']} streams: {point['step_ms']:.1f} ms a step")
    print(f"  {found.profile['prefill_token_ms']:.2f} ms a prompt token")
    for what, real, virtual in zip(("TTFT", "TPOT", "E2E"), *found.means(), strict=True):
        print(
            f"{len(found.served)} requests: mean {what} {1e3 * real:.1f} ms served, {1e3 * virtual:.1f} ms simulated: "
            f"{virtual / real - 1.0:+.1%}"
        )
    print(
        f"pace within {found.drift:.1%} of its mean, requests {1e3 * found.late_s:.1f} ms late on average, "
        f"{found.had_core:.0%} of a core: the run {'holds' if found.holds else 'does not hold, measure again'}"
    )


if __name__ == "__main__":
    main()
