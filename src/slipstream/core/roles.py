"""How many nodes should speculate now: watermarks on the fleet's load, and whether changing a node's role pays.

No engine takes up or lays down its speculator while it runs, so a change of role is a drained restart: for minutes the
fleet is a node short. It is made when what is gained for as long as the load is expected to stay as it is exceeds what
is lost meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from slipstream.core.errors import SlipstreamError
from slipstream.core.node_state import NodeState
from slipstream.core.request import Pool

__all__ = [
    "LOOK_S",
    "By",
    "NotChangeable",
    "Payoff",
    "RoleChange",
    "RoleController",
    "RoleNode",
    "RoleReason",
    "RoleSettings",
    "RoleVerdict",
    "fleet_tau",
    "remaining_s",
]

LOOK_S = 1.0
"""How often roles are looked at, in seconds."""
PERIODS_REMEMBERED = 32


@dataclass(frozen=True, slots=True)
class RoleSettings:
    """When roles change.

    Load is the share of the fleet's room that is taken, 0 and up: sequences on nodes and in the queue over what the
    nodes hold (its ceiling for a speculative node). Above ``high_watermark`` for ``high_for_s`` seconds a speculative
    node is to become standard; where load would stay below ``low_watermark`` with one more speculative node, for
    ``low_for_s``, a standard one is to speculate. A node keeps a role for ``minimum_dwell_s`` at least, and neither
    pool gets smaller than its minimum. ``expected_high_s`` and ``expected_low_s``: how long load stays so, until the
    fleet has seen for itself. ``transition_s``: how long a change takes, until one was measured. Where no profile is
    known, a full node makes a share of ``surge_gain`` more tokens without its speculator, and one in quiet
    ``quiet_gain`` more with it. ``surge_ceiling``: of speculative nodes in a surge that does not pay for a change;
    ``None`` = as ever.
    """

    high_watermark: float = 0.9
    low_watermark: float = 0.5
    high_for_s: float = 15.0
    low_for_s: float = 300.0
    minimum_dwell_s: float = 600.0
    minimum_speculative: int = 0
    minimum_standard: int = 1
    expected_high_s: float = 1800.0
    expected_low_s: float = 7200.0
    transition_s: float = 120.0
    surge_gain: float = 0.1
    quiet_gain: float = 0.15
    surge_ceiling: int | None = None


class NotChangeable(SlipstreamError):
    """A node's role can not be changed now."""


class RoleReason(StrEnum):
    """Why roles change, or stay as they are."""

    SURGE = "surge"
    """Load stays above the high watermark: a node lays its speculator down."""
    QUIET = "quiet"
    """Load stays below the low watermark: a node takes its speculator up."""
    WITHIN = "within_watermarks"
    """Load calls for no change."""
    TOO_SHORT = "too_short"
    """It calls for one, but not for long enough yet."""
    IN_TRANSITION = "in_transition"
    """A node is changing its role; another one waits."""
    DWELLING = "dwelling"
    """Every node that could change has its role since too short a time."""
    AT_MINIMUM = "at_minimum"
    """The pool that would lose a node is as small as it may be, or none of its nodes can change."""
    DOES_NOT_PAY = "does_not_pay"
    """What the fleet would lose meanwhile is more than what it would gain."""


@dataclass(frozen=True, slots=True)
class RoleNode:
    """A node as far as roles go.

    ``pool`` is its role now, since ``since``. ``sequences`` it works on. ``speculative_room`` and ``standard_room``:
    sequences it is meant to hold in either role: its ceiling, and what it runs at once. ``full_speculative_tps`` and
    ``full_standard_tps``: tokens a second it makes in either role with all that it runs at once, since in a surge a
    speculative node is filled beyond its ceiling. ``quiet_gain_tps``: tokens a second that its users would gain by its
    speculating, at the fleet's load of now. ``changeable``: it is usable, and something can change its role.
    """

    name: str
    pool: Pool
    since: float
    sequences: int
    speculative_room: int
    standard_room: int
    full_speculative_tps: float
    full_standard_tps: float
    quiet_gain_tps: float
    changeable: bool = True

    @property
    def room(self) -> int:
        """Sequences it holds in its role of now."""
        return self.speculative_room if self.pool is Pool.SPECULATIVE else self.standard_room


