"""Runs written down by hand, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.core.request import Pool
from slipstream.sim.run import NodeRun, Run
from tiny_scenarios import plan_of


def node_run(name: str, **figures: Any) -> NodeRun:
    """A standard node of one GPU that was there for ten seconds and did nothing."""
    idle: dict[str, Any] = {
        "pool": Pool.STANDARD,
        "gpus": 1,
        "seconds": 10.0,
        "busy_s": 0.0,
        "steps": 0,
        "mean_running": 0.0,
        "running_p95": 0.0,
        "running_peak": 0,
        "output_tokens": 0,
        "prompt_tokens": 0,
        "drafted": 0,
        "accepted": 0,
        "verified": 0,
        "preemptions": 0,
        "saturated_share": 0.0,
    }
    return NodeRun(name, **{**idle, **figures})


def run_of(
    *,
    arrival_s: Sequence[float],
    first_token_s: Sequence[float],
    ended_s: Sequence[float],
    fate: Sequence[int],
    output_tokens: int | Sequence[int] = 21,
    categories: tuple[str, ...] = ("code",),
    category: int | Sequence[int] = 0,
    nodes: tuple[NodeRun, ...] = (),
    ended_at_s: float = 100.0,
    **columns: Sequence[float],
) -> Run:
    """A run; columns not given are 0."""
    count = len(arrival_s)

    def column(name: str, kind: Any) -> Any:
        return np.asarray(columns.get(name, [0] * count), kind)

    return Run(
        policy="made",
        seed=1,
        plan=plan_of(arrival_s, output_tokens=output_tokens, categories=categories, category=category),
        nodes=nodes,
        node=column("node", np.int16),
        reason=column("reason", np.int8),
        fate=np.asarray(fate, np.int8),
        attempts=column("attempts", np.int16),
        queued_s=column("queued_s", np.float64),
        engine_wait_s=column("engine_wait_s", np.float64),
        first_token_s=np.asarray(first_token_s, np.float64),
        ended_s=np.asarray(ended_s, np.float64),
        drafted=column("drafted", np.int32),
        accepted=column("accepted", np.int32),
        verify_steps=column("verify_steps", np.int32),
        steps=column("steps", np.int32),
        ended_at_s=ended_at_s,
        wall_s=0.0,
    )
