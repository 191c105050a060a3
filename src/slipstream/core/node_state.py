"""A node of the fleet as it is now, and the group of nodes that it is interchangeable with."""

from __future__ import annotations

from collections import Counter

from slipstream.core.circuit import Circuit, CircuitState
from slipstream.core.departures import Departures
from slipstream.core.learned_limit import LearnedLimit
from slipstream.core.ledger import Ledger
from slipstream.core.load_index import Indexed, LoadIndex
from slipstream.core.node import DEFAULT_MAX_IN_FLIGHT, NodeReport, NodeSpec, Speculator
from slipstream.core.occupancy import ForeignSequences
from slipstream.core.reason import Reason
from slipstream.core.recheck import Recheck
from slipstream.core.request import Pool
from slipstream.core.saturation import TimeShare

__all__ = ["NodeFacts", "NodeState", "ReplicaGroup", "reason_closed"]


class NodeFacts:
    """All of a node's state that a decision depends on, at one version of the fleet. An ejected node is not healthy."""

    __slots__ = (
        "ceiling",
        "draining",
        "engine",
        "fallen_back",
        "foreign",
        "fresh",
        "full_at",
        "healthy",
        "limit",
        "models",
        "own",
        "pool",
        "refusing",
        "saturated",
        "speculator",
    )

    def __init__(
        self,
        pool: Pool,
        models: tuple[str, ...],
        speculator: Speculator | None,
        engine: str | None,
        own: int,
        foreign: int,
        ceiling: int,
        limit: int,
        full_at: int,
        healthy: bool,  # noqa: FBT001 - a row of data, as the next six
        fresh: bool,  # noqa: FBT001
        draining: bool,  # noqa: FBT001
        refusing: bool,  # noqa: FBT001
        saturated: bool,  # noqa: FBT001
        fallen_back: bool,  # noqa: FBT001
    ) -> None:
        self.pool = pool
        self.models = models
        self.speculator = speculator
        self.engine = engine
        self.own = own
        self.foreign = foreign
        self.ceiling = ceiling
        self.limit = limit
        self.full_at = full_at
        self.healthy = healthy
        self.fresh = fresh
        self.draining = draining
        self.refusing = refusing
        self.saturated = saturated
        self.fallen_back = fallen_back

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, NodeFacts)
            and self.own == other.own
            and self.foreign == other.foreign
            and self.saturated is other.saturated
            and self.fresh is other.fresh
            and self.healthy is other.healthy
            and self.refusing is other.refusing
            and self.draining is other.draining
            and self.limit == other.limit
            and self.full_at == other.full_at
            and self.ceiling == other.ceiling
            and self.fallen_back is other.fallen_back
            and (self.speculator is other.speculator or self.speculator == other.speculator)
            and (self.models is other.models or self.models == other.models)
            and self.engine == other.engine
            and self.pool is other.pool
        )

    __hash__ = None  # type: ignore[assignment] # compared, never a key

    def with_own(self, own: int, *, saturated: bool) -> NodeFacts:
        """The same node, with so many sequences of ours."""
        return NodeFacts(
            self.pool,
            self.models,
            self.speculator,
            self.engine,
            own,
            self.foreign,
            self.ceiling,
            self.limit,
            self.full_at,
            self.healthy,
            self.fresh,
            self.draining,
            self.refusing,
            saturated,
            self.fallen_back,
        )

    @property
    def occupancy(self) -> int:
        """Sequences the node works on: ours and foreign ones."""
        return self.own + self.foreign

    @property
    def closed(self) -> Reason | None:
        """Why the node takes no request of its pool; ``None`` when it takes them."""
        return reason_closed(
            self.pool,
            healthy=self.healthy,
            draining=self.draining,
            full=self.refusing or self.occupancy >= self.limit,
            speculating=self.speculator is not None,
            fresh=self.fresh,
            saturated=self.saturated,
        )


def reason_closed(
    pool: Pool, *, healthy: bool, draining: bool, full: bool, speculating: bool, fresh: bool, saturated: bool
) -> Reason | None:
    """Why a node in this state takes no request of its pool: the first reason that holds; ``None`` when it takes them.

    A standard node with stale telemetry is open: our own ledger still bounds it.
    """
    if not healthy:
        return Reason.UNHEALTHY
    if draining:
        return Reason.DRAINING
    if saturated and pool is Pool.SPECULATIVE:
        return Reason.SATURATED
    if full:
        return Reason.FULL
    if pool is Pool.STANDARD:
        return None
    if not speculating:
        return Reason.NO_SPECULATOR
    return None if fresh else Reason.STALE


class ReplicaGroup:
    """Nodes that are interchangeable for routing: same pool, models, speculator and engine.

    ``open`` holds those that take requests of their pool by the rules, by load; ``spare`` the usable rest (saturated,
    stale, without speculator), for fallback only. Nodes that can take nothing are in neither. ``closed`` counts the
    members that are not open, by reason.
    """

    __slots__ = ("closed", "engine", "members", "models", "open", "pool", "spare", "speculator")

    def __init__(self, pool: Pool, models: tuple[str, ...], speculator: Speculator | None, engine: str | None) -> None:
        self.pool = pool
        self.models = models
        self.speculator = speculator
        self.engine = engine
        self.members: set[NodeState] = set()
        self.closed: Counter[Reason] = Counter()
        self.open: LoadIndex[NodeState] = LoadIndex()
        self.spare: LoadIndex[NodeState] = LoadIndex()