@dataclass(frozen=True, slots=True)
class Payoff:
    """A change of role in figures: ``gain_tps`` tokens a second for ``dwell_s``, against ``lost_tps`` for
    ``transition_s``.
    """

    gain_tps: float
    dwell_s: float
    lost_tps: float
    transition_s: float

    @property
    def pays(self) -> bool:
        """Whether more is gained than lost."""
        return self.gain_tps * self.dwell_s > self.lost_tps * self.transition_s


@dataclass(frozen=True, slots=True)
class RoleVerdict:
    """What is to be done, and why. ``node`` and ``pool``: that node is to have that role; ``None`` = all stay. ``load``
    is as in `RoleSettings`. ``speculative`` nodes there are, and ``wanted`` there should be. ``payoff`` of the change
    that was considered, ``None`` = none was. ``raised``: the surge's ceiling holds.
    """

    reason: RoleReason
    load: float
    speculative: int
    wanted: int
    raised: bool
    node: str | None = None
    pool: Pool | None = None
    payoff: Payoff | None = None


By = Literal["controller", "operator", "agent"]
"""Who wanted a change: the controller, an operator through this gateway, or somebody who told the agent."""


@dataclass(slots=True)
class RoleChange:
    """A node's change to the role ``pool``. ``began_at`` and ``ended_at`` are times of the fleet's clock, ``phases``
    are seconds. ``verdict`` is what the controller began it for. ``ok`` is ``None`` while it runs; ``why`` says why it
    is not.
    """

    node: str
    pool: Pool
    by: By
    began_at: float
    verdict: RoleVerdict | None = None
    ended_at: float | None = None
    ok: bool | None = None
    why: str | None = None
    phases: Mapping[str, float] | None = None


class RoleController:
    """Decides on roles, look by look; it remembers how long load was high and low, and how long changes took."""

    __slots__ = (
        "_failed",
        "_high_since",
        "_highs",
        "_in_transition",
        "_low_since",
        "_lows",
        "_raised",
        "_settings",
        "_transitions",
    )

    def __init__(self, settings: RoleSettings) -> None:
        self._settings = settings
        self._high_since: float | None = None
        self._low_since: float | None = None
        self._highs: deque[float] = deque(maxlen=PERIODS_REMEMBERED)
        self._lows: deque[float] = deque(maxlen=PERIODS_REMEMBERED)
        self._transitions: deque[float] = deque(maxlen=PERIODS_REMEMBERED)
        self._in_transition: str | None = None
        self._raised = False
        self._failed: dict[str, float] = {}
        """When each node last failed to change its role."""

    def configure(self, settings: RoleSettings) -> None:
        """Decide by these from now on; what was seen is kept."""
        self._settings = settings

    @property
    def transition_s(self) -> float:
        """How long a change takes: the mean of those measured."""
        measured = self._transitions
        return sum(measured) / len(measured) if measured else self._settings.transition_s

    def began(self, node: str) -> None:
        """A node has begun to change its role, whoever wanted it."""
        self._in_transition = node

    def ended(self, now: float, took_s: float | None) -> None:
        """The change has ended after so long; ``None`` = it failed: that says nothing of how long one takes, and the
        node is not tried again until it has rested like one that has changed.
        """
        if took_s is not None:
            self._transitions.append(took_s)
        elif self._in_transition is not None:
            self._failed[self._in_transition] = now
        self._in_transition = None

    def look(self, nodes: Sequence[RoleNode], queued: int, now: float) -> RoleVerdict:
        """What is to be done about roles, with ``queued`` sequences that no node has yet. The node that is changing
        its role is none of ``nodes``.
        """
        settings = self._settings
        room = sum(node.room for node in nodes)
        demand = queued + sum(node.sequences for node in nodes)
        load = demand / room if room else 0.0
        speculative = sum(node.pool is Pool.SPECULATIVE for node in nodes)
        standard = len(nodes) - speculative
        leaner = _next(nodes, Pool.STANDARD)
        low_room = room + (leaner.speculative_room - leaner.standard_room if leaner is not None else 0)
        high = load > settings.high_watermark
        low = demand <= settings.low_watermark * low_room
        self._high_since = _follow(self._high_since, self._highs, now, holds=high)
        self._low_since = _follow(self._low_since, self._lows, now, holds=low)
        if high and self._high_since is not None:
            wanted = max(speculative - 1, min(speculative, settings.minimum_speculative))
            change = _Change(Pool.SPECULATIVE, RoleReason.SURGE, settings.high_for_s, now - self._high_since, wanted)
            spare = speculative > settings.minimum_speculative
            expected_s = remaining_s(self._highs, change.lasted_s, settings.expected_high_s)
        elif low and self._low_since is not None and standard > 0:
            wanted = speculative + (standard > settings.minimum_standard)
            change = _Change(Pool.STANDARD, RoleReason.QUIET, settings.low_for_s, now - self._low_since, wanted)
            spare = standard > settings.minimum_standard
            expected_s = remaining_s(self._lows, change.lasted_s, settings.expected_low_s)
        else:
            if load <= settings.low_watermark:
                self._raised = False
            return RoleVerdict(RoleReason.WITHIN, load, speculative, speculative, self._raised)
        reason, node, payoff = self._judge(change, nodes, demand, room, expected_s, now, spare=spare)
        self._raised = high and (self._raised or reason is RoleReason.DOES_NOT_PAY) and node is None
        name, to = None, None
        if node is not None:
            name, to = node.name, Pool.STANDARD if change.pool is Pool.SPECULATIVE else Pool.SPECULATIVE
        return RoleVerdict(reason, load, speculative, change.wanted, self._raised, name, to, payoff)

    def _judge(
        self,
        change: _Change,
        nodes: Sequence[RoleNode],
        demand: int,
        room: int,
        expected_s: float,
        now: float,
        *,
        spare: bool,
    ) -> tuple[RoleReason, RoleNode | None, Payoff | None]:
        settings = self._settings
        if self._in_transition is not None:
            return RoleReason.IN_TRANSITION, None, None
        if not spare or _next(nodes, change.pool) is None:
            return RoleReason.AT_MINIMUM, None, None
        if change.lasted_s < change.needed_s:
            return RoleReason.TOO_SHORT, None, None
        since = (max(node.since, self._failed.get(node.name, node.since)) for node in nodes)
        rested = [n for n, at in zip(nodes, since, strict=True) if now - at >= settings.minimum_dwell_s]
        node = _next(rested, change.pool)
        if node is None:
            return RoleReason.DWELLING, None, None
        if change.pool is Pool.SPECULATIVE:
            gain_tps, lost_tps = node.full_standard_tps - node.full_speculative_tps, node.full_speculative_tps
        else:
            missing = max(0, demand - (room - node.standard_room))
            gain_tps = node.quiet_gain_tps
            lost_tps = node.full_standard_tps * missing / node.standard_room if node.standard_room else 0.0
        payoff = Payoff(gain_tps, expected_s, lost_tps, self.transition_s)
        return (change.reason, node, payoff) if payoff.pays else (RoleReason.DOES_NOT_PAY, None, payoff)


