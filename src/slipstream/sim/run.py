"""What came of a simulated run: a row a request in columns, a row a node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slipstream.core.request import Pool
from slipstream.sim.fate import REASONS, Fate
from slipstream.workload.plan import Plan

__all__ = ["REASONS", "Fate", "NodeRun", "Run"]


@dataclass(frozen=True, slots=True)
class NodeRun:
    """One node over the whole run. Shares are 0..1 of the run's time, in which ``busy_s`` seconds had a step running.

    ``mean_running`` is over steps, ``running_p95`` too. ``drafted`` and ``accepted`` count tokens, ``verified`` query
    tokens of verify steps, bonus positions included. ``saturated_share`` is the gateway's account.
    """

    name: str
    pool: Pool
    gpus: int
    seconds: float
    busy_s: float
    steps: int
    mean_running: float
    running_p95: float
    running_peak: int
    output_tokens: int
    prompt_tokens: int
    drafted: int
    accepted: int
    verified: int
    preemptions: int
    saturated_share: float


@dataclass(frozen=True, slots=True)
class Run:
    """Columns as long as ``plan``. Times are seconds since the plan's start, NaN = it did not come to that.

    ``node`` is an index into ``nodes``, -1 = none; ``reason`` into `REASONS`, -1 = never placed; ``fate`` a `Fate`.
    ``queued_s`` is for how long it waited in the gateway, ``attempts`` how often it was given to a node;
    ``engine_wait_s`` for how long the engine of its last attempt let it wait before it first ran. ``steps`` are those
    in which it was decoded, ``verify_steps`` those in which it had a draft.
    """

    policy: str
    seed: int
    plan: Plan
    nodes: tuple[NodeRun, ...]
    node: NDArray[np.int16]
    reason: NDArray[np.int8]
    fate: NDArray[np.int8]
    attempts: NDArray[np.int16]
    queued_s: NDArray[np.float64]
    engine_wait_s: NDArray[np.float64]
    first_token_s: NDArray[np.float64]
    ended_s: NDArray[np.float64]
    drafted: NDArray[np.int32]
    accepted: NDArray[np.int32]
    verify_steps: NDArray[np.int32]
    steps: NDArray[np.int32]
    ended_at_s: float
    """When the run was over."""
    wall_s: float
    """How long it took to simulate."""
