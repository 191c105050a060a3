"""What is decided about roles is told to agents, and what they then say is followed. These agents only say things."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec
import pytest
from structlog.testing import capture_logs

from agent_states import QUIET
from slipstream.control.roles import FORGOTTEN_S, UNHEARD_S, RoleKeeper
from slipstream.core.errors import EngineUnreachable
from slipstream.core.fleet import Fleet
from slipstream.core.node import NodeReport, NodeSpec, SpeculativeCounters
from slipstream.core.node_state import NodeState
from slipstream.core.request import Pool
from slipstream.core.roles import NotChangeable, RoleReason, RoleSettings, fleet_tau
from slipstream.engines.agent import AgentRefused, AgentState, AgentSwitch, Transition

SETTINGS = RoleSettings(high_for_s=5.0, low_for_s=5.0, minimum_dwell_s=10.0, transition_s=10.0, surge_ceiling=6)


@dataclass
class SaidAgent:
    """An agent that does as it is told, when the test says so. ``refuses`` is raised in place of obeying."""

    state: AgentState | None
    told: list[bool] = field(default_factory=list)
    refuses: Exception | None = None

    @property
    def client(self) -> SaidAgent:
        return self

    async def speculation(self, *, active: bool) -> AgentState:
        if self.refuses is not None:
            raise self.refuses
        self.told.append(active)
        self.says(transition="draining", target=Pool.SPECULATIVE if active else Pool.STANDARD)
        assert self.state is not None
        return self.state

    def says(self, *, transition: Transition | None, target: Pool | None = None) -> None:
        assert self.state is not None
        self.state = msgspec.structs.replace(self.state, transition=transition, target=target)

    def switched(self, to: Pool, *, ok: bool = True, why: str | None = None) -> None:
        assert self.state is not None
        switch = AgentSwitch(self.state.role, to, 7.0, ok, why, {"draining": 1.0, "starting": 3.0})
        self.state = msgspec.structs.replace(
            self.state,
            transition=None,
            target=None,
            role=to if ok else self.state.role,
            switches=(*self.state.switches, switch),
            time=switch.began + sum(switch.phases.values()),
        )


class Rig:
    """Two speculative nodes and a standard one, each with an agent, and a keeper that looks when it is told to."""

    def __init__(self, settings: RoleSettings | None = SETTINGS) -> None:
        pools = {"spec-0": Pool.SPECULATIVE, "spec-1": Pool.SPECULATIVE, "std-0": Pool.STANDARD}
        self.now = 0.0
        self.fleet = Fleet(
            [
                NodeSpec(name, f"http://{name}", pool, ceiling=4, agent=f"http://{name}:9100")
                for name, pool in pools.items()
            ],
            0.0,
        )
        self.agents = {name: SaidAgent(msgspec.structs.replace(QUIET, role=pool)) for name, pool in pools.items()}
        self.waiting = 0
        self.ceilings: list[int | None] = []
        self.paces: Mapping[Pool, float | None] = dict.fromkeys(Pool)
        for name, pool in pools.items():
            self.report(name, pool)
        self.settings = settings
        self.keeper = self.anew()

    def anew(self) -> RoleKeeper:
        return RoleKeeper(
            self.fleet,
            lambda: self.agents,
            self.settings,
            waiting=lambda: self.waiting,
            pace=self.pace,
            override=self.ceilings.append,
            clock=lambda: self.now,
        )

    def pace(self, _node: NodeState, pool: Pool, _sequences: int, _tau: float | None) -> float | None:
        return self.paces[pool]

    def report(self, name: str, role: Pool, counters: SpeculativeCounters | None = None) -> None:
        report = NodeReport(0, 0, None, 8, role is Pool.SPECULATIVE, 4, counters=counters, models=("m",), role=role)
        self.fleet.report(name, self.now, self.now, report)

    def take(self, sequences: int) -> None:
        for node in self.fleet.nodes():
            self.fleet.admit(node.name, sequences, "chat", self.now)

    async def look(self, at: float) -> RoleReason | None:
        self.now = at
        await self.keeper.look()
        return None if self.keeper.verdict is None else self.keeper.verdict.reason

    async def surge(self) -> None:
        self.take(4)
        self.waiting = 20
        assert await self.look(0.0) is RoleReason.TOO_SHORT
        assert await self.look(6.0) is RoleReason.SURGE


async def test_a_surge_has_an_agent_lay_its_speculator_down_and_how_long_it_took_is_remembered() -> None:
    rig = Rig()
    await rig.surge()
    assert rig.agents["spec-0"].told == [False]
    change = rig.keeper.running
    assert change is not None
    assert (change.node, change.pool, change.by, change.ok) == ("spec-0", Pool.STANDARD, "controller", None)
    assert await rig.look(7.0) is RoleReason.IN_TRANSITION
    rig.agents["spec-0"].switched(Pool.STANDARD)
    rig.report("spec-0", Pool.STANDARD)
    await rig.look(11.0)
    assert (change.ok, change.ended_at, change.phases) == (True, 11.0, {"draining": 1.0, "starting": 3.0})
    assert rig.keeper.counts[Pool.STANDARD, True] == 1
    assert rig.keeper.verdict is not None
    assert rig.keeper.verdict.payoff is not None
    assert rig.keeper.verdict.payoff.transition_s == 4.0  # the next one is judged by what was measured
    assert rig.keeper.running is not None
    assert rig.keeper.running.node == "spec-1"


async def test_every_decision_is_told_with_its_numbers() -> None:
    rig = Rig()
    with capture_logs() as logs:
        await rig.surge()
    told = next(line for line in logs if line["event"] == "role.changes")
    assert (told["node"], told["pool"], told["by"]) == ("spec-0", Pool.STANDARD, "controller")
    assert (told["reason"], told["load"], told["wanted"]) == (RoleReason.SURGE, 2.0, 1)
    # A surge is expected to last half an hour, of which six seconds are over.
    assert (told["gain_tps"], told["dwell_s"], told["lost_tps"], told["transition_s"]) == (0.8, 1794.0, 8.0, 10.0)


async def test_a_gateway_that_comes_back_during_a_change_begins_no_second_one() -> None:
    rig = Rig()
    await rig.surge()
    told = list(rig.agents["spec-0"].told)
    rig.keeper = rig.anew()
    rig.agents["spec-0"].says(transition="starting", target=Pool.STANDARD)
    for at in (7.0, 20.0, 100.0):
        await rig.look(at)
    assert [agent.told for agent in rig.agents.values()] == [told, [], []]
    (change,) = rig.keeper.changes
    assert (change.node, change.pool, change.by) == ("spec-0", Pool.STANDARD, "agent")
    rig.agents["spec-0"].switched(Pool.STANDARD)
    rig.report("spec-0", Pool.STANDARD)
    await rig.look(101.0)
    assert change.ok
    assert rig.keeper.verdict is not None
    assert rig.keeper.verdict.speculative == 1  # roles are read from the agents


@pytest.mark.parametrize("heard", [True, False])
async def test_a_gateway_that_comes_back_after_a_change_lets_the_node_keep_its_role_for_a_while(heard: bool) -> None:
    rig = Rig(replace(SETTINGS, minimum_standard=0))
    rig.agents["spec-0"].switched(Pool.STANDARD)
    rig.report("spec-0", Pool.STANDARD)
    state = rig.agents["spec-0"].state
    if not heard:
        rig.agents["spec-0"].state = None
        await rig.look(-1.0)
        rig.agents["spec-0"].state = state
    del rig.agents["std-0"]  # so that there is one that could change
    await rig.look(0.0)
    assert await rig.look(6.0) is RoleReason.DWELLING
    assert await rig.look(10.5) is RoleReason.QUIET
    assert rig.agents["spec-0"].told == [True]


async def test_a_clock_that_jumps_while_an_agent_changes_its_role_ends_nothing() -> None:
    rig = Rig()
    await rig.surge()
    await rig.look(10 * UNHEARD_S)
    assert rig.keeper.running is not None
    await rig.look(6.0)
    rig.agents["spec-0"].switched(Pool.STANDARD)
    await rig.look(7.0)
    assert rig.keeper.changes[0].ok


async def test_in_quiet_a_standard_node_takes_its_speculator_up() -> None:
    rig = Rig(RoleSettings(low_for_s=5.0, minimum_dwell_s=0.0, minimum_standard=0))
    await rig.look(0.0)
    assert await rig.look(6.0) is RoleReason.QUIET
    assert rig.agents["std-0"].told == [True]


async def test_a_switch_that_fails_leaves_the_node_and_says_why() -> None:
    rig = Rig()
    await rig.surge()
    rig.agents["spec-0"].switched(Pool.STANDARD, ok=False, why="it did not drain")
    with capture_logs() as logs:
        await rig.look(8.0)
    assert {"event": "role.kept", "node": "spec-0", "pool": Pool.STANDARD, "because": "it did not drain",
            "log_level": "warning"} in logs  # fmt: skip
    assert rig.keeper.counts[Pool.STANDARD, False] == 1
    assert rig.agents["spec-1"].told == [False]  # and the next one is tried


async def test_an_agent_that_refuses_is_no_change() -> None:
    rig = Rig()
    rig.agents["spec-0"].refuses = AgentRefused("another gateway commands this node", 409, "held")
    await rig.surge()
    assert rig.keeper.running is None
    assert rig.keeper.changes[0].why == "another gateway commands this node"
    assert await rig.look(7.0) is RoleReason.SURGE
    assert rig.agents["spec-1"].told == [False]


async def test_a_change_that_others_began_is_waited_for() -> None:
    rig = Rig()
    state = rig.agents["std-0"].state
    assert state is not None
    rig.agents["std-0"].state = msgspec.structs.replace(state, holder="gateway box 0.0.0.0:8080")
    rig.agents["std-0"].says(transition="draining", target=Pool.SPECULATIVE)
    await rig.look(0.0)
    assert rig.keeper.running is not None
    for name in ("std-0", "spec-0"):
        to = Pool.SPECULATIVE if name == "std-0" else Pool.STANDARD
        with pytest.raises(
            NotChangeable, match=r"^std-0 is changing its role by a command of gateway box 0\.0\.0\.0:8080:"
        ):
            await rig.keeper.change(name, to)
    assert (rig.keeper.running.by, rig.keeper.running.pool) == ("agent", Pool.SPECULATIVE)
    rig.agents["std-0"].switched(Pool.SPECULATIVE)
    await rig.look(3.0)
    assert rig.keeper.running is None


async def test_an_engine_that_starts_changes_no_role_and_none_is_changed_meanwhile() -> None:
    rig = Rig()
    rig.agents["std-0"].says(transition="warming")
    rig.take(4)
    rig.waiting = 20
    await rig.look(0.0)
    assert await rig.look(6.0) is RoleReason.IN_TRANSITION
    assert rig.keeper.running is None
    assert not rig.keeper.changes
    rig.agents["std-0"].says(transition=None)
    await rig.look(7.0)
    assert rig.agents["spec-0"].told == [False]


async def test_an_agent_that_ends_its_requests_to_end_itself_changes_no_role() -> None:
    rig = Rig()
    rig.agents["std-0"].says(transition="draining")
    await rig.look(0.0)
    rig.agents["std-0"].state = None
    await rig.look(1.0)
    assert not rig.keeper.changes
    await rig.keeper.change("spec-0", Pool.STANDARD)


@pytest.mark.parametrize(("agent", "which"), [("http://another", "another"), (None, "no")])
async def test_a_node_that_gets_another_agent_ends_its_change_whatever_that_one_did_before(
    agent: str | None, which: str
) -> None:
    rig = Rig()
    await rig.surge()
    other = SaidAgent(QUIET)
    other.switched(Pool.STANDARD)
    rig.agents["spec-0"] = other
    rig.fleet.remove("spec-0")
    rig.fleet.add(NodeSpec("spec-0", "http://spec-0", Pool.SPECULATIVE, ceiling=4, agent=agent), 7.0)
    rig.report("spec-0", Pool.STANDARD)
    await rig.look(8.0)
    assert (rig.keeper.changes[0].ok, rig.keeper.changes[0].why) == (False, f"the node has {which} agent by now")


async def test_a_change_that_has_ended_before_its_agent_refuses_it_ends_once() -> None:
    rig = Rig(None)
    asked = asyncio.Event()

    async def too_late(*, active: bool) -> AgentState:
        await asked.wait()
        raise EngineUnreachable("no answer")

    rig.agents["spec-0"].speculation = too_late  # type: ignore[method-assign]  # an agent that takes its time
    changing = asyncio.create_task(rig.keeper.change("spec-0", Pool.STANDARD))
    await asyncio.sleep(0)
    rig.fleet.remove("spec-0")
    await rig.look(1.0)
    await rig.keeper.change("spec-1", Pool.STANDARD)
    asked.set()
    with pytest.raises(NotChangeable, match="the node has left the fleet"):
        await changing
    assert rig.keeper.running is not None
    assert rig.keeper.running.node == "spec-1"
    assert rig.keeper.counts[Pool.STANDARD, False] == 1


@pytest.mark.parametrize("role", list(Pool))
async def test_an_agent_that_was_started_anew_is_taken_at_its_word(role: Pool) -> None:
    rig = Rig()
    await rig.surge()
    agent = rig.agents["spec-0"]
    assert agent.state is not None
    agent.state = msgspec.structs.replace(agent.state, transition=None, role=role)
    await rig.look(6.0 + FORGOTTEN_S)
    assert rig.keeper.changes[0].ok is None
    await rig.look(6.1 + FORGOTTEN_S)
    assert rig.keeper.changes[0].ok is (role is Pool.STANDARD)


async def test_a_change_is_not_waited_for_for_ever() -> None:
    rig = Rig()
    await rig.surge()
    rig.agents["spec-0"].state = None
    await rig.look(UNHEARD_S)
    assert rig.keeper.changes[0].ok is None
    await rig.look(UNHEARD_S + 7.0)
    assert rig.keeper.changes[0].why == "nothing was heard of it for 900 s"


async def test_a_node_that_leaves_ends_its_change() -> None:
    rig = Rig()
    await rig.surge()
    del rig.agents["spec-0"]
    rig.fleet.remove("spec-0")
    await rig.look(8.0)
    assert rig.keeper.changes[0].why == "the node has left the fleet"


async def test_where_a_change_does_not_pay_ceilings_are_raised_until_it_is_quiet() -> None:
    rig = Rig()
    rig.paces = {Pool.SPECULATIVE: 100.0, Pool.STANDARD: 100.0}
    rig.take(4)
    rig.waiting = 20
    await rig.look(0.0)
    assert await rig.look(6.0) is RoleReason.DOES_NOT_PAY
    assert rig.ceilings == [6]
    rig.keeper.configure(replace(SETTINGS, surge_ceiling=12))
    await rig.look(7.0)
    assert rig.ceilings == [6, 12]  # as a reload wants it
    rig.keeper.configure(None)
    assert rig.ceilings == [6, 12, None]
    assert rig.keeper.verdict is None
    assert rig.keeper.wanted() == {}


async def test_operators_change_roles_whatever_the_load() -> None:
    rig = Rig(None)
    change = await rig.keeper.change("std-0", Pool.SPECULATIVE)
    assert rig.agents["std-0"].told == [True]
    assert change.by == "operator"
    assert await rig.look(1.0) is None  # nothing is decided here
    rig.agents["std-0"].switched(Pool.SPECULATIVE)
    await rig.look(2.0)
    assert change.ok
    assert rig.keeper.samples()[Pool.SPECULATIVE, "changed"] == 1.0


async def test_what_can_not_be_changed_is_said() -> None:
    rig = Rig(None)
    silent, fixed = rig.agents["spec-1"], rig.agents["std-0"]
    silent.state = None
    assert fixed.state is not None
    fixed.state = msgspec.structs.replace(fixed.state, switchable=False)
    lonely = NodeSpec("lonely", "http://lonely", Pool.STANDARD)
    rig.fleet.add(lonely, 0.0)

    async def refused(name: str, pool: Pool) -> str:
        with pytest.raises(NotChangeable) as caught:
            await rig.keeper.change(name, pool)
        return str(caught.value)

    assert await refused("none", Pool.STANDARD) == "there is no node none"
    assert (await refused("lonely", Pool.STANDARD)).startswith("lonely has no agent: run its engine by")
    assert await refused("spec-0", Pool.SPECULATIVE) == "spec-0 is speculative already"
    assert await refused("spec-1", Pool.STANDARD) == "the agent of spec-1 is silent"
    assert await refused("std-0", Pool.SPECULATIVE) == "the agent of std-0 has no other way to run its engine"
    rig.agents["spec-0"].refuses = EngineUnreachable("the agent can not be reached")
    assert await refused("spec-0", Pool.STANDARD) == "the agent can not be reached"
    rig.agents["spec-0"].refuses = None
    await rig.keeper.change("spec-0", Pool.STANDARD)
    silent.state = QUIET
    assert (await refused("spec-1", Pool.STANDARD)).startswith("spec-0 is changing its role")


def test_the_fleets_tau_is_of_all_that_its_nodes_have_verified() -> None:
    rig = Rig()
    assert fleet_tau(rig.fleet.nodes()) is None
    rig.report("spec-0", Pool.SPECULATIVE, SpeculativeCounters(accepted=200, verify_steps=100))
    rig.report("spec-1", Pool.SPECULATIVE, SpeculativeCounters(accepted=0, verify_steps=100))
    rig.report("std-0", Pool.STANDARD, SpeculativeCounters(accepted=None, verify_steps=5))
    assert fleet_tau(rig.fleet.nodes()) == pytest.approx(2.0)
