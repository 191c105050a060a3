"""A scenario under one policy and seed: built, run, and told in columns."""

from __future__ import annotations

import random
from collections.abc import Callable
from hashlib import blake2b
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from slipstream.core.acceptance import AcceptanceBook
from slipstream.core.dispatch import Dispatcher
from slipstream.core.evidence import CategoryEvidence
from slipstream.core.fleet import Fleet
from slipstream.core.node import NodeSpec
from slipstream.core.request import Pool
from slipstream.core.request_queue import RequestQueue
from slipstream.enginemodel.acceptance import RequestAcceptance
from slipstream.enginemodel.engine import Engine
from slipstream.enginemodel.step_times import StepTimes
from slipstream.sim.columns import FIELDS, Columns
from slipstream.sim.events import EventLog
from slipstream.sim.fleet_loop import FleetLoop, Group, Resize, Rows
from slipstream.sim.forecasts import forecast_of
from slipstream.sim.gateway import Exchange, Gateway
from slipstream.sim.node import Node
from slipstream.sim.policies import ceiling_of, equipped, pins_of, routing_of
from slipstream.sim.roles import Roles, Twins, pace_of
from slipstream.sim.run import NodeRun, Run
from slipstream.sim.scenario import Category, Equipment, NodeGroup, Policy, Scenario
from slipstream.workload.plan import CLASSES, Plan

__all__ = ["fleet_loop", "simulate"]

ROW: Final = np.dtype([*FIELDS, ("", "V2")])
ROWS: Final = 4096
"""Of the plan, at a time: as plain numbers they take ten times the room."""
GOLDEN_RATIO: Final = 0.6180339887498949
"""As control/supervisor.py: phases this far apart, modulo 1, are spread evenly however many there will be."""


def simulate(
    scenario: Scenario,
    policy: Policy,
    seed: int,
    *,
    events: Callable[[bytes], object] | None = None,
    progress: Callable[[float], None] | None = None,
) -> Run:
    """Run a scenario in virtual time.

    ``events`` gets what happens, a JSON line each (see `slipstream.sim.events`); the same seed gives the same lines.
    ``progress`` gets the share of the plan's requests that have come, 0..1, once every thousand. Raises
    ``ImpossibleEngine`` for nodes that can not be equipped as the policy wants, and ``ValueError`` for a policy that
    decides nothing (the bound) and for a plan with a category that the scenario does not know.
    """
    started = perf_counter()
    plan = scenario.plan_of(seed)
    loop = fleet_loop(scenario, policy, seed, plan, events=events, progress=progress)
    loop.run()
    told: NDArray[Any] = np.ndarray(len(plan), ROW, loop.gateway.columns.rows)
    return Run(
        policy=policy.name,
        seed=seed,
        plan=plan,
        nodes=tuple(_told(node) for node in loop.nodes),
        node=told["node"],
        reason=told["reason"],
        fate=told["fate"],
        attempts=told["attempts"],
        queued_s=told["queued_s"],
        engine_wait_s=told["engine_wait_s"],
        first_token_s=told["first_token_s"],
        ended_s=told["ended_s"],
        drafted=told["drafted"],
        accepted=told["accepted"],
        verify_steps=told["verify_steps"],
        steps=told["steps"],
        ended_at_s=loop.ended_at,
        wall_s=perf_counter() - started,
    )


def fleet_loop(
    scenario: Scenario,
    policy: Policy,
    seed: int,
    plan: Plan,
    *,
    events: Callable[[bytes], object] | None = None,
    progress: Callable[[float], None] | None = None,
) -> FleetLoop:
    """The fleet of a scenario at its start, ready to run; arguments and errors as of `simulate`."""
    settings = scenario.gateway
    known = {category.name: category for category in scenario.categories}
    missing = sorted(set(plan.categories) - known.keys())
    if missing:
        raise ValueError(f"nothing is known of the acceptance of {', '.join(missing)}")
    categories = [known[name] for name in plan.categories]
    fleet = Fleet((), 0.0, stale_after_s=settings.stale_after_s, hysteresis=settings.hysteresis)
    evidence = CategoryEvidence(AcceptanceBook(scenario.prior, half_life=settings.evidence_half_life_s))
    dispatcher = Dispatcher(fleet, evidence, routing_of(scenario, policy, evidence, fleet), _chance(seed, "gateway"))
    nodes: list[Node] = []
    groups: list[Group] = []
    changes: list[tuple[float, Resize]] = []
    for group in scenario.groups:
        built = _group(group, policy, seed, categories, len(nodes))
        nodes += built.nodes
        groups.append(built)
        for at, size in group.capacity_changes:
            if at <= 0.0:
                built.size = size
            else:
                changes.append((at, Resize(built, size)))
    queue: RequestQueue[Exchange] = RequestQueue(settings.queue_size, settings.queue_timeout_s)
    gateway = Gateway(
        dispatcher,
        {node.name: node for node in nodes},
        queue,
        Columns(len(plan)),
        None if events is None else EventLog(events),
        settings.forward_s,
        settings.retries,
        settings.request_statistics,
    )
    loop = FleetLoop(
        gateway,
        nodes,
        lambda first: _rows(plan, first),
        len(plan),
        plan.categories,
        CLASSES,
        plan.models,
        dict(pins_of(scenario, policy)),
        scenario.warm_up_s + scenario.window_s + scenario.drain_s,
        settings.poll_interval_s,
        settings.report_delay_s,
        settings.stale_after_s,
        progress,
    )
    roles = None
    if policy.roles is not None:
        twins = _twins(scenario, groups, seed, plan, categories, nodes)
        gateway.nodes.update((node.name, node) for node in nodes)
        roles = Roles(policy.roles, twins, fleet)
    loop.start(groups, changes, roles)
    return loop


