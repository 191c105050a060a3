"""A scenario's file and its sections: a fleet, its traffic, and the policies to compare. Descriptions are the
reference: docs and JSON schema are made from them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from slipstream.config.endpoints import Queue
from slipstream.config.roles import RolesSection
from slipstream.config.scenario_nodes import DraftRange, NodeGroupSection, ProfileSection
from slipstream.config.scenario_workload import WorkloadSection
from slipstream.config.schema import Polling, Pools, RoutingRules
from slipstream.config.section import Count, NodeName, Seconds, Section, Share
from slipstream.config.targets import Targets

__all__ = [
    "PolicySection",
    "ScenarioConfig",
    "ScenarioControl",
    "ScenarioGateway",
    "ScenarioRoles",
]

Delay = Annotated[float, Field(ge=0, le=60_000)]
Kind = Literal[
    "all-standard",
    "all-speculative",
    "all-scheduled",
    "split-round-robin",
    "split-least-load",
    "split-lists",
    "threshold",
    "predictive",
    "bound",
]


class ScenarioGateway(Section):
    """The gateway before the nodes. Of `fleet.yaml`'s section of that name: what matters in a simulation."""

    retries: Annotated[int, Field(ge=0, le=10)] = Field(
        default=2, description="Other nodes tried when one refuses a request."
    )
    queue: Queue = Field(default=Queue(), description="Requests that wait while every node is full.")
    forward_ms: Delay = Field(default=0.5, description="Milliseconds that a request takes through the gateway.")
    request_statistics: bool = Field(
        default=True,
        description="Whether answers say what was drafted and accepted (a node's `instrument: engine`); if not, "
        "acceptance is known from counters alone.",
    )


class ScenarioControl(Polling):
    """The loop that asks the engines how they are."""

    report_delay_ms: Delay = Field(default=5.0, description="Milliseconds until an engine's answer is there.")


class ScenarioRoles(RolesSection):
    """When nodes change their roles, as in `fleet.yaml`; and how long an engine takes for it."""

    restart_s: Seconds = Field(description="Seconds from an engine's end until it serves in its other role.")
    drain_timeout_s: Seconds = Field(
        default=120.0, description="For so long a node may finish what it has; then it keeps its role."
    )


class PolicySection(Section):
    """Who decides where a request goes. In place of the section, its kind alone."""

    kind: Kind = Field(
        description="`threshold` and `predictive` are the gateway's own, by rules or by what the nodes' profiles "
        "foretell for the targets. `all-*`: every node without a speculator, with one, or with one that drafts by "
        "`schedule`; the least loaded node. `split-*`: the pools as given; nodes in turn, the least loaded one, or "
        "`categories` to the speculative ones. `bound`: what no policy can exceed, computed."
    )
    name: NodeName | None = Field(default=None, description="Unique name; left out = its kind.")
    ceiling: Count | None = Field(
        default=None, description="Of `threshold`: ceiling of every speculative node; left out = as each node's."
    )
    alpha_floor: Share | None = Field(
        default=None, description="Of `threshold`: in place of that of `pools.speculative`."
    )
    holdback: Share | None = Field(
        default=None, description="Of `threshold` and `predictive`: in place of that of `routing`."
    )
    profile_error: Annotated[float, Field(ge=0.1, le=10)] | None = Field(
        default=None,
        description="Of `predictive`: what its profiles say that steps take, over what they do take; left out = 1.",
    )
    categories: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        default=(), description="Of `split-lists`: categories that go to the speculative pool."
    )
    roles: ScenarioRoles | None = Field(
        default=None, description="Of `threshold`: when nodes change their roles; left out = never."
    )
    schedule: Annotated[tuple[DraftRange, ...], Field(strict=False)] = Field(
        default=(), description="Of `all-scheduled`: draft lengths by batch size."
    )

    @model_validator(mode="before")
    @classmethod
    def _kind_alone(cls, data: object) -> object:
        return {"kind": data} if isinstance(data, str) else data

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        reference: dict[str, Any] = handler(core_schema)
        handler.resolve_ref_schema(reference).update({"type": ["string", "object"]})
        return reference


DEFAULT_POLICIES = ("all-standard", "all-speculative", "split-round-robin", "split-least-load", "threshold", "bound")


class ScenarioConfig(Section):
    """A fleet in virtual time, what arrives, and the policies to compare."""

    model_config = ConfigDict(title="Slipstream scenario")

    about: str = Field(default="", description="What it shows, in words.")
    seeds: Annotated[tuple[Annotated[int, Field(ge=0, le=2**63 - 1)], ...], Field(strict=False)] = Field(
        default=(1, 2, 3), description="Every policy meets the same requests once a seed; intervals are over seeds."
    )
    window_s: Annotated[float, Field(gt=0, le=1e9)] = Field(
        default=600.0, description="Seconds after the warm-up; requests that arrive in them count."
    )
    warm_up_s: Annotated[float, Field(ge=0, le=1e9)] = Field(
        default=60.0, description="Seconds at the start whose requests do not count."
    )
    drain_s: Annotated[float, Field(ge=0, le=1e9)] = Field(
        default=120.0, description="Seconds after the last arrival that requests have to end."
    )
    targets: Targets = Field(default=Targets(), description="Latencies that count as good, by class.")
    profiles: dict[str, ProfileSection] = Field(description="What nodes are made of, by name.")
    nodes: Annotated[tuple[NodeGroupSection, ...], Field(strict=False)] = Field(description="The fleet, by groups.")
    workload: WorkloadSection = Field(description="What arrives.")
    gateway: ScenarioGateway = Field(default=ScenarioGateway(), description="The gateway before the nodes.")
    control: ScenarioControl = Field(
        default=ScenarioControl(), description="The loop that asks the engines how they are."
    )
    pools: Pools = Field(default=Pools(), description="When a request may speculate, as in `fleet.yaml`.")
    routing: RoutingRules = Field(
        default=RoutingRules(), description="How decisions are made and kept honest, as in `fleet.yaml`."
    )
    policies: Annotated[tuple[PolicySection, ...], Field(strict=False)] = Field(
        default_factory=lambda: tuple(PolicySection.model_validate(kind) for kind in DEFAULT_POLICIES),
        description=f"The policies to compare, each with a name of its own; left out = {', '.join(DEFAULT_POLICIES)}.",
    )
