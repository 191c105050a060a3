"""Changing the roles of nodes: what the role controller or an operator decides is told to the agents beside engines."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from math import inf
from typing import Protocol

import structlog

from slipstream.core.errors import EngineError
from slipstream.core.fleet import Fleet
from slipstream.core.node_state import NodeState
from slipstream.core.request import Pool
from slipstream.core.roles import (
    LOOK_S,
    By,
    NotChangeable,
    RoleChange,
    RoleController,
    RoleNode,
    RoleReason,
    RoleSettings,
    RoleVerdict,
    fleet_tau,
)
from slipstream.engines.agent import AgentRefused, AgentState, AgentSwitch

__all__ = ["Agent", "Commands", "RoleKeeper"]

CHANGES_REMEMBERED = 1_000
FORGOTTEN_S = 10.0
"""A change that its agent says nothing of for so long ended without a word, as where the agent was started anew."""
UNHEARD_S = 900.0
"""A change of which nothing is heard for so long has failed. By default one takes 720 s at most."""

log = structlog.get_logger(__name__)


class Commands(Protocol):
    """Tells an agent what to do."""

    async def speculation(self, *, active: bool) -> AgentState: ...


class Agent(Protocol):
    """What is known of an agent; ``state`` is ``None`` while it is silent."""

    @property
    def state(self) -> AgentState | None: ...

    @property
    def client(self) -> Commands: ...


class RoleKeeper:
    """Looks at the fleet every second, and has one node at a time change its role.

    ``agents`` gives those that there are, by node; ``waiting`` how many sequences no node has yet. ``pace(node, pool,
    n, tau)`` is how many tokens a second a node makes in a role with ``n`` sequences and that mean acceptance length
    (``None`` = not known yet), ``None`` = not known. ``override`` is told of the ceiling that speculative nodes are to
    have, ``None`` = their own again. ``settings`` ``None`` = nothing is decided here, and operators alone change roles.
    All methods belong to the loop's thread.
    """

    def __init__(
        self,
        fleet: Fleet,
        agents: Callable[[], Mapping[str, Agent]],
        settings: RoleSettings | None,
        *,
        waiting: Callable[[], int],
        pace: Callable[[NodeState, Pool, int, float | None], float | None],
        override: Callable[[int | None], None],
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._fleet = fleet
        self._agents = agents
        self._settings = settings
        self._controller = RoleController(settings or RoleSettings())
        self._waiting = waiting
        self._pace = pace
        self._override = override
        self._clock = clock
        self._sleep = sleep
        self._since: dict[str, tuple[Pool, float | None]] = {}
        """The role of each node at the last look, and since when it has it; ``None`` = that is not known yet."""
        self._before: AgentSwitch | None = None
        self._address: str | None = None
        self._ceiling: int | None = None
        self.running: RoleChange | None = None
        """The change that has begun and not ended."""
        self.verdict: RoleVerdict | None = None
        """What the last look found; ``None`` = nothing is decided here."""
        self.changes: deque[RoleChange] = deque(maxlen=CHANGES_REMEMBERED)
        """The last ones, the oldest first; the running one is among them."""
        self.counts: dict[tuple[Pool, bool], int] = {(pool, ok): 0 for pool in Pool for ok in (True, False)}
        """Changes that have ended, by the role that was wanted, and whether it was had."""

    def configure(self, settings: RoleSettings | None) -> None:
        """Decide by these from now on."""
        if settings is None:
            self.verdict = None
            self._move_ceilings(None)
        else:
            self._controller.configure(settings)
        self._settings = settings

    def samples(self) -> Mapping[tuple[str, ...], float]:
        """``counts`` as a metric's, by role and ``changed`` or ``kept``."""
        return {(pool, "changed" if ok else "kept"): float(n) for (pool, ok), n in self.counts.items()}

    def wanted(self) -> Mapping[tuple[str, ...], float]:
        """How many nodes should be speculative, as a metric's; left out where nothing is decided."""
        return {} if self.verdict is None else {(): float(self.verdict.wanted)}

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.look()
            await self._sleep(LOOK_S)

    async def look(self) -> None:
        """Follow the change that runs; when none does, decide on one."""
        self._follow()
        if self.running is None:
            self._notice()
        settings = self._settings
        if settings is None:
            return
        now, waiting = self._clock(), self._waiting()
        verdict = self._controller.look(self._nodes(settings, waiting, now), waiting, now)
        if verdict.node is not None and self._some_engine_starts():
            verdict = replace(verdict, reason=RoleReason.IN_TRANSITION, node=None, pool=None)
        self._tell(verdict)
        self._move_ceilings(settings.surge_ceiling if verdict.raised else None)
        if verdict.node is not None and verdict.pool is not None:
            await self._begin(verdict.node, verdict.pool, "controller", verdict)

    async def change(self, name: str, pool: Pool) -> RoleChange:
        """Have a node change its role now, whatever the load. Raises `NotChangeable` with the reason when it can not
        or its agent does not begin.
        """
        self._follow()
        node, agent = self._fleet.node(name), self._agents().get(name)
        if node is None:
            raise NotChangeable(f"there is no node {name}")
        if agent is None:
            raise NotChangeable(f"{name} has no agent: run its engine by `slipstream node`, and name its `agent`")
        if node.pool is pool:
            raise NotChangeable(f"{name} is {pool} already")
        if agent.state is None:
            raise NotChangeable(f"the agent of {name} is silent")
        if not agent.state.switchable:
            raise NotChangeable(f"the agent of {name} has no other way to run its engine")
        if self.running is not None:
            other = self._agents().get(self.running.node)
            holder = None if other is None or other.state is None else other.state.holder
            whose = "" if holder is None else f" by a command of {holder}"
            raise NotChangeable(f"{self.running.node} is changing its role{whose}: one node does at a time")
        change = await self._begin(name, pool, "operator", None)
        if change.ok is False:
            raise NotChangeable(change.why or "its agent refused")
        return change

    async def _begin(self, name: str, pool: Pool, by: By, verdict: RoleVerdict | None) -> RoleChange:
        agent = self._agents()[name]
        change = RoleChange(name, pool, by, self._clock(), verdict)
        self._start(change, agent.state)
        try:
            await agent.client.speculation(active=pool is Pool.SPECULATIVE)
        except (AgentRefused, EngineError) as error:
            if self.running is change:  # and has not ended meanwhile, as where its node has left
                self._end(change, ok=False, why=str(error), phases=None)
        return change

    def _start(self, change: RoleChange, state: AgentState | None) -> None:
        self.running = change
        self._before = state.switches[-1] if state is not None and state.switches else None
        node = self._fleet.node(change.node)
        self._address = None if node is None else node.spec.agent
        self.changes.append(change)
        self._controller.began(change.node)
        numbers = {} if change.verdict is None else _numbers(change.verdict)
        log.info("role.changes", node=change.node, pool=change.pool, by=change.by, **numbers)

    def _follow(self) -> None:
        """See whether the change that runs has ended."""
        change = self.running
        if change is None:
            return
        node, agent = self._fleet.node(change.node), self._agents().get(change.node)
        if node is None:
            self._end(change, ok=False, why="the node has left the fleet", phases=None)
            return
        if node.spec.agent != self._address:
            which = "no agent" if node.spec.agent is None else "another agent"
            self._end(change, ok=False, why=f"the node has {which} by now", phases=None)
            return
        state = None if agent is None else agent.state
        if state is not None and state.transition is None and state.switches and state.switches[-1] != self._before:
            switch = state.switches[-1]
            self._end(change, ok=switch.ok, why=switch.why, phases=switch.phases)
        elif state is not None and state.transition is None and self._clock() - change.began_at > FORGOTTEN_S:
            ok = state.role is change.pool
            self._end(change, ok=ok, why=None if ok else "its agent knows nothing of it any more", phases=None)
        elif state is None and self._clock() - change.began_at > UNHEARD_S:
            self._end(change, ok=False, why=f"nothing was heard of it for {UNHEARD_S:.0f} s", phases=None)

    def _end(self, change: RoleChange, *, ok: bool, why: str | None, phases: Mapping[str, float] | None) -> None:
        now = self._clock()
        self.running = None
        change.ended_at, change.ok, change.why, change.phases = now, ok, why, phases
        self.counts[change.pool, ok] += 1
        self._controller.ended(now, sum(phases.values()) if ok and phases else None)
        if ok:
            log.info("role.changed", node=change.node, pool=change.pool, took_s=round(now - change.began_at, 3))
        else:
            log.warning("role.kept", node=change.node, pool=change.pool, because=why)

    def _some_engine_starts(self) -> bool:
        """Whether some node is not there yet, or not again: then the fleet is a node short already."""
        return any(one.state is not None and one.state.transition is not None for one in self._agents().values())

    def _notice(self) -> None:
        """A change that an agent was told of by others, or by a gateway before this one."""
        for name, agent in self._agents().items():
            state = agent.state
            if state is not None and state.target is not None and self._fleet.node(name) is not None:
                self._start(RoleChange(name, state.target, "agent", self._clock()), state)
                return

    def _nodes(self, settings: RoleSettings, waiting: int, now: float) -> list[RoleNode]:
        """Those that count: usable ones, but for the one whose role changes."""
        changing = None if self.running is None else self.running.node
        before, self._since = self._since, {}
        for node in self._fleet.nodes():
            pool, since = before.get(node.name, (node.pool, None))
            if since is None:
                since = self._changed_at(node.name, now)
            elif pool is not node.pool:
                since = now
            self._since[node.name] = node.pool, since
        nodes = [node for node in self._fleet.nodes() if node.usable and node.name != changing]
        agents, tau = self._agents(), fleet_tau(self._fleet.nodes())
        demand = waiting + sum(node.occupancy for node in nodes)
        each = max(1, round(demand / max(1, len(nodes))))
        return [self._seen(node, agents.get(node.name), each, tau, settings) for node in nodes]

    def _changed_at(self, name: str, now: float) -> float | None:
        """When a node that was not here before took its role: its agent knows, and outlives gateways; ``None`` = that
        was not heard yet.
        """
        agent = self._agents().get(name)
        if agent is None:
            return -inf
        if agent.state is None:
            return None
        ends = [one.began + sum(one.phases.values()) for one in agent.state.switches if one.ok]
        return now - max(0.0, agent.state.time - ends[-1]) if ends else -inf

    def _seen(
        self, node: NodeState, agent: Agent | None, each: int, tau: float | None, settings: RoleSettings
    ) -> RoleNode:
        quiet, since = min(each, node.ceiling), self._since[node.name][1]
        speculative, standard = (self._pace(node, pool, node.limit, tau) for pool in (Pool.SPECULATIVE, Pool.STANDARD))
        if speculative is None or standard is None:  # in sequences' worth of tokens, which is all that is compared
            speculative, standard = float(node.limit), node.limit * (1.0 + settings.surge_gain)
        drafting, plain = (self._pace(node, pool, quiet, tau) for pool in (Pool.SPECULATIVE, Pool.STANDARD))
        return RoleNode(
            node.name,
            node.pool,
            -inf if since is None else since,
            node.occupancy,
            node.ceiling,
            node.limit,
            speculative,
            standard,
            settings.quiet_gain * quiet if drafting is None or plain is None else drafting - plain,
            agent is not None and agent.state is not None and agent.state.switchable,
        )

    def _tell(self, verdict: RoleVerdict) -> None:
        """Put down what is new."""
        before, self.verdict = self.verdict, verdict
        if before is None or before.reason is not verdict.reason:
            log.info("roles.verdict", **_numbers(verdict))

    def _move_ceilings(self, ceiling: int | None) -> None:
        if ceiling != self._ceiling:
            self._ceiling = ceiling
            self._override(ceiling)


def _numbers(verdict: RoleVerdict) -> dict[str, object]:
    """A verdict for the log."""
    told: dict[str, object] = {
        "reason": verdict.reason,
        "load": round(verdict.load, 3),
        "speculative": verdict.speculative,
        "wanted": verdict.wanted,
    }
    payoff = verdict.payoff
    if payoff is not None:
        told |= {
            "gain_tps": round(payoff.gain_tps, 1),
            "dwell_s": round(payoff.dwell_s, 1),
            "lost_tps": round(payoff.lost_tps, 1),
            "transition_s": round(payoff.transition_s, 1),
        }
    return told
