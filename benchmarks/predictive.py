"""Policy `predictive` beside every fixed policy, `threshold` and the bound, in overload and at half of it.

python -m benchmarks.predictive [NAME ...]

Over the example scenarios and two recorded traces, paired by seed: goodput at the load at which the best fixed policy
falls to 90 % attainment, at 1.2 times that and at half of it. Fixed policies are all standard, all speculative, drafts
by an engine-side schedule, and static splits; whichever is best at that very load is compared with. The first three
equip every node to their liking; `best split` is the better of the two that have to live with the pools as given, as
`predictive` has, and `on its nodes` is what `predictive` gains on the best fixed policy where it has the nodes of that.
It refuses what can not be answered in time (`fallback: false`), `refused` is how much that is, and `late instead`
answers it all the same. `× 1.15` and `× 0.85` are `predictive` with profiles that are wrong by so much.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

from slipstream.core.acceptance import alpha_of, mean_acceptance_length_from_survival
from slipstream.core.policy import ThresholdSettings
from slipstream.core.request import Pool
from slipstream.scenarios import read_scenario
from slipstream.sim.bound import bound
from slipstream.sim.measures import measure
from slipstream.sim.policies import equipped
from slipstream.sim.scenario import Policy, PolicyKind, Scenario
from slipstream.sim.simulate import simulate

EXAMPLES = Path(__file__).parents[1] / "examples"
WINDOW_S = 90.0
SEEDS = (21, 22)
"""None that anything was tuned with."""
PROFILE_ERRORS = (1.15, 0.85)
SCHEDULE = ((12, 4), (32, 2))
TRACED = """
seeds: [1, 2, 3]
targets: {interactive: {ttft_ms: 2000, tpot_ms: 40}}
profiles:
  llama-70b: {model: llama-3.1-70b, hardware: h100, tensor_parallel: 4, speculator: {kind: eagle3}}
nodes:
  - {name: spec, count: 2, pool: speculative, profile: llama-70b, slots: 256}
  - {name: std, count: 2, pool: standard, profile: llama-70b, slots: 256}
workload:
  trace: {file: traces/azure-2023-conversation.csv, repeat: true}
  categories:
    code: {alpha: 0.75, spread: 0.06}
    chat: {alpha: 0.5, spread: 0.06}
policies: [threshold]
"""
NAMES = (
    "first-article",
    "hidden-average",
    "interactive-and-bulk",
    "night-and-burst",
    "capacity-change",
    "wrong-draft",
    "fleet-16",
    "mooncake",
    "azure",
)
COLUMNS = (
    "scenario",
    "load",
    "×",
    "best fixed",
    "its goodput",
    "best split",
    "`threshold`",
    "`predictive`",
    "refused",
    "late instead",
    "× 1.15",
    "× 0.85",
    "bound",
    "over best fixed (by seed)",
    "on its nodes",
    "over best split",
    "over `threshold`",
    "gap closed",
)
WINDOWS = {"night-and-burst": 270.0, "capacity-change": 570.0, "fleet-16": 60.0, "mooncake": 300.0}
"""Of scenarios whose traffic changes over it, or that have much more or less of it than the others."""


@contextmanager
def scenario_file(name: str) -> Iterator[Path]:
    """The file of a scenario, for as long as it is needed."""
    if name != "azure":
        yield EXAMPLES / f"{'long-context' if name == 'mooncake' else name}.yaml"
        return
    with TemporaryDirectory() as directory:
        (Path(directory) / "traces").symlink_to(EXAMPLES / "traces")
        path = Path(directory) / "azure.yaml"
        path.write_text(TRACED, encoding="utf-8")
        yield path


def scenario_at(name: str, load: float) -> Scenario:
    """A scenario at a multiple of its load, over a window that is short where its traffic is steady."""
    changes = {"load": load, "window_s": WINDOWS.get(name, WINDOW_S), "warm_up_s": 30.0}
    with scenario_file(name) as path:
        made = read_scenario(path, changes=changes)
        plans = {seed: made.plan_of(seed) for seed in SEEDS}
    return replace(made, plan_of=plans.__getitem__)


def fixed_policies(scenario: Scenario) -> list[Policy]:
    """All that does not look at the load."""
    hopeful = frozenset(
        category.name
        for category in scenario.categories
        if alpha_of(mean_acceptance_length_from_survival(category.survival), len(category.survival)) > 0.6
    )
    return [
        Policy("all-standard", PolicyKind.ALL_STANDARD),
        Policy("all-speculative", PolicyKind.ALL_SPECULATIVE),
        Policy("all-scheduled", PolicyKind.ALL_SCHEDULED, schedule=SCHEDULE),
        Policy("split-least-load", PolicyKind.SPLIT_LEAST_LOAD),
        Policy("split-lists", PolicyKind.SPLIT_LISTS, speculative_categories=hopeful),
    ]


def equipped_as(scenario: Scenario, policy: Policy) -> Scenario:
    """A scenario whose nodes are what a policy makes of them."""
    groups = []
    for group in scenario.groups:
        pool, equipment = equipped(group, policy)
        if pool is Pool.SPECULATIVE:
            groups.append(replace(group, pool=pool, speculative=equipment))
        else:
            groups.append(replace(group, pool=pool, standard=equipment))
    return replace(scenario, groups=tuple(groups))


def judged(scenario: Scenario, policy: Policy, seeds: Sequence[int]) -> tuple[list[float], float, float]:
    """Goodput by seed, mean attainment, and the mean share that got no answer."""
    window = (scenario.warm_up_s, scenario.warm_up_s + scenario.window_s)
    found = [measure(simulate(scenario, policy, seed), scenario.targets, window=window).requests for seed in seeds]
    refused = mean((one.offered - one.finished) / max(1.0, one.offered) for one in found)
    return [one.goodput for one in found], mean(one.attainment or 0.0 for one in found), refused


def load_at(name: str, attainment: float) -> float:
    """The multiple of its load at which a scenario's best fixed policy falls to so much, within 5 %."""
    best_first = fixed_policies(scenario_at(name, 1.0))

    def held(load: float) -> bool:
        scenario = scenario_at(name, load)
        for policy in tuple(best_first):
            if judged(scenario, policy, SEEDS[:1])[1] >= attainment:
                best_first.remove(policy)
                best_first.insert(0, policy)
                return True
        return False

    low, high = 0.25, 1.0
    while held(high) and high < 16.0:
        low, high = high, 1.5 * high
    while high / low > 1.05:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if held(middle) else (low, middle)
    return low


