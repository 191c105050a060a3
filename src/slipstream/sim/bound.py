"""What no policy can exceed: the goodput of a fluid that knows every arrival, length and acceptance beforehand.

A linear program over charges of node time. docs/explanation/simulator.md proves that it is a bound, and on what.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from slipstream.enginemodel.acceptance import CLASSES as ACCEPTANCE_CLASSES
from slipstream.enginemodel.acceptance import RequestAcceptance
from slipstream.sim.intervals import Interval, interval_of, mean_of
from slipstream.sim.node_time import Charges, Demand, arm_of, least_node_time
from slipstream.sim.scenario import Category, Equipment, NodeGroup, Policy, Scenario
from slipstream.workload.plan import CLASSES, Plan

__all__ = ["Bound", "BoundResult", "bound", "longest_draft", "summarise_bounds"]

_Floats = NDArray[np.float64]
_Indexes = NDArray[np.int64]

_BINS = 12
"""Parts of the window that arrivals and deadlines are rounded to, outwards."""
_LATER = (0.25, 0.5, 0.75, 0.9, 0.97, 1.0)
"""Deadlines past the window are rounded up to these quantiles of theirs."""
_FINENESS = 1.03
"""Charges within this factor of one another are taken for the least of them."""
_OTHER_WEIGHTS = (0.7, 1.4)
_LEAST_CHARGE_S = 1e-12


@dataclass(frozen=True, slots=True)
class Bound:
    """``goodput``: expected requests a second of the window that meet their targets, at most, over everything that
    chance decides once the plan is given. ``attainment``: the same as a share of the ``offered``, ``None`` without
    any. ``possible``: those that an empty node could serve within their targets.
    """

    seed: int
    goodput: float
    attainment: float | None
    offered: int
    possible: int


@dataclass(frozen=True, slots=True)
class BoundResult:
    """The bound over ``seeds``: means and 95 % intervals, ``None`` for a single seed."""

    policy: str
    seeds: int
    goodput: float
    goodput_interval: Interval | None
    attainment: float | None
    attainment_interval: Interval | None


@dataclass(frozen=True, slots=True)
class _Hardware:
    """Nodes that can be equipped alike."""

    standard: Equipment
    speculative: Equipment | None
    groups: tuple[NodeGroup, ...]


@dataclass(frozen=True, slots=True)
class _Items:
    """Parts of requests, each with what it adds to the number of good ones (``share``) and its node time a whole one.
    ``begin`` and ``end`` are edges of bins.
    """

    share: _Floats
    charge_s: _Floats
    begin: _Indexes
    end: _Indexes


def bound(scenario: Scenario, seed: int) -> Bound:
    """Of the requests that arrive in the scenario's window under this seed. Takes about a second for 100,000."""
    plan = scenario.plan_of(seed)
    start, stop = scenario.warm_up_s, scenario.warm_up_s + scenario.window_s
    counted = (plan.arrival_s >= start) & (plan.arrival_s < stop)
    offered = int(counted.sum())
    good, possible = 0.0, 0
    for number, model in enumerate(plan.models):
        everyone = plan.model == number
        mine = np.flatnonzero(counted & everyone)
        hardware = _hardware_of([group for group in scenario.groups if group.model == model])
        if mine.size and hardware:
            most, able = _good_requests(scenario, plan, mine, everyone, hardware)
            good += most
            possible += able
    good = min(good, float(possible))
    return Bound(seed, good / scenario.window_s, good / offered if offered else None, offered, possible)


def summarise_bounds(policy: str, bounds: Sequence[Bound]) -> BoundResult:
    """Of one scenario, one a seed. ValueError for none."""
    if not bounds:
        raise ValueError("there is nothing to sum up without a bound")
    goodput = [one.goodput for one in bounds]
    attainment = [one.attainment for one in bounds if one.attainment is not None]
    mean = sum(goodput) / len(goodput)
    return BoundResult(policy, len(bounds), mean, interval_of(goodput), mean_of(attainment), interval_of(attainment))


def _hardware_of(groups: Iterable[NodeGroup]) -> list[_Hardware]:
    kinds: list[_Hardware] = []
    for group in groups:
        for index, kind in enumerate(kinds):
            if (kind.standard, kind.speculative) == (group.standard, group.speculative):
                kinds[index] = _Hardware(kind.standard, kind.speculative, (*kind.groups, group))
                break
        else:
            kinds.append(_Hardware(group.standard, group.speculative, (group,)))
    return kinds


