"""Small fleets to simulate: steps that take a round time, plans made by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slipstream.core.request import Pool
from slipstream.enginemodel.settings import EngineSettings, Speculation
from slipstream.enginemodel.step_times import KNOTS
from slipstream.sim.scenario import Category, Equipment, GatewaySettings, NodeGroup, Policy, PolicyKind, Scenario
from slipstream.workload.plan import NO_LIMIT, Plan

MODEL = "m"
THRESHOLD = Policy("threshold", PolicyKind.THRESHOLD)
INTERACTIVE, BULK = 0, 1


@dataclass(frozen=True)
class FlatRows:
    """Every step takes ``step_s``, and ``sequence_s`` more for each sequence that decodes; prompts add nothing."""

    step_s: float = 0.01
    sequence_s: float = 0.0

    @property
    def pair_s(self) -> float:
        return 0.0

    def decode_row(self, decoding: int, drafting: int, k: int) -> tuple[float, ...]:
        return (self.step_s + self.sequence_s * decoding,) * len(KNOTS)

    def prefill_row(self, tokens_beside: int) -> tuple[float, ...]:
        return (0.0 if tokens_beside else self.step_s,) * len(KNOTS)

    def drafter_prefill_row(self) -> tuple[float, ...]:
        return (0.0,) * len(KNOTS)


def equipment(slots: int, speculation: Speculation | None, rows: FlatRows | None, **settings: int | None) -> Equipment:
    return Equipment(
        EngineSettings(slots=slots, speculation=speculation, **settings),  # type: ignore[arg-type] # names are EngineSettings'
        rows or FlatRows(),
    )


def group(
    name: str,
    count: int = 1,
    pool: Pool = Pool.STANDARD,
    *,
    slots: int = 8,
    ceiling: int = 8,
    speculation: Speculation | None = None,
    rows: FlatRows | None = None,
    capacity_changes: tuple[tuple[float, int], ...] = (),
    **settings: int | None,
) -> NodeGroup:
    return NodeGroup(
        name,
        count,
        pool,
        MODEL,
        equipment(slots, None, rows, **settings),
        equipment(slots, speculation or Speculation(), rows, **settings),
        ceiling=ceiling,
        capacity_changes=capacity_changes,
    )


def speculative(name: str, count: int = 1, *, slots: int = 8, ceiling: int = 8) -> NodeGroup:
    return group(name, count, Pool.SPECULATIVE, slots=slots, ceiling=ceiling)


def plan(
    arrivals: Sequence[float],
    *,
    output_tokens: int | Sequence[int] = 10,
    prompt_tokens: int = 10,
    category: int | Sequence[int] = 0,
    traffic_class: int | Sequence[int] = INTERACTIVE,
    output_limit: int = NO_LIMIT,
    session: int | Sequence[int] = NO_LIMIT,
    categories: tuple[str, ...] = ("code", "chat"),
    models: tuple[str, ...] = (MODEL,),
) -> Plan:
    count = len(arrivals)

    def column(values: int | Sequence[int], dtype: type[Any]) -> NDArray[Any]:
        return np.broadcast_to(np.asarray(values, dtype), count).copy()

    return Plan(
        categories=categories,
        models=models,
        arrival_s=np.array(arrivals, np.float64),
        prompt_tokens=column(prompt_tokens, np.int64),
        output_tokens=column(output_tokens, np.int64),
        category=column(category, np.int16),
        traffic_class=column(traffic_class, np.int8),
        quantile=(np.arange(count) + 0.5) / max(count, 1),
        output_limit=column(output_limit, np.int64),
        model=column(0, np.int16),
        session=column(session, np.int64),
    )


def scenario(
    groups: Sequence[NodeGroup],
    traffic: Plan | Callable[[int], Plan],
    *,
    gateway: GatewaySettings | None = None,
    window_s: float = 1000.0,
    drain_s: float = 120.0,
    alphas: Sequence[float] = (0.8, 0.5),
) -> Scenario:
    return Scenario(
        name="small",
        groups=tuple(groups),
        categories=tuple(
            Category(name, tuple(alpha**position for position in range(1, 5)))
            for name, alpha in zip(("code", "chat"), alphas, strict=True)
        ),
        plan_of=traffic if callable(traffic) else lambda _seed: traffic,
        policies=(THRESHOLD,),
        targets={},
        seeds=(1,),
        window_s=window_s,
        drain_s=drain_s,
        gateway=gateway or GatewaySettings(),
    )
