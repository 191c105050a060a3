"""What another policy, ceiling, split of the fleet or draft length would have made of recorded traffic.

The acceptance of requests that went standard was never measured. Every question is therefore asked twice, at the low
and at the high end of what is known of each category; docs/explanation/simulator.md has what that can not say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from slipstream.enginemodel.acceptance import RequestAcceptance, survival_of
from slipstream.enginemodel.settings import ImpossibleEngine
from slipstream.sim.bound import BoundResult, longest_draft
from slipstream.sim.intervals import PolicyResult, summarise
from slipstream.sim.measures import Measures, measure
from slipstream.sim.recorded import RecordedAcceptance, RecordedTraffic
from slipstream.sim.report import as_json
from slipstream.sim.scenario import Category, Policy, PolicyKind, Scenario
from slipstream.sim.sweep import Point, PointResult, Progress, collect, run_trials
from slipstream.workload.plan import Plan

__all__ = ["Replay", "ReplayedPolicy", "replay", "replay_as_json"]

_NOBODY_KNOWS: Final = (0.0, 1.0)
_HALF: Final = 0.5
_LEAST_SPREAD: Final = 1e-3
_LEAST_WINDOW_S: Final = 1.0
"""Requests a second mean nothing of less, as of a recording with a single request."""
_RECORDED: Final = "recorded"


@dataclass(frozen=True, slots=True)
class ReplayedPolicy:
    """One policy at both ends of what is known of acceptance. The bound is computed at both as well."""

    low: PolicyResult | BoundResult
    high: PolicyResult | BoundResult

    @property
    def goodput(self) -> tuple[float, float]:
        """From the lower of the two to the higher: more acceptance does not help every policy."""
        ends = sorted(_goodput(result) for result in (self.low, self.high))
        return ends[0], ends[1]


@dataclass(frozen=True, slots=True)
class Replay:
    """``measured``: what the recording says of itself, by the scenario's targets. ``simulated``: the scenario's fleet
    with every request in the pool that it went to; how far the two are apart is how far to trust the rest.
    """

    measured: Measures
    simulated: PolicyResult
    policies: tuple[ReplayedPolicy, ...]
    runs: tuple[PointResult, PointResult]


def replay(
    scenario: Scenario,
    traffic: RecordedTraffic,
    *,
    jobs: int = 1,
    progress: Callable[[Progress], None] | None = None,
) -> Replay:
    """Recorded traffic on the scenario's fleet, under its policies and seeds. Its own workload is not looked at, its
    window is what was recorded, a second at least, less its warm-up (a quarter of the recording at most).

    Raises as `run_trials`.
    """
    warm_up_s = min(scenario.warm_up_s, traffic.plan.duration_s / 4.0)
    window_s = max(float(np.nextafter(traffic.plan.duration_s, np.inf)) - warm_up_s + 1e-6, _LEAST_WINDOW_S)
    made = replace(scenario, warm_up_s=warm_up_s, window_s=window_s, plan_of=partial(_same, traffic.plan))
    longest = longest_draft(scenario.groups, scenario.policies)
    low, high = (Point({}, replace(made, categories=_categories(traffic, end, longest))) for end in (0, 1))
    check = Point({}, _as_it_was(made, traffic, longest))
    points = [low, high, check]
    at_low, at_high, as_it_was = collect(points, run_trials(points, jobs=jobs, progress=progress))
    simulated = as_it_was.policies[0]
    assert isinstance(simulated, PolicyResult)
    return Replay(
        measured=measure(traffic.run, scenario.targets, window=(warm_up_s, warm_up_s + window_s)),
        simulated=simulated,
        policies=tuple(
            ReplayedPolicy(at_the_low, at_the_high)
            for at_the_low, at_the_high in zip(at_low.policies, at_high.policies, strict=True)
        ),
        runs=(at_low, at_high),
    )


def replay_as_json(found: Replay, traffic: RecordedTraffic) -> dict[str, Any]:
    """The keys of ``slipstream simulate --replay --json``; docs/reference/simulate-json.md has them."""
    return {
        "measured": as_json(summarise(_RECORDED, [found.measured])),
        "simulated": as_json(found.simulated),
        "policies": [
            {
                "name": policy.low.policy,
                "goodput": list(policy.goodput),
                "low": as_json(policy.low),
                "high": as_json(policy.high),
            }
            for policy in found.policies
        ],
        "acceptance": {
            name: {
                "requests": acceptance.requests,
                "k": acceptance.k,
                "alpha": acceptance.alpha,
                "interval": None if acceptance.interval is None else list(acceptance.interval),
                "spread": acceptance.spread,
            }
            for name, acceptance in traffic.acceptance.items()
        },
        "recording": {
            "requests": len(traffic.plan),
            "passed_over": traffic.passed_over,
            "prompts_guessed": traffic.prompts_guessed,
            "outputs_guessed": traffic.outputs_guessed,
            "several": traffic.several,
            "starts": traffic.starts,
        },
    }


def _categories(traffic: RecordedTraffic, end: int, longest: int) -> tuple[Category, ...]:
    """The recorded categories at the low (0) or the high (1) end of their acceptance."""
    return tuple(
        _category(name, (acceptance.interval or _NOBODY_KNOWS)[end], acceptance, longest)
        for name, acceptance in traffic.acceptance.items()
    )


def _as_it_was(made: Scenario, traffic: RecordedTraffic, longest: int) -> Scenario:
    """Every category in two, by the pool its requests went to, and each half fixed to that pool."""
    plan = traffic.plan
    names = [name for name in plan.categories for name in (f"{name} standard", f"{name} speculative")]
    split = replace(
        plan,
        categories=tuple(names),
        category=(plan.category * 2 + (traffic.pool == 1)).astype(np.int16),
    )
    categories: list[Category] = []
    for number, name in enumerate(names):
        acceptance = traffic.acceptance[plan.categories[number // 2]]
        alpha = _HALF if acceptance.alpha is None else acceptance.alpha
        categories.append(_category(name, alpha, acceptance, longest))
    policy = Policy(_RECORDED, PolicyKind.SPLIT_LISTS, speculative_categories=frozenset(names[1::2]))
    return replace(made, plan_of=partial(_same, split), categories=tuple(categories), policies=(policy,))


def _category(name: str, alpha: float, acceptance: RecordedAcceptance, longest: int) -> Category:
    """As different from request to request as was seen, or as an acceptance so near to an end leaves room for."""
    survival = survival_of(alpha, max(1, round(acceptance.k or 1.0)))
    spread = acceptance.spread
    while spread > 0.0 and not all(_possible(survival, spread, k) for k in range(1, longest + 1)):
        spread = spread / 2.0 if spread > _LEAST_SPREAD else 0.0
    return Category(name, survival, spread)


def _possible(survival: tuple[float, ...], spread: float, k: int) -> bool:
    try:
        RequestAcceptance(survival, spread, k)
    except ImpossibleEngine:
        return False
    return True


def _goodput(result: PolicyResult | BoundResult) -> float:
    return result.goodput if isinstance(result, BoundResult) else result.mean.requests.goodput


def _same(plan: Plan, _seed: int) -> Plan:
    return plan