def _good_requests(
    scenario: Scenario, plan: Plan, mine: _Indexes, everyone: NDArray[np.bool_], hardware: Sequence[_Hardware]
) -> tuple[float, int]:
    """How many of the requests ``mine``, of one model, can be good together, and how many alone."""
    shortest = int(plan.prompt_tokens[everyone].min())
    longest = int((plan.prompt_tokens + plan.output_tokens)[everyone].max())
    drafts = _longest_drafts([group for kind in hardware for group in kind.groups], scenario.policies)
    lengths = range(max(drafts, default=0) + 1)
    demand, deadline = _demand(scenario, plan, mine, drafts)
    charges = [
        [
            least_node_time(arm_of(equipment, lengths, shortest, longest, int(everyone.sum())), demand)
            for equipment in (kind.standard, kind.speculative)
            if equipment is not None
        ]
        for kind in hardware
    ]
    able = np.isfinite(np.min([each.low_s for arms in charges for each in arms], axis=0))
    if not able.any():
        return 0.0, 0
    start, end = scenario.warm_up_s, scenario.warm_up_s + scenario.window_s
    changes = [at_s for kind in hardware for group in kind.groups for at_s, _ in group.capacity_changes]
    edges = _edges(start, end, end + scenario.drain_s, changes, deadline)
    begin = np.searchsorted(edges, plan.arrival_s[mine], side="right") - 1
    until = np.minimum(np.searchsorted(edges, deadline, side="left"), len(edges) - 1)
    capacity = [_capacity(kind.groups, edges) for kind in hardware]
    # Each choice of weights for the hardware gives a bound. One unit of each is made worth as many requests.
    even = 1.0 / np.array([_mean(arms) for arms in charges])
    choices = [even]
    for index in range(1, len(hardware)):
        for other in _OTHER_WEIGHTS:
            weights = even.copy()
            weights[index] *= other
            choices.append(weights)
    most = min(
        _most_good(
            _items(charges, weights, begin, until),
            np.sum([weight * its for weight, its in zip(weights, capacity, strict=True)], axis=0),
        )
        for weights in choices
    )
    return most, int(able.sum())


def longest_draft(groups: Iterable[NodeGroup], policies: Iterable[Policy]) -> int:
    """The longest draft that anyone is set up for."""
    return max(_longest_drafts(groups, policies), default=0)


def _longest_drafts(groups: Iterable[NodeGroup], policies: Iterable[Policy]) -> set[int]:
    """The longest drafts of engines that speculate, as they are and by the policies' schedules."""
    speculations = [group.speculative.settings.speculation for group in groups if group.speculative is not None]
    found = {speculation.longest for speculation in speculations if speculation is not None}
    if found:
        found |= {max(k for _, k in policy.schedule) for policy in policies if policy.schedule}
    return found


def _acceptance(
    categories: Sequence[Category], plan: Plan, mine: _Indexes, drafts: set[int]
) -> tuple[_Floats, _Floats]:
    """Each request's mean acceptance length, by draft length from 0 to the longest of ``drafts``, and its luck as in
    `Demand`. Where requests differ, how much one has accepted depends a little on its engine's longest draft: the best
    case is taken.
    """
    of_name = {category.name: category for category in categories}
    tau = np.ones((len(plan.categories), ACCEPTANCE_CLASSES, max(drafts, default=0) + 1))
    luck = np.zeros(tau.shape[:2])
    middles = (np.arange(ACCEPTANCE_CLASSES) + 0.5) / ACCEPTANCE_CLASSES
    for number, name in enumerate(plan.categories):
        category = of_name[name]
        for longest in drafts:
            acceptance = RequestAcceptance(category.survival, category.spread, longest)
            survival = np.array([acceptance.at(middle) for middle in middles])
            emitted = 1.0 + np.cumsum(survival, axis=1)
            squared = 1.0 + np.cumsum(survival * (2.0 * np.arange(1, longest + 1) + 1.0), axis=1)
            known = tau[number, :, 1 : longest + 1]
            np.maximum(known, emitted, out=known)
            luck[number] = np.maximum(luck[number], ((squared - emitted**2) / emitted).max(axis=1, initial=0.0))
    position = np.minimum((plan.quantile[mine] * ACCEPTANCE_CLASSES).astype(np.int64), ACCEPTANCE_CLASSES - 1)
    return tau[plan.category[mine], position], luck[plan.category[mine], position]


def _demand(scenario: Scenario, plan: Plan, mine: _Indexes, drafts: set[int]) -> tuple[Demand, _Floats]:
    """What the requests ask for, and when each must have ended to be good."""
    ttft, tpot, e2e = (np.full(mine.size, inf) for _ in range(3))
    for number, traffic_class in enumerate(CLASSES):
        target = scenario.targets.get(traffic_class)
        own = plan.traffic_class[mine] == number
        if target is not None:
            for limits, limit in ((ttft, target.ttft_s), (tpot, target.tpot_s), (e2e, target.e2e_s)):
                if limit is not None:
                    limits[own] = limit
    forward = scenario.gateway.forward_s
    output = plan.output_tokens[mine].astype(float)
    more = output - 1.0
    answer = np.where(more > 0.0, tpot * np.maximum(more, 1.0), inf)
    ends = plan.arrival_s[mine] + np.minimum(e2e, ttft + np.where(more > 0.0, answer, 0.0))
    tau, luck = _acceptance(scenario.categories, plan, mine, drafts)
    demand = Demand(
        prompt_tokens=plan.prompt_tokens[mine].astype(float),
        output_tokens=output,
        first_token_limit_s=np.minimum(ttft, e2e) - forward,
        decode_limit_s=np.minimum(answer, e2e - forward),
        tau=tau,
        luck=luck,
    )
    return demand, ends