def row(name: str, load: float, times: float) -> None:
    """Print what a load gives."""
    scenario = scenario_at(name, load * times)
    fixed = {policy.name: policy for policy in fixed_policies(scenario)}
    goodputs = {policy: judged(scenario, fixed[policy], SEEDS)[0] for policy in fixed}
    best = max(goodputs, key=lambda policy: mean(goodputs[policy]))
    serves = ThresholdSettings(affinity_slack=None)
    threshold = judged(scenario, Policy("threshold", PolicyKind.THRESHOLD, threshold=serves), SEEDS)[0]
    late = judged(scenario, Policy("late", PolicyKind.PREDICTIVE, threshold=serves), SEEDS)[0]
    refuses = Policy("predictive", PolicyKind.PREDICTIVE, threshold=replace(serves, fallback=False))
    predictive, _, refused = judged(scenario, refuses, SEEDS)
    wrong = [mean(judged(scenario, replace(refuses, profile_error=error), SEEDS)[0]) for error in PROFILE_ERRORS]
    most = mean(bound(scenario, seed).goodput for seed in SEEDS)
    split = max(mean(goodputs[policy]) for policy in goodputs if policy.startswith("split"))
    reached, against = mean(predictive), mean(goodputs[best])
    by_seed = (gain(one, other) for one, other in zip(predictive, goodputs[best], strict=True))
    share = (reached - against) / (most - against) if most > 1.02 * against else None
    closed = "–" if share is None else f"{100 * share:.0f} %".replace("-", "−")
    cells = (
        name,
        f"{load * times:.2f}",
        f"{times}",
        best,
        *(f"{one:.2f}" for one in (against, split, mean(threshold))),
        f"**{reached:.2f}**",
        f"{100 * refused:.0f} %",
        *(f"{one:.2f}" for one in (mean(late), *wrong, most)),
        f"{gain(reached, against)} ({' and '.join(by_seed)})",
        gain(mean(judged(equipped_as(scenario, fixed[best]), refuses, SEEDS)[0]), against),
        gain(reached, split),
        gain(reached, mean(threshold)),
        closed,
    )
    print(f"| {' | '.join(cells)} |", flush=True)


def gain(one: float, other: float) -> str:
    """How much more one is than another."""
    return f"{100 * (one / other - 1.0) if other else 0.0:+.1f} %".replace("-", "−")


def main(names: Sequence[str] = NAMES) -> None:
    """Print the table."""
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|", flush=True)
    for name in names:
        load = load_at(name, 0.9)
        for times in (0.5, 1.0, 1.2):
            row(name, load, times)


if __name__ == "__main__":
    main(sys.argv[1:] or NAMES)
