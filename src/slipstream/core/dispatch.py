"""A request's path through the core: decide, book, and when it has ended release, learn and remember.

The gateway and the simulator drive the same object; it is handed the time and the source of chance.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from slipstream.core.acceptance import AcceptancePrior, Identity
from slipstream.core.compilation import mypyc_attr
from slipstream.core.errors import AllFull, EngineError, NothingUsable, OutOfReach, ResponseNotFound, UnknownModel
from slipstream.core.evidence import FOREIGN, CategoryEvidence
from slipstream.core.fleet import Fleet
from slipstream.core.node import NodeReport, NodeSpec
from slipstream.core.node_state import NodeState
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.overrides import Override, OverrideKind, Overrides, pool_of
from slipstream.core.policy import (
    AcceptanceFigure,
    Candidate,
    Decision,
    Reason,
    ThresholdPolicy,
    ThresholdSettings,
    acceptance_figures,
    candidates,
)
from slipstream.core.request import Pool, RequestShape
from slipstream.core.responses import ResponseOwners

__all__ = ["DECISIONS_REMEMBERED", "Dispatcher", "Placement", "Refusal"]

_HUNG_UP = (Ending.CLIENT_GONE, Ending.TIMED_OUT, Ending.STOPPED)
"""Ends that an engine does not know of until it is told, and then not at once."""

DECISIONS_REMEMBERED = 10_000
MODEL_REMEMBERED = 128
RESPONSE_REMEMBERED = 256
"""Characters kept of what a refused request names: it may be of any length."""
POLICIES_REMEMBERED = 32
SILENCE_REMEMBERED = 16
"""Answers by which a node may be ahead in silence or in telling, so that it is soon seen when that changes."""
SENTENCE_REMEMBERED = 400
"""Characters kept of what a refused request says: no node vouches for its model, so it may be of any length."""


@mypyc_attr(acyclic=True)
class Placement:
    """One request booked on one node, until and after it is settled. ``outcome`` is ``None`` while it runs.

    ``attempt`` counts from 1, and goes up where the same request is tried again on another node. ``occupancy`` is the
    node's with this request on it. ``tried`` names the nodes that earlier attempts failed on.
    ``queued_s`` is for how many seconds the request had waited for a node by then, ``None`` = it had not. ``policy``
    placed it and is told of its end; ``None`` = nobody is. ``ended_version`` is the fleet's when it was settled.
    """

    __slots__ = (
        "attempt",
        "began",
        "decision",
        "ended_version",
        "node",
        "occupancy",
        "outcome",
        "policy",
        "queued_s",
        "request_id",
        "shape",
        "state",
        "tried",
    )

    def __init__(
        self,
        request_id: str,
        shape: RequestShape,
        decision: Decision,
        state: NodeState,
        attempt: int,
        tried: Collection[str] = (),
        queued_s: float | None = None,
        policy: ThresholdPolicy | None = None,
    ) -> None:
        self.request_id = request_id
        self.policy = policy
        self.attempt = attempt
        self.tried = tried
        self.queued_s = queued_s
        self.shape = shape
        self.decision = decision
        self.state = state
        self.occupancy = state.occupancy
        self.began = state.ledger.sequence_seconds
        """Sequence-seconds of the node's ledger when it was booked."""
        self.node: NodeSpec = state.spec
        self.outcome: Outcome | None = None
        self.ended_version: int | None = None


class Refusal(NamedTuple):
    """A request, or a further attempt of one, that no node could be found for.

    ``error`` is the name of the error raised and ``sentence`` what it says; ``attempt`` counts as a placement's does,
    and ``tried`` and ``queued_s`` are the same. The rest is what the decision would have kept, had there been one.
    """

    request_id: str
    shape: RequestShape
    attempt: int
    error: str
    sentence: str
    fleet_version: int
    draw: float
    at: float
    tried: Collection[str] = ()
    queued_s: float | None = None

    @property
    def decision(self) -> Decision:
        """A decision for no node, by which every node's reason is recomputed."""
        return Decision("", Pool.STANDARD, Reason.FALLBACK, self.fleet_version, self.draw, self.at)


