"""Many nodes, polled: none stops another, none stops unseen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
from structlog.testing import capture_logs

from recorded_engine import RecordedEngine, llamacpp_pages, recorded_engine, vllm_pages
from slipstream.control.poller import FleetReports, Timing
from slipstream.control.supervisor import Supervisor
from slipstream.core.errors import EngineError
from slipstream.core.fleet import Fleet
from slipstream.core.node import NodeReport, NodeSpec
from slipstream.core.request import Pool
from slipstream.engines.reader import Source
from slipstream.engines.scrape import Scraper

TIMING = Timing(interval_s=0.02, timeout_s=0.2)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for an outcome, whenever it comes; the test fails when it does not come at all."""
    async with asyncio.timeout(20.0):
        while not condition():
            await asyncio.sleep(0.005)


def spec(name: str, engine: RecordedEngine) -> NodeSpec:
    return NodeSpec(name, engine.url, Pool.STANDARD)


def loop_time() -> float:
    return asyncio.get_running_loop().time()


class Pages:
    """Pages from a table, for tests that need no socket. The first ``bugs`` fetches raise what no engine causes."""

    def __init__(self, pages: Mapping[str, bytes], bugs: int = 0) -> None:
        self.pages = pages
        self.bugs = bugs
        self.closed = 0

    def close(self) -> None:
        self.closed += 1

    async def fetch(self, path: str, timeout_s: float) -> bytes:
        if self.bugs:
            self.bugs -= 1
            raise RuntimeError("a bug of ours")
        return self.pages[path]


class Silent:
    """A fleet that counts its reports."""

    def __init__(self) -> None:
        self.reports = 0

    def report(self, name: str, asked_at: float, received_at: float, report: NodeReport) -> None:
        self.reports += 1

    def report_failed(self, name: str, now: float, error: EngineError) -> None: ...


def supervisor_of(fleet: FleetReports, source: Source) -> Supervisor:
    async def soon(seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.01))

    return Supervisor(fleet, lambda _node: source, TIMING, clock=loop_time, sleep=soon)


async def test_dead_hung_late_and_garbage_nodes_do_not_stop_the_others() -> None:
    async with (
        recorded_engine(llamacpp_pages()) as good,
        recorded_engine(vllm_pages() | {"/metrics": b"<html></html>\n"}) as garbled,
        recorded_engine({"/v1/models": None}) as hung,
    ):
        late = RecordedEngine(vllm_pages())
        await late.start()
        await late.stop()
        nodes = [spec("good", good), spec("garbled", garbled), spec("hung", hung), spec("late", late)]
        fleet = Fleet(nodes, loop_time())
        supervisor = Supervisor(fleet, lambda node: Scraper(node.url, node.api_key), TIMING, clock=loop_time)
        supervisor.start(nodes)
        states = {node.name: node for node in fleet.nodes()}
        await until(lambda: states["hung"].failed_polls >= 2 and states["late"].failed_polls >= 2)
        await until(lambda: states["good"].fresh and states["garbled"].error is not None)
        assert states["good"].report is not None
        assert states["good"].report.running == 3
        assert "begins with" in (states["garbled"].error or "")
        assert "did not answer" in (states["hung"].error or "")
        assert [states[name].healthy for name in ("good", "garbled", "hung", "late")] == [True, True, False, False]
        polls = good.paths().count("/metrics")
        await until(lambda: good.paths().count("/metrics") > polls + 5)

        await late.start()
        garbled.pages["/metrics"] = vllm_pages()["/metrics"]
        hung.pages = dict(llamacpp_pages())
        await until(lambda: all(node.healthy and node.fresh for node in states.values()))
        assert fleet.models() == ("smollm2", "smollm2-135m-instruct-q4_1.gguf")
        await supervisor.stop()
        await late.stop()


async def test_a_poller_that_breaks_is_said_and_started_again() -> None:
    fleet = Silent()
    supervisor = supervisor_of(fleet, Pages(llamacpp_pages(), bugs=2))
    with capture_logs() as logs:
        supervisor.add(NodeSpec("node", "http://node", Pool.STANDARD))
        await until(lambda: fleet.reports > 2)
    assert [(entry["event"], entry["task"]) for entry in logs] == [("task.crashed", "poll node")] * 2
    await supervisor.stop()


async def test_a_node_is_polled_from_add_to_remove() -> None:
    fleet, pages = Silent(), Pages(llamacpp_pages())
    supervisor = supervisor_of(fleet, pages)
    supervisor.start([NodeSpec("a", "http://a", Pool.STANDARD), NodeSpec("b", "http://b", Pool.STANDARD)])
    assert set(supervisor.pollers) == {"a", "b"}
    with pytest.raises(ValueError, match="node a is polled already"):
        supervisor.add(NodeSpec("a", "http://a", Pool.STANDARD))
    await until(lambda: fleet.reports > 2)
    supervisor.remove("a")
    supervisor.remove("b")
    assert supervisor.pollers == {}
    before = fleet.reports
    for _ in range(20):
        await asyncio.sleep(0.005)
    assert fleet.reports == before
    assert pages.closed == 2
    with pytest.raises(KeyError):
        supervisor.remove("a")


async def test_stopping_ends_every_task() -> None:
    before = asyncio.all_tasks()
    supervisor = supervisor_of(Silent(), Pages(llamacpp_pages()))
    supervisor.start([NodeSpec(f"n{i}", "http://n", Pool.STANDARD) for i in range(10)])
    assert len(asyncio.all_tasks() - before) == 10
    await supervisor.stop()
    await supervisor.stop()
    assert asyncio.all_tasks() == before


async def test_a_hundred_nodes_are_never_polled_at_one_instant() -> None:
    supervisor = supervisor_of(Silent(), Pages(llamacpp_pages()))
    supervisor.start([NodeSpec(f"n{i}", "http://n", Pool.STANDARD) for i in range(100)])
    phases = sorted(poller.phase for poller in supervisor.pollers.values())
    gaps = [later - earlier for earlier, later in zip(phases, [*phases[1:], phases[0] + 1.0], strict=True)]
    assert min(gaps) > 0.3 / 100
    assert max(gaps) < 3.0 / 100
    await supervisor.stop()


async def test_a_node_that_is_removed_before_its_first_poll_is_let_go_of() -> None:
    before = asyncio.all_tasks()
    fleet, pages = Silent(), Pages(llamacpp_pages())
    supervisor = supervisor_of(fleet, pages)
    supervisor.add(NodeSpec("a", "http://a", Pool.STANDARD))
    supervisor.remove("a")
    supervisor.add(NodeSpec("a", "http://elsewhere", Pool.STANDARD))
    await supervisor.stop()
    assert (fleet.reports, pages.closed) == (0, 2)
    assert asyncio.all_tasks() == before


async def test_a_new_timing_holds_for_the_nodes_that_are_polled() -> None:
    fleet, pages = Silent(), Pages(llamacpp_pages())
    supervisor = supervisor_of(fleet, pages)
    node = NodeSpec("a", "http://a", Pool.STANDARD)
    supervisor.add(node)
    supervisor.configure(TIMING, [node])
    unchanged = supervisor.pollers["a"]
    supervisor.configure(Timing(interval_s=3.0), [node])
    assert supervisor.pollers["a"] is not unchanged
    assert supervisor.pollers["a"].interval_s == 3.0
    await supervisor.stop()