def _edges(start: float, end: float, over: float, changes: Sequence[float], deadline: _Floats) -> _Floats:
    """Of bins, from ``start`` to the last deadline. When the run is ``over`` so are the deadlines. One is where nodes
    come or go.
    """
    within: _Floats = np.unique(
        [*np.linspace(start, end, _BINS + 1), *(at_s for at_s in changes if start < at_s < end)]
    )
    later = np.minimum(deadline[deadline > end], max(over, end))
    if not later.size:
        return within
    return np.unique(np.concatenate([within, np.quantile(later, _LATER, method="higher")]))


def _capacity(groups: Iterable[NodeGroup], edges: _Floats) -> _Floats:
    """Node seconds from edge i to edge j for requests that arrive from i on: nodes that leave finish what they have."""
    size = len(edges)
    found = np.zeros((size, size))
    for group in groups:
        changes = ((0.0, group.count), *group.capacity_changes)
        for node in range(max(count for _, count in changes)):
            for came, left in _presence(changes, node):
                reachable = (left > edges)[:, None]
                seconds = edges[None, :] - np.maximum(edges, came)[:, None]
                found += np.where(reachable, np.maximum(seconds, 0.0), 0.0)
    return found


def _presence(changes: Sequence[tuple[float, int]], node: int) -> list[tuple[float, float]]:
    """When a node takes requests: (from, until). The first ``count`` nodes of a group are there."""
    spans: list[tuple[float, float]] = []
    came: float | None = None
    for at_s, count in changes:
        if node < count and came is None:
            came = at_s
        elif node >= count and came is not None:
            spans.append((came, at_s))
            came = None
    if came is not None:
        spans.append((came, inf))
    return spans


def _mean(arms: Sequence[Charges]) -> float:
    """Of a request's cheaper arm, over those that can be good."""
    cheapest = np.min([each.high_s for each in arms], axis=0)
    finite = cheapest[np.isfinite(cheapest)]
    return max(float(finite.mean()), _LEAST_CHARGE_S) if finite.size else 1.0


def _items(charges: Sequence[Sequence[Charges]], weights: _Floats, begin: _Indexes, until: _Indexes) -> _Items:
    """The cheapest parts of each request, up to a whole one, over all equipment it could be served by."""
    shares: list[_Floats] = []
    costs: list[_Floats] = []
    for weight, arms in zip(weights.tolist(), charges, strict=True):
        for each in arms:
            shares += [each.share, 1.0 - each.share]
            costs += [each.low_s * weight, each.high_s * weight]
    share, cost = np.stack(shares, axis=1), np.stack(costs, axis=1)
    order = np.argsort(cost, axis=1, kind="stable")
    share, cost = np.take_along_axis(share, order, axis=1), np.take_along_axis(cost, order, axis=1)
    filled = np.minimum(np.cumsum(share, axis=1), 1.0)
    share = np.diff(filled, axis=1, prepend=0.0)
    width = share.shape[1]
    used = ((share > 0.0) & np.isfinite(cost)).ravel()
    return _Items(
        share.ravel()[used],
        np.maximum(cost.ravel()[used], _LEAST_CHARGE_S),
        np.repeat(begin, width)[used],
        np.repeat(until, width)[used],
    )


def _most_good(items: _Items, capacity: _Floats) -> float:
    """The linear program: shares served, so that no stretch of time is asked for more than it has."""
    # Imported here, since they take longer to load than everything else that is simulated with.
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    level = np.floor(np.log(items.charge_s) / np.log(_FINENESS)).astype(np.int64)
    keys, alike = np.unique(np.stack([items.begin, items.end, level]), axis=1, return_inverse=True)
    alike = alike.ravel()
    share = np.bincount(alike, weights=items.share)
    charge = np.full(share.size, inf)
    np.minimum.at(charge, alike, items.charge_s)
    begin, end = keys[0], keys[1]
    rows: list[_Indexes] = []
    columns: list[_Indexes] = []
    limits: list[float] = []
    for first in np.unique(begin):
        for last in np.unique(end[begin >= first]):
            inside = np.flatnonzero((begin >= first) & (end <= last))
            rows.append(np.full(inside.size, len(limits)))
            columns.append(inside)
            limits.append(float(capacity[first, last]))
    column = np.concatenate(columns)
    matrix = csr_array((charge[column], (np.concatenate(rows), column)), shape=(len(limits), share.size))
    solved = linprog(
        -np.ones(share.size), A_ub=matrix, b_ub=np.array(limits), bounds=np.stack([np.zeros(share.size), share], axis=1)
    )
    assert solved.success, solved.message  # serving nobody is a solution, and there is no better one than serving all
    return float(-solved.fun)
