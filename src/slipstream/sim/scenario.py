"""What is simulated: nodes, what arrives, under which policies, and which latencies count as good."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from slipstream.core.acceptance import AcceptancePrior
from slipstream.core.goodput import Target
from slipstream.core.policy import ThresholdSettings
from slipstream.core.request import Pool, TrafficClass
from slipstream.core.roles import RoleSettings
from slipstream.enginemodel.settings import EngineSettings
from slipstream.enginemodel.step_times import StepRows
from slipstream.workload.plan import Plan

__all__ = [
    "Category",
    "Equipment",
    "GatewaySettings",
    "NodeGroup",
    "Policy",
    "PolicyKind",
    "RoleChanges",
    "Scenario",
    "Target",
]


class PolicyKind(StrEnum):
    """Who decides where a request goes, and what the nodes are equipped with."""

    ALL_STANDARD = "all-standard"
    """No node speculates; least load."""
    ALL_SPECULATIVE = "all-speculative"
    """Every node speculates, with its fixed K; least load."""
    ALL_SCHEDULED = "all-scheduled"
    """Every node speculates, and its engine drafts less as its batch grows; least load."""
    SPLIT_ROUND_ROBIN = "split-round-robin"
    """The pools as given; nodes in turn, whatever their pool."""
    SPLIT_LEAST_LOAD = "split-least-load"
    """The pools as given; the least loaded node of either."""
    SPLIT_LISTS = "split-lists"
    """The pools as given; listed categories to the speculative one, least load inside."""
    THRESHOLD = "threshold"
    """The gateway's own."""
    PREDICTIVE = "predictive"
    """The gateway's own where it has a profile of each node: here the very times that its steps take."""
    BOUND = "bound"
    """No policy: what none can exceed, computed (docs/explanation/simulator.md)."""


@dataclass(frozen=True, slots=True)
class RoleChanges:
    """Nodes that can do without their speculator or with it change to the other role as ``settings`` say. An engine
    serves ``restart_s`` seconds after it was ended; what it has before that, it has ``drain_s`` to end.
    """

    settings: RoleSettings
    restart_s: float
    drain_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy to simulate. ``name`` is unique in a scenario. ``threshold`` is for `THRESHOLD` and `PREDICTIVE`;
    `THRESHOLD` is given its ceiling beside (``None`` = as each node's). ``profile_error`` is for `PREDICTIVE`: what its
    profiles say that steps take, over what they do take. ``speculative_categories`` is for `SPLIT_LISTS`. ``schedule``
    is for `ALL_SCHEDULED`, as in `Speculation`. ``roles`` is for `THRESHOLD` and `PREDICTIVE`: when nodes change
    theirs, ``None`` = never.
    """

    name: str
    kind: PolicyKind
    ceiling: int | None = None
    threshold: ThresholdSettings = field(default_factory=ThresholdSettings)
    speculative_categories: frozenset[str] = frozenset()
    schedule: tuple[tuple[int, int], ...] = ()
    profile_error: float = 1.0
    roles: RoleChanges | None = None


@dataclass(frozen=True, slots=True)
class Equipment:
    """A node as an engine: its settings and what its steps take."""

    settings: EngineSettings
    rows: StepRows


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """``count`` nodes alike, named ``name-0`` and so on.

    ``standard`` and ``speculative`` are the same hardware equipped either way (less room for keys and values beside a
    drafter); ``speculative`` is ``None`` where no speculator is known. ``pool`` says which holds where the pools are as
    given. ``gpus`` a node. ``ceiling`` counts sequences. ``capacity_changes``: (at_s, how many of the nodes are there
    from then on), rising; nodes that go finish what they have and take no more.
    """

    name: str
    count: int
    pool: Pool
    model: str
    standard: Equipment
    speculative: Equipment | None
    gpus: int = 1
    ceiling: int = 8
    capacity_changes: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Category:
    """Acceptance of a category: ``survival[i]`` is the share of verify steps in which draft position i + 1 is accepted,
    over all its requests; ``spread`` how much requests differ (standard deviation of their alpha, 0 = not at all).
    """

    name: str
    survival: tuple[float, ...]
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """How the gateway works: polling every ``poll_interval_s``, an answer ``report_delay_s`` old when it comes,
    forwarding in ``forward_s``; queue and times as in its configuration.
    """

    poll_interval_s: float = 0.1
    report_delay_s: float = 0.005
    stale_after_s: float = 1.0
    hysteresis: int = 0
    forward_s: float = 0.0005
    queue_size: int = 256
    queue_timeout_s: float = 10.0
    retries: int = 2
    evidence_half_life_s: float = 600.0
    request_statistics: bool = True
    """Whether answers say what was drafted and accepted; if not, the gateway reads counters alone."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fleet, its traffic and what is asked of it.

    ``plan_of(seed)`` is what arrives. Requests that arrive in ``window_s`` seconds after ``warm_up_s`` count; the run
    goes on until all have ended, at most ``drain_s`` longer: who is not finished then has missed its targets.
    """

    name: str
    groups: tuple[NodeGroup, ...]
    categories: tuple[Category, ...]
    plan_of: Callable[[int], Plan]
    policies: tuple[Policy, ...]
    targets: Mapping[TrafficClass, Target]
    seeds: tuple[int, ...]
    window_s: float
    warm_up_s: float = 0.0
    drain_s: float = 120.0
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    prior: AcceptancePrior = field(default_factory=AcceptancePrior)
    about: str = ""
    """What it shows, in words."""
