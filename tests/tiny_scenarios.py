"""Scenarios small enough to be simulated in a blink, made of step times that can be reckoned with by hand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from slipstream.core.acceptance import DEFAULT_ALPHAS, AcceptancePrior
from slipstream.core.request import Pool, TrafficClass
from slipstream.costmodel.profiles import LinearCosts, Provenance
from slipstream.costmodel.steps import step_rows
from slipstream.enginemodel.settings import EngineSettings, Speculation
from slipstream.sim.scenario import Category, Equipment, NodeGroup, Policy, PolicyKind, Scenario, Target
from slipstream.workload.plan import CLASSES, NO_LIMIT, Plan

PROVENANCE = Provenance("made", "1", "none", "m", "2026-01-01")
COSTS = LinearCosts(PROVENANCE, step_s=0.01, token_s=0.001, draft_pass_s=0.001, prefill_token_s=0.0001)
POLICIES = (
    Policy("all-standard", PolicyKind.ALL_STANDARD),
    Policy("all-speculative", PolicyKind.ALL_SPECULATIVE),
    Policy("split-round-robin", PolicyKind.SPLIT_ROUND_ROBIN),
    Policy("split-lists", PolicyKind.SPLIT_LISTS, speculative_categories=frozenset({"code"})),
    Policy("threshold", PolicyKind.THRESHOLD),
)
ALL_ACCEPTED = Category("code", (1.0, 1.0, 0.0, 0.0))


def plan_of(
    arrivals: Sequence[float],
    *,
    prompt_tokens: int | Sequence[int] = 10,
    output_tokens: int | Sequence[int] = 21,
    categories: tuple[str, ...] = ("code",),
    category: int | Sequence[int] = 0,
    traffic_class: TrafficClass = TrafficClass.INTERACTIVE,
    models: tuple[str, ...] = ("m",),
    model: int | Sequence[int] = 0,
) -> Plan:
    """Requests at these times, in any order; one figure is for all of them."""
    count = len(arrivals)

    def column(values: int | Sequence[int], kind: type[np.signedinteger]) -> np.ndarray:
        return np.broadcast_to(np.asarray(values, kind), count).copy()

    return Plan(
        categories=categories,
        models=models,
        arrival_s=np.sort(np.asarray(arrivals, float)),
        prompt_tokens=column(prompt_tokens, np.int64),
        output_tokens=column(output_tokens, np.int64),
        category=column(category, np.int16),
        traffic_class=np.full(count, CLASSES.index(traffic_class), np.int8),
        quantile=np.arange(count, dtype=np.float64) * 0.618034 % 1.0,
        output_limit=np.full(count, NO_LIMIT, np.int64),
        model=column(model, np.int16),
        session=np.full(count, NO_LIMIT, np.int64),
    )


def group(
    name: str = "spec",
    count: int = 1,
    pool: Pool = Pool.SPECULATIVE,
    *,
    slots: int = 4,
    k: int = 2,
    costs: LinearCosts = COSTS,
    model: str = "m",
    kv_tokens: int | None = None,
    capacity_changes: tuple[tuple[float, int], ...] = (),
) -> NodeGroup:
    settings = EngineSettings(slots=slots, kv_tokens=kv_tokens)
    speculating = EngineSettings(slots=slots, kv_tokens=kv_tokens, speculation=Speculation(k=k))
    rows = step_rows(costs)
    return NodeGroup(
        name,
        count,
        pool,
        model,
        Equipment(settings, rows),
        Equipment(speculating, rows),
        capacity_changes=capacity_changes,
    )


def scenario(
    plan: Plan,
    groups: tuple[NodeGroup, ...],
    *,
    target: Target | None = None,
    categories: tuple[Category, ...] = (ALL_ACCEPTED,),
    policies: tuple[Policy, ...] = POLICIES,
    seeds: tuple[int, ...] = (1,),
    window_s: float = 10.0,
    warm_up_s: float = 0.0,
    drain_s: float = 60.0,
) -> Scenario:
    """The same plan whatever the seed."""
    return Scenario(
        name="tiny",
        groups=groups,
        categories=categories,
        plan_of=partial(_same, plan),
        policies=policies,
        targets={} if target is None else dict.fromkeys(CLASSES, target),
        seeds=seeds,
        window_s=window_s,
        warm_up_s=warm_up_s,
        drain_s=drain_s,
        prior=AcceptancePrior(dict(DEFAULT_ALPHAS)),
    )


def _same(plan: Plan, _seed: int) -> Plan:
    return plan