@dataclass(frozen=True, slots=True)
class _Change:
    """What load calls for: a node of ``pool`` to leave it, once it has lasted long enough."""

    pool: Pool
    reason: RoleReason
    needed_s: float
    lasted_s: float
    wanted: int


def _next(nodes: Iterable[RoleNode], pool: Pool) -> RoleNode | None:
    """The node of a pool whose change costs least: the one with the least to do."""
    return min((n for n in nodes if n.pool is pool and n.changeable), key=lambda n: (n.sequences, n.name), default=None)


def _follow(since: float | None, periods: deque[float], now: float, *, holds: bool) -> float | None:
    """Since when something holds; when it ends, how long it did is remembered."""
    if holds:
        return now if since is None else since
    if since is not None:
        periods.append(now - since)
    return None


def remaining_s(periods: Iterable[float], lasted_s: float, expected_s: float) -> float:
    """How much longer something will last that has lasted ``lasted_s``: the mean of what was left, at that age, of
    the ``periods`` that lasted longer; ``expected_s``, what was expected at first, counts as one of them. What has
    lasted longer than any is expected to last as long again.
    """
    longer = [period - lasted_s for period in (*periods, expected_s) if period > lasted_s]
    return sum(longer) / len(longer) if longer else lasted_s


def fleet_tau(nodes: Iterable[NodeState]) -> float | None:
    """Mean acceptance length of all that nodes have drafted since their engines started (1 and up); ``None`` = they
    have verified nothing, or do not say.
    """
    accepted = steps = 0
    for node in nodes:
        counters = None if node.report is None else node.report.counters
        if counters is not None and counters.accepted is not None and counters.verify_steps:
            accepted += counters.accepted
            steps += counters.verify_steps
    return 1.0 + accepted / steps if steps else None
