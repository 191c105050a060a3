"""The fleet as routing sees it: nodes, and what is known of them, change by change.

Nothing here is rebuilt per request: admitting, releasing and reporting move one node in one index. Every change that a
decision could depend on gets a version number and leaves its undo in a journal, so that a past decision can be
explained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import EllipsisType

from slipstream.core.circuit import CircuitState, verdict
from slipstream.core.departures import Departure
from slipstream.core.errors import EngineDown, EngineError, EngineGarbage
from slipstream.core.journal import Journal
from slipstream.core.node import (
    DEFAULT_CEILING,
    DEFAULT_MAX_IN_FLIGHT,
    NodeReport,
    NodeSpec,
    Speculator,
    SpeculatorKind,
)
from slipstream.core.node_state import NodeFacts, NodeState, ReplicaGroup
from slipstream.core.outcome import Outcome
from slipstream.core.request import Pool
from slipstream.core.routing_index import RoutingIndex
from slipstream.core.saturation import is_saturated

__all__ = ["Fleet"]

JOURNAL_ENTRIES = 40_000


def _unheard(_node: NodeState) -> None:
    """Nobody is told."""


UNREACHABLE_POLLS = 2
"""Polls in a row without an answer before a node counts as unhealthy; one lost poll is not an outage."""


class Fleet:
    """All nodes, indexed for routing.

    ``stale_after_s``: age of the last good report at which telemetry stops being fresh. ``hysteresis``: sequences below
    the ceiling at which a saturated node becomes eligible again. ``gauge_lag_s(engine)``: how far an engine's running
    gauge may lag behind what it does. ``abort_lag_s(engine)``: how long it may work on for a client that left.
    ``circuit_changed`` is told of a node whose circuit changed its state.
    """

    def __init__(
        self,
        specs: Sequence[NodeSpec],
        now: float,
        *,
        stale_after_s: float = 1.0,
        hysteresis: int = 0,
        gauge_lag_s: Callable[[str | None], float] = lambda _engine: 0.0,
        abort_lag_s: Callable[[str | None], float] = lambda _engine: 0.0,
        circuit_changed: Callable[[NodeState], None] = _unheard,
    ) -> None:
        self.stale_after_s = stale_after_s
        self._hysteresis = hysteresis
        self._gauge_lag_s = gauge_lag_s
        self._abort_lag_s = abort_lag_s
        self._departing: dict[NodeState, None] = {}
        """Nodes that may still work for clients that left, those that have left the fleet included."""
        self._circuit_changed = circuit_changed
        self._nodes: dict[str, NodeState] = {}
        self._index = RoutingIndex()
        # A node's state before a change: all its facts; or, where a request moved no more, twice its own sequences and
        # one more if it was saturated; ``None``, it was not there.
        self._journal: Journal[NodeFacts | int] = Journal(JOURNAL_ENTRIES)
        self._next_expiry = now
        for spec in specs:
            self.add(spec, now)

    def configure(self, now: float, *, stale_after_s: float, hysteresis: int) -> None:
        """Judge nodes by these from now on."""
        if (stale_after_s, hysteresis) == (self.stale_after_s, self._hysteresis):
            return
        self.stale_after_s = stale_after_s
        self._hysteresis = hysteresis
        self._next_expiry = now
        for node in self._nodes.values():
            self._change(node, now)
        self.expire(now)

    # What routing reads

    @property
    def version(self) -> int:
        """Counts the changes that a decision could depend on."""
        return self._journal.version

    def serving(self, model: str) -> tuple[tuple[ReplicaGroup, ...], tuple[ReplicaGroup, ...]] | None:
        """The speculative and the standard groups whose nodes serve ``model`` (empty: any); ``None`` when no node
        does.
        """
        return self._index.serving(model)

    def models(self) -> tuple[str, ...]:
        """Every model some node serves, in alphabetical order."""
        return tuple(sorted({model for node in self._nodes.values() for model in node.models}))

    def usable_nodes(self) -> int:
        """How many nodes could take a request now, were they empty."""
        return sum(node.usable for node in self._nodes.values())

    def node(self, name: str) -> NodeState | None:
        """The node of that name; ``None`` when the fleet has none."""
        return self._nodes.get(name)

    def nodes(self) -> Iterator[NodeState]:
        """All nodes in the order they were added."""
        return iter(self._nodes.values())

    def __len__(self) -> int:
        return len(self._nodes)

    def advance(self) -> int:
        """A new version for a change that is not a node's, such as new evidence; returns it."""
        return self._journal.record(None, None)

    @property
    def blind(self) -> bool:
        """Every node that ever reported is stale at once, though none refuses to be asked, nor answers what can not be
        read: that is our own fault.
        """
        reported = [node for node in self._nodes.values() if node.reported_at is not None]
        return len(reported) > 1 and all(node.healthy and not node.fresh and not node.unreadable for node in reported)

    def unheard(self) -> int:
        """How many nodes have not said yet which models they serve, and were not configured with any."""
        return sum(not node.models for node in self._nodes.values())

    # What requests change

    def admit(self, name: str, sequences: int, category: str, now: float) -> NodeState:
        """Book ``sequences`` on a node, before they are sent; returns the node's state, for ``release``."""
        node = self._nodes[name]
        self._journal.record(name, node.ledger.sequences << 1 | node.saturated)
        node.ledger.admit(sequences, category, now)
        self._settle(node, now)
        return node

    def release(self, node: NodeState, sequences: int, category: str, now: float) -> None:
        """Take back what ``admit`` booked. The node may have left the fleet since: its state object is what counts."""
        name = node.name
        if self._nodes.get(name) is node:
            self._journal.record(name, node.ledger.sequences << 1 | node.saturated)
        node.ledger.release(sequences, category, now)
        self._settle(node, now)

    def depart(self, node: NodeState, sequences: int, category: str, now: float) -> None:
        """The client of a request left. Its engine may not have noticed: so long what ``admit`` booked stays booked.

        It is taken back, once, when the engine's abort lag has passed or a report shows that the engine has stopped.
        """
        lag = self._abort_lag_s(node.engine)
        if lag <= 0.0:
            self.release(node, sequences, category, now)
            return
        node.departures.add(Departure(sequences, category, now, now + lag, node.ledger.admitted))
        self._departing[node] = None

    def refused(
        self, node: NodeState, now: float, sent_at: float | None = None, retry_after_s: float | None = None
    ) -> None:
        """The node answered 429 or 503 to a request sent at ``sent_at`` (``None`` = just now), whose booking is
        released: it is full, whatever we believed. It is avoided for ``retry_after_s``, and until it next answers a
        poll.
        """
        if self._nodes.get(node.name) is node:
            node.learned.refused(node.occupancy, now if sent_at is None else sent_at, retry_after_s, now)
            self._change(node, now, refusing=True, limit=_limit(node))

    def took(self, node: NodeState, sent_at: float, now: float) -> None:
        """A node that has refused requests answers one sent at ``sent_at``, which is still booked."""
        if self._nodes.get(node.name) is node and node.learned.took(node.occupancy, sent_at, now):
            self._change(node, now, limit=_limit(node))

    def eased(self, node: NodeState, now: float) -> None:
        """A node that refused requests has ended one since, so that it has room before its ``retry-after`` is over."""
        if self._nodes.get(node.name) is node:
            node.learned.retry_at = now
            self._change(node, now, refusing=False)

    def lost(self, node: NodeState, now: float, error: str) -> None:
        """A connection failed: the node is unhealthy until its next report, and its last one is worth nothing."""
        if self._nodes.get(node.name) is not node:
            return  # it has left, or another has its name now
        node.error = error
        node.foreign_reports.forget()
        node.learned.forget()
        self._change(node, now, healthy=False, fresh=False, foreign=0, limit=_limit(node))

    def try_out(self, node: NodeState, attempt: object, now: float) -> None:
        """``attempt``, placed on a half-open node, is its circuit's trial: until it has ended, no other is sent."""
        node.circuit.trial = attempt
        node.half_open = False
        self._change(node, now, ejected=True)

    def judge(self, node: NodeState, attempt: object, outcome: Outcome, now: float) -> None:
        """What an attempt shows of its node's circuit. Half of a pool's nodes are never ejected."""
        circuit = node.circuit
        on_trial = circuit.trial is attempt
        if self._nodes.get(node.name) is not node:
            if on_trial:
                circuit.trial = None  # it refers to the node, and nobody would take such a ring apart
            return
        if on_trial:
            circuit.tried(outcome, now)
            self._follow_circuit(node, now)
            return
        worked = verdict(outcome)
        if worked is not None and circuit.count(now, failed=not worked) and self._may_eject(node):
            circuit.open(now)
            self._follow_circuit(node, now)

    def answering(self, node: NodeState, attempt: object, now: float) -> None:
        """``attempt`` has been answered for a while. Of a trial that is enough: its end may be minutes away."""
        if node.circuit.trial is attempt and self._nodes.get(node.name) is node:
            node.circuit.close(now)
            self._follow_circuit(node, now)

    # What the control loop changes

    def add(self, spec: NodeSpec, now: float) -> None:
        """A new node: unknown, so not usable, until its first report. Raises ``ValueError`` if the name is taken."""
        if spec.name in self._nodes:
            raise ValueError(f"a node named {spec.name!r} is already in the fleet")
        node = NodeState(spec, now)
        self._nodes[spec.name] = node
        self._index.join(node)
        self._journal.record(node.name, None)

    def reconfigure(self, spec: NodeSpec, now: float) -> None:
        """Go on with a node that is the same engine, configured otherwise: url, pool and engine are as they were."""
        node = self._nodes[spec.name]
        report = node.report
        told = None if report is None else report.models
        if node.spec.calibration != spec.calibration:
            node.recheck.forget()
        node.spec = spec
        self._change(
            node,
            now,
            limit=_limit(node),
            speculator=node.speculator if report is None else self._speculator(node, report, node.pool),
            models=spec.models or (told if told is not None else ()),
        )

    def remove(self, name: str) -> None:
        """Forget a node. Requests it still has are released against the state object their placement holds."""
        node = self._nodes.pop(name)
        self._index.leave(node)
        self._journal.record(name, node.facts())

    def drain(self, name: str, now: float, *, draining: bool = True) -> None:
        """Stop (or resume) giving a node new requests, since it is to leave the fleet; what it has goes on."""
        node = self._nodes[name]
        node.leaving_since = now if draining else None
        self._change(node, now, draining=_drains(node))

    def override(self, name: str, now: float, *, ceiling: int | None, drained: bool) -> None:
        """What operators fixed for a node at run time: its ceiling (``None`` = as configured), whether it drains."""
        node = self._nodes[name]
        node.fixed_ceiling = ceiling
        node.drained = drained
        self._change(node, now, draining=_drains(node), limit=node.limit)

    def suspend(self, name: str, now: float, *, suspended: bool) -> None:
        """Let the configured ceiling of a node rest, since its calibration does not hold, or hold again."""
        node = self._nodes[name]
        self._change(node, now, limit=node.limit, fallen_back=suspended)

    def report(self, name: str, asked_at: float, received_at: float, report: NodeReport) -> None:
        """Take in a node's report, asked for and received at these times."""
        node = self._nodes.get(name)
        if node is None:
            return
        node.report = report
        node.reported_at = received_at
        node.error = None
        if node.failed_polls and node.circuit.state is not CircuitState.CLOSED:
            node.circuit.close(received_at)  # it was away and is back: what failed before is no sign of what it is now
            self._follow_circuit(node, received_at)
        node.failed_polls = 0
        node.unreadable = report.sequences is None
        if report.sequences is not None:
            lag = self._gauge_lag_s(report.engine or node.engine)
            node.foreign_reports.report(report.sequences, node.ledger.peak_since(asked_at - lag))
            if node.departures.sequences:
                self._confirm_departures(node, asked_at - lag, report.sequences, received_at)
        node.learned.reported(report, asked_at, known=_known_limit(node) is not None)
        pool = report.role or node.pool
        speculator = self._speculator(node, report, pool)
        node.k = speculator.k if speculator else None
        node.withdrawn = report.draining is True
        models = node.spec.models or (node.models if report.models is None else report.models)
        self._change(
            node,
            received_at,
            healthy=True,
            fresh=report.sequences is not None,
            draining=_drains(node),
            refusing=node.refusing and received_at < node.learned.retry_at,
            foreign=node.foreign_reports.sequences,
            limit=_limit(node),
            speculator=speculator,
            models=models,
            engine=node.spec.engine or report.engine,
            pool=pool,
        )
        self.expire(received_at)

    def report_failed(self, name: str, now: float, error: EngineError) -> None:
        """A poll failed. Garbage is a sign of life, but costs freshness in time. Silence costs health, twice; the word
        of who watches the engine, at once.
        """
        node = self._nodes.get(name)
        if node is None:
            return
        node.error = str(error)
        node.unreadable = isinstance(error, EngineGarbage)
        if not node.unreadable:
            node.failed_polls += 1
            certain = node.failed_polls >= UNREACHABLE_POLLS or isinstance(error, EngineDown)
            if certain and node.healthy:
                self.lost(node, now, str(error))
        else:
            node.failed_polls = 0
            self._change(node, now, healthy=True, refusing=node.refusing and now < node.learned.retry_at)
        self.expire(now)

    def expire(self, now: float) -> None:
        """Take freshness from nodes whose last report is older than ``stale_after_s``, let those whose back-off is over
        be tried again, and take back what clients that left had booked where the engine has stopped by now. Cheap when
        there is nothing of it.
        """
        if self._departing:
            self._expire_departures(now)
        if now < self._next_expiry:
            return
        oldest = now
        trial = float("inf")
        for node in self._nodes.values():
            if node.circuit.state is CircuitState.OPEN:
                if now >= node.circuit.retry_at:
                    node.circuit.half_open()
                    self._follow_circuit(node, now)
                else:
                    trial = min(trial, node.circuit.retry_at)
            if not node.fresh or node.reported_at is None:
                continue
            if now - node.reported_at > self.stale_after_s:
                self._change(node, now, fresh=False)
            else:
                oldest = min(oldest, node.reported_at)
        self._next_expiry = min(oldest + self.stale_after_s, trial)

    def _confirm_departures(self, node: NodeState, seen_at: float, reported: int, now: float) -> None:
        ledger = node.ledger
        for gone in node.departures.take_confirmed(seen_at, reported, ledger.sequences, ledger.admitted):
            self.release(node, gone.sequences, gone.category, now)

    def _expire_departures(self, now: float) -> None:
        for node in list(self._departing):
            for gone in node.departures.take_due(now):
                if gone.outlasting and self._nodes.get(node.name) is node:
                    self._disown(node, gone.sequences)
                self.release(node, gone.sequences, gone.category, now)
            if not node.departures.sequences:
                del self._departing[node]

    def _disown(self, node: NodeState, sequences: int) -> None:
        """What an engine goes on with for a client that left, beyond its abort lag, is to us as others' sequences are.

        The next report will show it so; until then nothing may take its place.
        """
        self._journal.record(node.name, node.facts())
        node.foreign_reports.report(node.foreign + sequences, 0)
        node.foreign = node.foreign_reports.sequences

    # The past

    def facts_at(self, version: int) -> dict[str, NodeFacts] | None:
        """Every node's facts as they were at ``version``; ``None`` when the journal no longer reaches back so far."""
        changes = self._journal.undo(version)
        if changes is None:
            return None
        facts: dict[str, NodeFacts] = {node.name: node.facts() for node in self._nodes.values()}
        for name, before in changes:
            if before is None:
                facts.pop(name, None)
            elif isinstance(before, NodeFacts):
                facts[name] = before
            else:
                facts[name] = facts[name].with_own(before >> 1, saturated=bool(before & 1))
        return facts

    # How a change is made

    def _speculator(self, node: NodeState, report: NodeReport, pool: Pool) -> Speculator | None:
        if pool is not Pool.SPECULATIVE:
            return None
        if report.speculating is None:
            return node.speculator
        if not report.speculating:
            return None
        kind = node.spec.speculator_kind or report.speculator_kind
        if kind is None:
            kind = node.speculator.kind if node.speculator else SpeculatorKind.DRAFT
        before = node.speculator if node.speculator and node.speculator.kind is kind else None
        drafter = report.drafter or (before.drafter if before else None)
        k: int | None = None
        if kind is not SpeculatorKind.NGRAM:
            k = report.k if report.k is not None else before.k if before else None
        if before is not None and before.k == k and before.drafter == drafter:
            return before
        return Speculator(kind, k, drafter)

    def _change(
        self,
        node: NodeState,
        now: float,
        *,
        healthy: bool | None = None,
        fresh: bool | None = None,
        draining: bool | None = None,
        ejected: bool | None = None,
        refusing: bool | None = None,
        foreign: int | None = None,
        limit: int | None = None,
        fallen_back: bool | None = None,
        speculator: Speculator | EllipsisType | None = ...,
        models: tuple[str, ...] | None = None,
        engine: str | None = None,
        pool: Pool | None = None,
    ) -> None:
        regroup = (
            (speculator is not ... and speculator is not node.speculator and speculator != node.speculator)
            or (models is not None and models != node.models)
            or (engine is not None and engine != node.engine)
            or (pool is not None and pool is not node.pool)
        )
        before = node.facts()
        if healthy is not None:
            node.healthy = healthy
        if fresh is not None:
            node.fresh = fresh
        if draining is not None:
            node.draining = draining
        if ejected is not None:
            node.ejected = ejected
        if refusing is not None:
            node.refusing = refusing
        if foreign is not None:
            node.foreign = foreign
        if fallen_back is not None:
            node.recheck.fallen_back = fallen_back
        if limit is not None:
            node.limit = limit
            queues_from = node.learned.queues_from
            node.full_at = limit if queues_from is None else min(limit, queues_from)
            node.ceiling = min(node.fixed_ceiling or _ceiling(node), limit)
        if regroup:
            self._index.leave(node)
            if speculator is not ...:
                node.speculator = speculator
            if models is not None:
                node.models = models
            if engine is not None:
                node.engine = engine
            if pool is not None:
                node.pool = pool
                if pool is Pool.STANDARD and node.saturated:
                    node.saturated = False
                    node.saturated_time.set(False, now)  # noqa: FBT003 - a value
            self._index.join(node)
        self._settle(node, now)
        if node.facts() != before:
            self._journal.record(node.name, before)

    def _settle(self, node: NodeState, now: float) -> None:
        """Bring saturation and the index in line with a node's state."""
        occupancy = node.ledger.sequences + node.foreign
        if node.pool is Pool.SPECULATIVE:
            saturated = node.speculator is not None and is_saturated(
                occupancy, node.ceiling, node.saturated, self._hysteresis
            )
            if saturated is not node.saturated:
                node.saturated = saturated
                node.saturation_events += saturated
                node.saturated_time.set(saturated, now)
        self._index.update(node, occupancy)

    def _may_eject(self, node: NodeState) -> bool:
        """Whether half or more of the nodes that could do its work would be left. Of one node, none is ejected."""
        peers = [
            one
            for one in self._nodes.values()
            if one.pool is node.pool and one.models == node.models and one.healthy and not one.draining
        ]
        ejected = sum(one.circuit.state is not CircuitState.CLOSED for one in peers)
        return 2 * (ejected + 1) <= len(peers)

    def _follow_circuit(self, node: NodeState, now: float) -> None:
        """Bring a node in line with its circuit, which has just changed."""
        circuit = node.circuit
        node.half_open = circuit.state is CircuitState.HALF_OPEN
        if circuit.state is CircuitState.OPEN:
            self._next_expiry = min(self._next_expiry, circuit.retry_at)
        self._change(node, now, ejected=circuit.state is CircuitState.OPEN)
        self._circuit_changed(node)


def _drains(node: NodeState) -> bool:
    return node.leaving_since is not None or node.drained or node.withdrawn


def _known_limit(node: NodeState) -> int | None:
    """What is configured or reported; ``None`` when neither is."""
    return node.spec.max_in_flight or (None if node.report is None else node.report.capacity)


def _limit(node: NodeState) -> int:
    """What is known of a node's limit, or what it was found to take where that is less."""
    known, learned = _known_limit(node) or DEFAULT_MAX_IN_FLIGHT, node.learned.limit
    return known if learned is None else min(known, learned)


def _ceiling(node: NodeState) -> int:
    """What is configured, or the default while the calibration that it rests on does not hold."""
    return DEFAULT_CEILING if node.recheck.fallen_back else node.spec.ceiling