class NodeState(Indexed):
    """What is known of one node now. Read it freely; only the fleet writes it."""

    __slots__ = (
        "ceiling",
        "circuit",
        "closed",
        "counted",
        "departures",
        "drained",
        "draining",
        "ejected",
        "engine",
        "error",
        "failed_polls",
        "fixed_ceiling",
        "foreign",
        "foreign_reports",
        "fresh",
        "full_at",
        "group",
        "half_open",
        "healthy",
        "index",
        "k",
        "learned",
        "leaving_since",
        "ledger",
        "limit",
        "load",
        "models",
        "name",
        "pool",
        "recheck",
        "refusing",
        "report",
        "reported_at",
        "saturated",
        "saturated_time",
        "saturation_events",
        "spec",
        "speculator",
        "unreadable",
        "withdrawn",
    )

    def __init__(self, spec: NodeSpec, now: float) -> None:
        super().__init__()
        self.spec = spec
        self.name = spec.name
        self.pool = spec.pool
        self.limit = spec.max_in_flight or DEFAULT_MAX_IN_FLIGHT
        """Sequences that it is given at most: what is known, or what it was found to take where that is less."""
        self.full_at = self.limit
        """What its load is measured by: the limit, or what it runs where it was seen to let others wait inside."""
        self.learned = LearnedLimit()
        self.ceiling = min(spec.ceiling, self.limit)
        """The fixed or configured ceiling, or the node's limit where that is lower: the engine has no more room."""
        self.fixed_ceiling: int | None = None
        """The ceiling that an operator fixed at run time; ``None`` = the configured one holds."""
        self.models = spec.models
        self.engine = spec.engine
        self.load = 0.0
        self.speculator: Speculator | None = None
        self.k: int | None = None
        self.ledger = Ledger()
        self.departures = Departures()
        """Sequences in the ledger whose clients have left."""
        self.counted = False
        """Whether the engine's counters were ever read."""
        self.foreign_reports = ForeignSequences()
        self.foreign = 0
        self.report: NodeReport | None = None
        self.reported_at: float | None = None
        self.error: str | None = None
        self.failed_polls = 0
        self.unreadable = False
        """Whether its last answer to a poll did not tell how full it is."""
        self.healthy = False
        self.fresh = False
        self.leaving_since: float | None = None
        """When it began to drain because it is to leave the fleet; ``None`` = it stays."""
        self.drained = False
        """Whether it drains because an operator said so at run time."""
        self.withdrawn = False
        """Whether it drains because the agent beside its engine says so."""
        self.draining = False
        """Whether it takes no new requests for any of these reasons."""
        self.circuit = Circuit()
        self.ejected = False
        """Whether its circuit lets no request through now."""
        self.half_open = False
        """Whether the next request is its circuit's trial."""
        self.refusing = False
        self.recheck = Recheck()
        self.saturated = False
        self.closed: Reason | None = Reason.UNHEALTHY
        """Why the node takes no request of its pool; ``None`` when it takes them."""
        self.saturation_events = 0
        self.saturated_time = TimeShare(now)
        self.group: ReplicaGroup | None = None
        self.index: LoadIndex[NodeState] | None = None

    @property
    def own(self) -> int:
        """Sequences of this gateway on the node, exact."""
        return self.ledger.sequences

    @property
    def occupancy(self) -> int:
        """Sequences the node works on: ours and foreign ones. Never below our own."""
        return self.ledger.sequences + self.foreign

    @property
    def speculative_capacity(self) -> int:
        """``ceiling − occupancy`` with an active speculator, not below 0."""
        return max(0, self.ceiling - self.occupancy) if self.speculator else 0

    def fits(self, sequences: int) -> bool:
        """Whether ``sequences`` more stay within the node's limit. An idle node takes any request, however many
        sequences it has.
        """
        occupancy = self.ledger.sequences + self.foreign
        return occupancy + sequences <= self.limit or occupancy == 0

    def has_room(self, sequences: int) -> bool:
        """Whether ``sequences`` more may be given by the rules of the node's pool: below ceiling and limit."""
        if self.pool is Pool.STANDARD:
            return self.fits(sequences)
        return self.ledger.sequences + self.foreign + sequences <= self.ceiling

    @property
    def usable(self) -> bool:
        """Whether the node can take any request at all."""
        return self.healthy and not self.ejected and not self.draining and not self.refusing

    @property
    def state(self) -> str:
        """One word for tables: the first that applies of ``unhealthy``, ``ejected``, ``draining``, ``stale``, ``full``,
        ``saturated``, ``no_speculator`` (in the speculative pool), ``ready``.
        """
        if not self.healthy:
            return "unhealthy"
        if self.circuit.state is not CircuitState.CLOSED:
            return "ejected"
        if self.draining:
            return "draining"
        if not self.fresh:
            return "stale"
        if self.refusing or self.occupancy >= self.limit:
            return "full"
        if self.saturated:
            return "saturated"
        return "no_speculator" if self.pool is Pool.SPECULATIVE and self.speculator is None else "ready"

    def facts(self) -> NodeFacts:
        """The state a decision depends on, frozen."""
        return NodeFacts(
            self.pool,
            self.models,
            self.speculator,
            self.engine,
            self.ledger.sequences,
            self.foreign,
            self.ceiling,
            self.limit,
            self.full_at,
            self.healthy and not self.ejected,
            self.fresh,
            self.draining,
            self.refusing,
            self.saturated,
            self.recheck.fallen_back,
        )
