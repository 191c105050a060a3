"""What the agent beside an engine says acts on the fleet at once: role, draining, and that the engine is down."""

from __future__ import annotations

from fleets import dispatcher_of, fleet_of, report, shape, speculative, standard
from slipstream.core.dispatch import Dispatcher
from slipstream.core.errors import EngineDown, EngineUnreachable
from slipstream.core.node import NodeReport
from slipstream.core.node_state import NodeState
from slipstream.core.overrides import Override, OverrideKind
from slipstream.core.policy import Reason
from slipstream.core.request import Pool


def told(dispatcher: Dispatcher, name: str, now: float, said: NodeReport) -> NodeState:
    dispatcher.report(name, now, now, said)
    node = dispatcher.fleet.node(name)
    assert node is not None
    return node


def agent(role: Pool, running: int = 0, *, draining: bool = False) -> NodeReport:
    said = report(running, speculating=role is Pool.SPECULATIVE)
    return NodeReport(
        running=said.running, waiting=said.waiting, speculating=said.speculating, k=said.k, role=role, draining=draining
    )


def test_a_node_that_its_agent_drains_gets_nothing_new_until_the_agent_or_the_engine_alone_is_heard_again() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    assert dispatcher.place(shape(), "1", 0.0).decision.node == "s"
    node = told(dispatcher, "s", 0.1, agent(Pool.SPECULATIVE, draining=True))
    assert (node.state, node.closed) == ("draining", Reason.DRAINING)
    assert dispatcher.place(shape(), "2", 0.1).decision.node == "t"
    assert told(dispatcher, "s", 0.2, agent(Pool.SPECULATIVE)).state == "ready"
    told(dispatcher, "s", 0.3, agent(Pool.SPECULATIVE, draining=True))
    assert told(dispatcher, "s", 0.4, report()).state == "ready"  # the agent is gone, its engine answers


def test_a_node_that_drains_for_another_reason_too_goes_on_draining() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    dispatcher.fleet.drain("s", 0.0)
    assert told(dispatcher, "s", 0.1, agent(Pool.SPECULATIVE, draining=True)).state == "draining"
    assert told(dispatcher, "s", 0.2, agent(Pool.SPECULATIVE)).state == "draining"


def test_a_node_is_of_the_pool_of_its_role_and_back() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s", ceiling=1), standard("t")))
    dispatcher.place(shape(), "0", 0.0)
    node = told(dispatcher, "s", 0.1, report(1))
    assert node.saturated
    node = told(dispatcher, "s", 0.2, agent(Pool.STANDARD, 1))
    assert (node.pool, node.speculator, node.state) == (Pool.STANDARD, None, "ready")
    placed = dispatcher.place(shape("chat"), "1", 0.2)
    assert placed.decision.pool is Pool.STANDARD
    before = dispatcher.candidates(placed)
    node = told(dispatcher, "s", 0.3, agent(Pool.SPECULATIVE, 1))
    assert node.pool is Pool.SPECULATIVE
    assert node.speculator is not None
    assert node.state == "saturated"
    assert dispatcher.candidates(placed) == before  # the past is explained by the pool of then
    assert told(dispatcher, "s", 0.4, report(1)).pool is Pool.SPECULATIVE  # without its agent it stays what it was


def test_a_pools_ceiling_that_operators_fixed_follows_the_node_into_the_pool() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    dispatcher.override(Override(OverrideKind.POOL_CEILING, "speculative", 3), 0.0)
    assert told(dispatcher, "t", 0.1, agent(Pool.SPECULATIVE)).ceiling == 3
    assert told(dispatcher, "t", 0.2, agent(Pool.STANDARD)).ceiling == 8


def test_who_watches_the_engine_is_believed_at_once_that_it_is_down() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    dispatcher.report_failed("t", 0.1, EngineUnreachable("no answer"))
    node = dispatcher.fleet.node("t")
    assert node is not None
    assert node.healthy
    dispatcher.report_failed("s", 0.1, EngineDown("it ended with status 1"))
    node = dispatcher.fleet.node("s")
    assert node is not None
    assert (node.state, node.error) == ("unhealthy", "it ended with status 1")
    assert told(dispatcher, "s", 0.2, agent(Pool.SPECULATIVE)).state == "ready"