def _twins(
    scenario: Scenario, groups: list[Group], seed: int, plan: Plan, categories: list[Category], nodes: list[Node]
) -> list[Twins]:
    """Every node that could have the other role, and itself in that role, which is added to ``nodes``."""
    context = float(plan.prompt_tokens.mean() + plan.output_tokens.mean() / 2.0) if len(plan) else 0.0
    shares = np.bincount(plan.category, minlength=len(categories)) / max(1, len(plan))
    accepted = float(sum(share * sum(one.survival) for share, one in zip(shares, categories, strict=True)))
    twins = []
    for group, built in zip(scenario.groups, groups, strict=True):
        equipment = group.speculative
        if equipment is None or equipment.settings.speculation is None:
            continue
        to_standard = group.pool is Pool.SPECULATIVE
        other, its_equipment = (Pool.STANDARD, group.standard) if to_standard else (Pool.SPECULATIVE, equipment)
        names = [f"{node.name}/{other.value}" for node in built.nodes]
        others = _nodes(group, names, other, its_equipment, group.ceiling, seed, categories, len(nodes))
        nodes += others
        tokens_a_step = 1.0 + equipment.settings.speculation.proposing_share * accepted
        speculative_pace = pace_of(forecast_of(equipment), context, tokens_a_step)
        standard_pace = pace_of(forecast_of(group.standard), context, 1.0)
        for one, two in zip(built.nodes, others, strict=True):
            twins.append(Twins(*((one, two) if to_standard else (two, one)), speculative_pace, standard_pace))
    return twins


def _group(group: NodeGroup, policy: Policy, seed: int, categories: list[Category], first: int) -> Group:
    """A group's nodes, equipped as the policy wants. ``first`` is the index of its first node in the fleet."""
    pool, equipment = equipped(group, policy)
    names = [f"{group.name}-{number}" for number in range(group.count)]
    return Group(group.name, _nodes(group, names, pool, equipment, ceiling_of(group, policy), seed, categories, first))


def _nodes(
    group: NodeGroup,
    names: list[str],
    pool: Pool,
    equipment: Equipment,
    ceiling: int,
    seed: int,
    categories: list[Category],
    first: int,
) -> list[Node]:
    settings = equipment.settings
    speculation = settings.speculation
    acceptance: list[RequestAcceptance] = []
    if speculation is not None:
        longest = speculation.longest
        acceptance = [RequestAcceptance(category.survival, category.spread, longest) for category in categories]
    times = StepTimes(equipment.rows)
    nodes = []
    for index, name in enumerate(names, first):
        spec = NodeSpec(name, "", pool, "sim", (group.model,), ceiling)
        engine = Engine(settings, times, _chance(seed, name))
        phase = index * GOLDEN_RATIO % 1.0
        nodes.append(Node(index, spec, group.gpus, phase, engine, settings.slots, speculation, acceptance))
    return nodes


def _chance(seed: int, name: str) -> Callable[[], float]:
    """A stream of uniform numbers of its own for each seed and purpose, the same in every process."""
    digest = blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return random.Random(int.from_bytes(digest, "big")).random


def _rows(plan: Plan, first: int) -> Rows:
    rows = slice(first, first + ROWS)
    return Rows(
        plan.arrival_s[rows].tolist(),
        plan.prompt_tokens[rows].tolist(),
        plan.output_tokens[rows].tolist(),
        plan.category[rows].tolist(),
        plan.traffic_class[rows].tolist(),
        plan.quantile[rows].tolist(),
        plan.output_limit[rows].tolist(),
        plan.model[rows].tolist(),
        plan.session[rows].tolist(),
    )


def _told(node: Node) -> NodeRun:
    engine, sizes = node.engine, np.array(node.batch_sizes())
    steps = int(sizes.sum())
    batches = np.arange(len(sizes))
    running = batches[sizes > 0]
    return NodeRun(
        name=node.name,
        pool=node.spec.pool,
        gpus=node.gpus,
        seconds=node.present_s,
        busy_s=engine.busy_s,
        steps=engine.steps,
        mean_running=float(sizes @ batches) / steps if steps else 0.0,
        running_p95=float(np.searchsorted(np.cumsum(sizes), 0.95 * steps)) if steps else 0.0,
        running_peak=int(running[-1]) if steps else 0,
        output_tokens=engine.generated_tokens,
        prompt_tokens=engine.prompt_tokens,
        drafted=engine.drafted,
        accepted=engine.accepted,
        verified=engine.verified_tokens,
        preemptions=engine.preemptions,
        saturated_share=node.saturated_s / node.present_s if node.present_s > 0.0 else 0.0,
    )
