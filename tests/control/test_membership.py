"""Nodes come, change and go while requests run: none is lost, none is sent to a node that leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from fleets import MODEL, dispatcher_of, fleet_of, report, shape
from gateway_rig import eventually
from slipstream.control.membership import HAND_OVER_S, Membership
from slipstream.control.poller import Timing
from slipstream.control.supervisor import Supervisor
from slipstream.core.dispatch import Dispatcher, Placement
from slipstream.core.errors import EngineUnreachable, PlacementError, UnknownModel
from slipstream.core.node import NodeSpec
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.request import Pool

DONE = Outcome(Ending.COMPLETED, 200)


class Silent:
    """A node that is never heard of: what a test wants reported, it reports itself."""

    async def fetch(self, path: str, timeout_s: float) -> bytes:
        await asyncio.Event().wait()
        raise EngineUnreachable(path)

    def close(self) -> None: ...


async def soon(seconds: float) -> None:
    await asyncio.sleep(min(seconds, 0.002))


def node(name: str, host: str = "", pool: Pool = Pool.STANDARD, limit: int | None = None) -> NodeSpec:
    return NodeSpec(name, f"http://{host or name}:1", pool, models=(MODEL,), max_in_flight=limit)


class Fleet:
    """A dispatcher whose nodes a membership keeps; time stands still unless ``now`` is moved."""

    def __init__(self) -> None:
        self.dispatcher: Dispatcher = dispatcher_of(fleet_of())
        self.supervisor = Supervisor(self.dispatcher, lambda _node: Silent(), Timing(), clock=lambda: 0.0, sleep=soon)
        self.forgotten: list[str] = []
        self.now = 0.0
        self.membership = Membership(
            self.dispatcher, self.supervisor, clock=lambda: self.now, forgotten=self.forgotten.append, sleep=soon
        )

    def set(self, *specs: NodeSpec) -> None:
        self.membership.set(specs)
        for one in specs:
            self.report(one.name)
        self.membership.look()

    def report(self, name: str) -> None:
        self.dispatcher.report(name, 0.0, 0.0, report())

    def states(self) -> dict[str, str]:
        return {one.name: one.state for one in self.dispatcher.fleet.nodes()}

    def place(self) -> Placement:
        return self.dispatcher.place(shape("code"), "r", 0.0)


@asynccontextmanager
async def fleet_that_changes() -> AsyncIterator[Fleet]:
    before = asyncio.all_tasks()
    fleet = Fleet()
    task = asyncio.create_task(fleet.membership.run())
    try:
        yield fleet
    finally:
        await fleet.supervisor.stop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert asyncio.all_tasks() == before


async def test_a_node_that_is_added_is_polled_and_one_that_stays_is_left_alone() -> None:
    async with fleet_that_changes() as fleet:
        fleet.set(node("a"))
        poller = fleet.supervisor.pollers["a"]
        state = fleet.dispatcher.fleet.node("a")
        fleet.set(node("a"), node("b"))
        assert fleet.states() == {"a": "ready", "b": "ready"}
        assert fleet.supervisor.pollers.keys() == {"a", "b"}
        assert fleet.supervisor.pollers["a"] is poller
        assert fleet.dispatcher.fleet.node("a") is state


async def test_an_idle_node_that_is_removed_is_gone_at_once_and_one_with_requests_drains() -> None:
    async with fleet_that_changes() as fleet:
        fleet.set(node("a"), node("idle"))
        running = fleet.place()
        fleet.set(node("b", limit=1))
        left = running.node.name
        assert fleet.states() == {left: "draining", "b": "ready"}
        assert fleet.membership.leaving == {left}
        assert fleet.forgotten == [one for one in ("a", "idle") if one != left]
        assert fleet.place().node.name == "b"
        assert fleet.supervisor.pollers.keys() == {left, "b"}
        fleet.dispatcher.settle(running, DONE, 0.0)
        await eventually(lambda: left in fleet.forgotten)
        assert fleet.states() == {"b": "full"}
        assert fleet.supervisor.pollers.keys() == {"b"}


async def test_nodes_that_are_all_replaced_serve_until_those_that_come_have_reported() -> None:
    async with fleet_that_changes() as fleet:
        fleet.set(node("a"), node("b"))
        fleet.membership.set([node("c")])
        assert fleet.membership.leaving == {"a", "b"}
        running = fleet.place()
        assert running.node.name in {"a", "b"}
        fleet.report("c")
        await eventually(lambda: fleet.states() == {running.node.name: "draining", "c": "ready"})
        fleet.dispatcher.settle(running, DONE, 0.0)
        await eventually(lambda: fleet.states() == {"c": "ready"})


async def test_nodes_that_leave_wait_for_newcomers_of_an_earlier_change_too() -> None:
    async with fleet_that_changes() as fleet:
        fleet.set(node("a"))
        fleet.membership.set([node("b")])
        fleet.membership.set([node("b", limit=1)])
        assert fleet.place().node.name == "a"
        fleet.report("b")
        await eventually(lambda: fleet.states() == {"a": "draining", "b": "ready"})


async def test_nodes_that_leave_wait_for_those_that_are_not_known_yet() -> None:
    async with fleet_that_changes() as fleet:
        fleet.set(node("a"))
        fleet.membership.set([], more_to_come=True)
        assert fleet.place().node.name == "a"
        fleet.membership.set([node("b")])
        assert fleet.place().node.name == "a"
        fleet.report("b")
        await eventually(lambda: fleet.states() == {"a": "draining", "b": "ready"})


async def test_nodes_that_come_and_never_report_are_waited_for_no_longer_than_said() -> None:
    async with fleet_that_changes() as fleet:
        fleet.set(node("a"))
        fleet.membership.set([node("b")])
        assert fleet.place().node.name == "a"
        fleet.now = HAND_OVER_S
        await eventually(lambda: fleet.states()["a"] == "draining")


async def test_a_node_that_leaves_drains_at_once_where_another_that_stays_serves_its_models() -> None:
    async with fleet_that_changes() as fleet:
        fleet.set(node("a"), node("b"))
        running = [fleet.place(), fleet.place()]
        assert {placed.node.name for placed in running} == {"a", "b"}
        fleet.membership.set([node("b"), node("c")])
        assert fleet.states()["a"] == "draining"


async def test_a_node_that_returns_before_it_drains_has_never_drained() -> None:
    async with fleet_that_changes() as fleet:
        fleet.set(node("a"))
        fleet.membership.set([node("b")])
        fleet.membership.set([node("a")])
        assert fleet.states() == {"a": "ready"}
        assert (fleet.forgotten, fleet.membership.leaving) == (["b"], frozenset())


async def test_a_node_that_returns_while_it_drains_goes_on() -> None:
    async with fleet_that_changes() as fleet:
        fleet.set(node("a"))
        running = fleet.place()
        fleet.set()
        fleet.set()
        assert fleet.states() == {"a": "draining"}
        fleet.set(node("a"))
        assert fleet.states() == {"a": "ready"}
        assert fleet.place().node.name == "a"
        fleet.dispatcher.settle(running, DONE, 0.0)
        assert (fleet.forgotten, fleet.membership.leaving) == ([], frozenset())


async def test_another_engine_under_the_same_name_replaces_the_first_whose_requests_end_there() -> None:
    async with fleet_that_changes() as fleet:
        fleet.set(node("a"))
        running = fleet.place()
        fleet.set(node("a", host="elsewhere"))
        replaced = fleet.place()
        assert (running.node.url, replaced.node.url) == ("http://a:1", "http://elsewhere:1")
        assert fleet.dispatcher.fleet.node("a") is replaced.state
        assert (running.state.own, replaced.state.own) == (1, 1)
        assert (running.state.leaving_since is None, replaced.state.leaving_since) == (False, None)  # it has a deadline
        fleet.dispatcher.settle(running, DONE, 0.0)
        assert (running.state.own, replaced.state.own) == (0, 1)


async def test_a_node_that_drains_and_returns_as_another_engine_is_open() -> None:
    async with fleet_that_changes() as fleet:
        fleet.set(node("a"))
        fleet.place()
        fleet.set()
        fleet.set(node("a", host="elsewhere"))
        assert fleet.states() == {"a": "ready"}
        assert fleet.membership.leaving == frozenset()


async def test_a_node_configured_otherwise_keeps_its_requests_and_is_polled_with_its_new_key() -> None:
    async with fleet_that_changes() as fleet:
        fleet.set(node("a"))
        poller = fleet.supervisor.pollers["a"]
        running = fleet.place()
        fleet.set(replace(node("a"), max_in_flight=1))
        assert fleet.supervisor.pollers["a"] is poller
        fleet.set(replace(node("a"), api_key="another", max_in_flight=1))
        assert running.state is fleet.dispatcher.fleet.node("a")
        assert (running.state.own, running.state.limit, fleet.states()) == (1, 1, {"a": "full"})
        assert fleet.supervisor.pollers["a"] is not poller


SPECS = st.builds(
    node,
    st.sampled_from("abc"),
    st.sampled_from(["", "elsewhere"]),
    st.sampled_from(Pool),
    st.sampled_from([None, 1, 2]),
)
STEPS = st.lists(
    st.one_of(
        st.lists(SPECS, max_size=3, unique_by=lambda spec: spec.name),
        st.just("place"),
        st.just("settle"),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_whatever_comes_and_goes_books_are_right_and_nothing_is_left_behind(steps: list[object]) -> None:
    async def run() -> None:
        fleet, running = Fleet(), []
        wanted: set[str] = set()
        for step in steps:
            if step == "place":
                try:
                    running.append(fleet.place())
                except (PlacementError, UnknownModel):
                    continue
                assert running[-1].node.name in wanted
            elif step == "settle" and running:
                fleet.dispatcher.settle(running.pop(0), DONE, 0.0)
            elif isinstance(step, list):
                fleet.set(*step)
                wanted = {spec.name for spec in step}
                names = fleet.states().keys()
                assert names == wanted | fleet.membership.leaving
                assert names == fleet.supervisor.pollers.keys()
            by_state = {id(placed.state): placed.state for placed in running}.values()
            for state in by_state:
                assert state.own == sum(placed.state is state for placed in running)
        for placed in running:
            fleet.dispatcher.settle(placed, DONE, 0.0)
        fleet.set()
        assert (fleet.states(), fleet.membership.leaving) == ({}, frozenset())
        await fleet.supervisor.stop()

    asyncio.run(run())