class _Count:
    """A number that goes up in place: to store a new one under its key would cost as much again as to find the old."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0


class Dispatcher:
    """Fleet, evidence and policy working together. ``draw`` returns uniform numbers in [0, 1). ``overrides`` are what
    operators change at run time, none unless given.
    """

    def __init__(
        self,
        fleet: Fleet,
        evidence: CategoryEvidence,
        policy: ThresholdPolicy,
        draw: Callable[[], float],
        overrides: Overrides | None = None,
    ) -> None:
        self.fleet = fleet
        self.evidence = evidence
        self.policy = policy
        self.overrides = Overrides() if overrides is None else overrides
        self._requests: dict[tuple[str, Pool, Reason], _Count] = {}
        self._endings: dict[tuple[str, Ending], _Count] = {}
        self._intended: dict[tuple[str, Pool, Reason], _Count] = {}
        self.responses = ResponseOwners()
        self._draw = draw
        self._policies_before: deque[tuple[int, ThresholdPolicy]] = deque(maxlen=POLICIES_REMEMBERED)
        """Who decided up to which version of the fleet, the oldest first."""
        self._placements: deque[Placement] = deque(maxlen=DECISIONS_REMEMBERED)
        self._refusals: deque[Refusal] = deque(maxlen=DECISIONS_REMEMBERED)
        self._silence: dict[str, int] = {}
        """By node, how many more of its answers of late said nothing of speculation than did. Above 0, its counters are
        split by category; else its answers are credited: to do both would count the same tokens twice."""

    def configure(
        self,
        settings: ThresholdSettings,
        prior: AcceptancePrior,
        *,
        half_life: float,
        stale_after_s: float,
        hysteresis: int,
        now: float,
        policy: ThresholdPolicy | None = None,
    ) -> None:
        """Decide by these from now on; by another ``policy`` if one is given, which has the settings already. Evidence
        and running requests stay, and past decisions are explained by what held then.
        """
        version = self.fleet.advance()
        if policy is None:
            self.policy.configure(settings, version)
        else:
            policy.succeed(self.policy)
            self._policies_before.append((version, self.policy))
            self.policy = policy
        self.evidence.configure(prior, half_life, version)
        self.fleet.configure(now, stale_after_s=stale_after_s, hysteresis=hysteresis)

    # What the data plane calls

    def place(
        self,
        shape: RequestShape,
        request_id: str,
        now: float,
        avoid: Collection[str] = frozenset(),
        may_wait: bool = False,  # noqa: FBT001, FBT002 - called per request
        before: int = 0,
        queued_s: float | None = None,
    ) -> Placement:
        """Choose a node that is not in ``avoid`` and book the request on it. ``before``: its earlier attempts, of which
        ``avoid`` says nothing any more. ``queued_s``: for how many seconds it waited in all, ``None`` = it did not.

        Raises ``UnknownModel``, ``ResponseNotFound``, ``AllFull``, ``OutOfReach`` or ``NothingUsable``, which is
        remembered; but not ``AllFull`` of a request that ``may_wait`` and will be placed again. Whoever places a
        request settles it, exactly once.
        """
        fleet = self.fleet
        fleet.expire(now)
        if self.overrides.active:
            shape = self._overridden(shape, now)
        draw = self._draw()
        shape.queued_s = 0.0 if queued_s is None else queued_s
        shape.may_wait = may_wait
        try:
            if shape.previous_response is None:
                decision = self.policy.decide(fleet, shape, now, draw, avoid)
            else:
                decision = self._follow(shape.previous_response, shape.sequences, draw, now, avoid)
        except (UnknownModel, ResponseNotFound, AllFull, OutOfReach, NothingUsable) as error:
            if not (may_wait and isinstance(error, AllFull)):
                self._refused(shape, request_id, before + len(avoid) + 1, error, draw, now, avoid, queued_s)
            raise
        state = fleet.admit(decision.node, shape.sequences, shape.category, now)
        placement = Placement(request_id, shape, decision, state, before + len(avoid) + 1, avoid, queued_s, self.policy)
        _count(self._requests, shape.category, decision)
        if decision.intended is not None:
            _count(self._intended, shape.category, decision.intended)
        self._placements.append(placement)
        if state.half_open:
            fleet.try_out(state, placement, now)
        return placement

    def settle(self, placement: Placement, outcome: Outcome, now: float) -> None:
        """Release what ``place`` booked and learn from the outcome. A second time is our bug: ``RuntimeError``.

        Where we hung up on the engine, what was booked is released when it has stopped; all else happens at once.
        """
        if placement.outcome is not None:
            raise RuntimeError(f"request {placement.request_id} was settled twice")
        placement.outcome = outcome
        state, shape = placement.state, placement.shape
        if outcome.ending in _HUNG_UP:
            self.fleet.depart(state, shape.sequences, shape.category, now)
        else:
            self.fleet.release(state, shape.sequences, shape.category, now)
        placement.ended_version = self.fleet.version
        policy = placement.policy
        if policy is not None:
            policy.finished(placement.decision, shape, placement.occupancy, outcome.latency)
        ended = shape.category, outcome.ending
        count = self._endings.get(ended)
        if count is None:
            count = self._endings[ended] = _Count()
        count.number += 1
        if outcome.ending is not Ending.COMPLETED or state.circuit.watching:
            self.fleet.judge(state, placement, outcome, now)
        if outcome.ending is Ending.COMPLETED:
            if state.refusing:
                self.fleet.eased(state, now)
            self._learn(placement, outcome, now)
        elif outcome.ending is Ending.UNREACHABLE:
            self.fleet.lost(state, now, "a connection for a request failed")
        elif outcome.ending is Ending.FULL:
            self.fleet.refused(state, now, placement.decision.at, outcome.retry_after_s)

    def took(self, placement: Placement, now: float) -> None:
        """The placement's node, which has refused requests, answers this one."""
        self.fleet.took(placement.state, placement.decision.at, now)

    def answering(self, placement: Placement, now: float) -> None:
        """Output of the placement's node has been coming for a while, which shows that it works."""
        self.fleet.answering(placement.state, placement, now)

    def remember_response(self, placement: Placement, response_id: str, now: float) -> None:
        """The placement's node made this response, to which later requests may refer by its id."""
        self.responses.remember(response_id, placement.state, now)

    # What the control loop calls

    def report(self, name: str, asked_at: float, received_at: float, report: NodeReport) -> None:
        """A node's report came in: bring its state up to date, and read its counters."""
        fleet, evidence = self.fleet, self.evidence
        fleet.report(name, asked_at, received_at, report)
        self.expire_overrides(received_at)
        if report.role is not None and fleet.node(name) is not None:
            self._fix(name, received_at)  # it may have changed its pool, which has a ceiling of its own
        state = fleet.node(name)
        if state is None or state.speculator is None:
            return
        evidence.book.identify(name, Identity(state.engine, report.version, state.speculator.fingerprint), received_at)
        if report.counters is None:
            return
        delta = evidence.observe(name, report.counters, fleet.advance(), received_at)
        if delta is None and state.counted:
            return  # counters that stand still say nothing: the window goes on
        seconds = state.ledger.take_category_seconds(received_at)
        state.counted = True
        if delta is None or self._silence.get(name, 0) <= 0 or not state.models:
            return
        if state.foreign:
            seconds[FOREIGN] = state.foreign * delta.seconds
        evidence.attribute(state.models[0], state.speculator, name, delta, seconds, fleet.version, received_at)

    def add(self, spec: NodeSpec, now: float) -> None:
        """A node joins the fleet. Raises ``ValueError`` if its name is taken."""
        self.fleet.add(spec, now)
        self._fix(spec.name, now)

    def remove(self, name: str) -> None:
        """A node leaves the fleet. Its running requests are settled as ever."""
        self.fleet.remove(name)
        self.evidence.forget_node(name)
        self._silence.pop(name, None)

    def report_failed(self, name: str, now: float, error: EngineError) -> None:
        """A poll of a node failed."""
        self.fleet.report_failed(name, now, error)

    def suspend(self, name: str, now: float, *, suspended: bool) -> None:
        """Let ceilings that rest on a node's calibration give way to the default, or hold again. Cheap when they do."""
        node = self.fleet.node(name)
        if node is not None and node.recheck.fallen_back is not suspended:
            self.fleet.suspend(name, now, suspended=suspended)
            self._fix(name, now)

    # What operators change

    def override(self, override: Override, now: float) -> None:
        """Put an override in force, in place of an earlier one of its kind on its subject."""
        self.overrides.set(override, now)
        self._fix_all(now)

    def clear_override(self, kind: OverrideKind, subject: str, now: float) -> Override | None:
        """End an override; returns it, or ``None`` when it was not in force."""
        ended = self.overrides.clear(kind, subject, now)
        if ended is not None:
            self._fix_all(now)
        return ended

    def expire_overrides(self, now: float) -> None:
        """End the overrides whose time is over. Cheap when there are none."""
        if self.overrides.expire(now):
            self._fix_all(now)

    # What people look at

    @property
    def requests(self) -> dict[tuple[str, Pool, Reason], int]:
        """Placements by (category, pool, reason) since the start."""
        return {key: count.number for key, count in self._requests.items()}

    @property
    def intended(self) -> dict[tuple[str, Pool, Reason], int]:
        """Where policy only observes: the placements it would have made, as ``requests`` counts those made."""
        return {key: count.number for key, count in self._intended.items()}

    @property
    def endings(self) -> dict[tuple[str, Ending], int]:
        """Settled placements by (category, ending) since the start."""
        return {key: count.number for key, count in self._endings.items()}

    def placements(self) -> Iterator[Placement]:
        """The last ten thousand placements, newest first."""
        return reversed(self._placements)

    def find(self, request_id: str) -> list[Placement | Refusal]:
        """The remembered attempts of one request, oldest first: more than one when it was retried or its id reused."""
        found: list[Placement | Refusal] = [one for one in self._refusals if one.request_id == request_id]
        found += [one for one in self._placements if one.request_id == request_id]
        # A placement moves the version on and a refusal does not, so of two at one version the refusal came first.
        return sorted(found, key=_fleet_version)

    def candidates(self, attempt: Placement | Refusal) -> list[Candidate] | None:
        """Every node as the decision saw it, recomputed; ``None`` when that was too long ago."""
        decision = attempt.decision
        past = self.evidence.at(decision.fleet_version)
        policy = self._policy_at(decision.fleet_version)
        residents = self._residents(decision.fleet_version)
        return candidates(self.fleet, policy, past, decision, attempt.shape, residents, attempt.tried)

    def acceptance(self, attempt: Placement | Refusal) -> list[AcceptanceFigure] | None:
        """What was known of the category's acceptance, by speculator; ``None`` when that was too long ago."""
        version = attempt.decision.fleet_version
        policy = self._policy_at(version)
        return acceptance_figures(self.fleet, policy, self.evidence.at(version), version, attempt.shape)

    def _residents(self, version: int) -> dict[str, list[RequestShape]]:
        """The requests that nodes had when the fleet was at ``version``, as far as they are remembered."""
        found: dict[str, list[RequestShape]] = {}
        for placement in self._placements:
            ended = placement.ended_version
            if placement.decision.fleet_version < version and (ended is None or ended > version):
                found.setdefault(placement.decision.node, []).append(placement.shape)
        return found

    def _policy_at(self, version: int) -> ThresholdPolicy:
        for until, policy in self._policies_before:
            if version < until:
                return policy.as_of(version)
        return self.policy.as_of(version)

    def _follow(self, response_id: str, sequences: int, draw: float, now: float, avoid: Collection[str]) -> Decision:
        """To the node that holds a response, and to no other."""
        owner = self.responses.owner(response_id, sequences, now, avoid)
        return Decision(owner.name, owner.pool, Reason.AFFINITY, self.fleet.version, draw, now)

    def _overridden(self, shape: RequestShape, now: float) -> RequestShape:
        """The request as the overrides in force want it."""
        self.expire_overrides(now)
        pin = self.overrides.pin(shape.category, shape.key_id)
        return shape if pin is None else shape.with_pool(pool_of(pin))

    def _fix_all(self, now: float) -> None:
        for node in tuple(self.fleet.nodes()):
            self._fix(node.name, now)

    def _fix(self, name: str, now: float) -> None:
        """Bring a node in line with the overrides in force."""
        node = self.fleet.node(name)
        assert node is not None
        ceiling = self.overrides.ceiling(name, node.pool, measured=not node.recheck.fallen_back)
        drained = self.overrides.drains(name)
        if (ceiling, drained) != (node.fixed_ceiling, node.drained):
            self.fleet.override(name, now, ceiling=ceiling, drained=drained)

    def _refused(
        self,
        shape: RequestShape,
        request_id: str,
        attempt: int,
        error: UnknownModel | ResponseNotFound | AllFull | OutOfReach | NothingUsable,
        draw: float,
        now: float,
        tried: Collection[str],
        queued_s: float | None,
    ) -> None:
        known = shape.with_model(shape.model[:MODEL_REMEMBERED])
        if known.previous_response is not None:
            known.previous_response = known.previous_response[:RESPONSE_REMEMBERED]
        sentence = str(error)[:SENTENCE_REMEMBERED]
        name, version = type(error).__name__, self.fleet.version
        refusal = Refusal(request_id, known, attempt, name, sentence, version, draw, now, tried, queued_s)
        self._refusals.append(refusal)

    def _learn(self, placement: Placement, outcome: Outcome, now: float) -> None:
        state, shape, evidence = placement.state, placement.shape, self.evidence
        traffic = state.recheck.traffic
        if traffic is not None:
            traffic.saw(shape.category, outcome.prompt_tokens, outcome.output_tokens, now)
        version = self.fleet.version
        if outcome.output_tokens is not None:
            evidence.answered(shape.category, outcome.output_tokens // shape.sequences, version)
        latency = outcome.latency
        if latency is not None and latency.tpot_s is not None:
            mean: float | None = None
            seconds = now - placement.decision.at
            if seconds > 0.0 and shape.sequences == 1:
                mean = (state.ledger.sequence_seconds - placement.began) / seconds + state.foreign
            evidence.book.timed(state.name, placement.occupancy, latency.tpot_s, now, mean)
        speculator = state.speculator
        if speculator is None or not shape.decodes:
            return
        silence = self._silence.get(state.name, 0)
        if outcome.sample is None:
            self._silence[state.name] = min(silence + 1, SILENCE_REMEMBERED)
            return
        self._silence[state.name] = max(silence - 1, -SILENCE_REMEMBERED)
        if silence <= 0:
            sample, occupancy = outcome.sample, placement.occupancy
            evidence.credit(shape.model, speculator, shape.category, state.name, sample, version, now, occupancy)


def _count(placements: dict[tuple[str, Pool, Reason], _Count], category: str, decision: Decision) -> None:
    key = category, decision.pool, decision.reason
    count = placements.get(key)
    if count is None:
        count = placements[key] = _Count()
    count.number += 1


def _fleet_version(attempt: Placement | Refusal) -> int:
    return attempt.decision.fleet_version
