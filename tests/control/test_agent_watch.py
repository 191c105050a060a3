"""A node that is heard from its agent: at once, in place of polls, and polled while the agent is silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from agent_rig import Rig, rig
from gateway_rig import eventually
from node_pages import serving
from recorded_engine import llamacpp_pages, recorded_engine
from slipstream.control.agent_watch import ASK_AGAIN_S, BREATH_S, AgentClient, AgentWatch, holder_name
from slipstream.control.poller import Poller, Timing
from slipstream.control.supervisor import Supervisor
from slipstream.core.errors import EngineDown, EngineError, EngineGarbage, EngineUnreachable
from slipstream.core.fleet import Fleet
from slipstream.core.node import NodeReport, NodeSpec
from slipstream.core.request import Pool
from slipstream.engines.agent import AgentRefused, AgentState, read_state
from slipstream.engines.scrape import Scraper

TIMING = Timing(interval_s=0.02, timeout_s=0.5)


class Told:
    """A fleet that remembers what it was told, in order."""

    def __init__(self) -> None:
        self.said: list[NodeReport | EngineError] = []
        self.times: list[tuple[float, float]] = []

    def report(self, name: str, asked_at: float, received_at: float, report: NodeReport) -> None:
        self.said.append(report)
        self.times.append((asked_at, received_at))

    def report_failed(self, name: str, now: float, error: EngineError) -> None:
        self.said.append(error)


@asynccontextmanager
async def client_of(url: str, token: str | None = None, holder: str | None = None) -> AsyncIterator[AgentClient]:
    client = AgentClient(url, token, holder=holder)
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def watching(
    agent: str, engine: str, fleet: Told | Fleet, timing: Timing = TIMING, slept: list[float] | None = None
) -> AsyncIterator[AgentWatch]:
    loop = asyncio.get_running_loop()
    slept = [] if slept is None else slept

    async def at_once(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(min(seconds, 0.02))

    node = NodeSpec("n", engine, Pool.SPECULATIVE, agent=agent)
    poller = Poller(node, fleet, Scraper(engine), timing, clock=loop.time)
    watch = AgentWatch(node, fleet, AgentClient(agent), poller, timing, clock=loop.time, sleep=at_once)
    running = asyncio.create_task(watch.run())
    try:
        yield watch
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        poller.close()


async def test_an_agent_can_be_asked_watched_and_told() -> None:
    async with rig(serve=True, token="secret") as one, client_of(one.url, "secret", "gateway-a") as client:
        assert (await anext(client.watch())).role is Pool.SPECULATIVE
        assert (await client.speculation(active=True)).transition is None
        seen: list[AgentState] = []
        assert (await client.speculation(active=False)).transition == "draining"
        async for state in client.watch(0.05):
            seen.append(state)
            if state.role is Pool.STANDARD and state.transition is None:
                break
        assert seen[-1].switches[0].ok
        async with client_of(one.url, "secret", "gateway-b") as other:
            with pytest.raises(AgentRefused, match=r"answers: gateway-a commands this node") as refused:
                await other.speculation(active=True)
            assert (refused.value.status, refused.value.code) == (409, "held")


def test_a_gateway_is_known_by_its_address_also_after_a_restart_and_is_no_other() -> None:
    assert (
        holder_name("box", "0.0.0.0", 8080, 1) == holder_name("box", "0.0.0.0", 8080, 2) == "gateway box 0.0.0.0:8080"
    )
    assert holder_name("box", "0.0.0.0", 8081, 1) != holder_name("box", "0.0.0.0", 8080, 1)
    assert holder_name("box", "127.0.0.1", 0, 1) != holder_name("box", "127.0.0.1", 0, 2)


async def test_what_is_not_an_agent_or_does_not_answer_is_an_error() -> None:
    async def garbage(_request: web.Request) -> web.Response:
        return web.Response(text="<html>It works</html>")

    async def gone(_request: web.Request) -> web.Response:
        return web.Response(status=404, text="not here")

    async def endless(_request: web.Request) -> web.Response:
        return web.Response(body=b"x" * 3_000_000)

    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"{")
        assert request.transport is not None
        request.transport.abort()
        return response

    async with serving({"/watch": cut}) as url, client_of(url) as client:
        with pytest.raises(EngineUnreachable, match="ended in the middle of a word"):
            await anext(client.watch())
    async with serving({"/speculation": garbage, "/watch": garbage}) as url, client_of(url) as client:
        with pytest.raises(EngineGarbage, match="not the state of an agent"):
            await client.speculation(active=True)
        with pytest.raises(EngineGarbage, match="not the state of an agent"):
            await anext(client.watch())
    async with serving({"/speculation": gone, "/watch": endless}) as url, client_of(url) as client:
        with pytest.raises(EngineGarbage, match="answered with status 404, and not as an agent does"):
            await client.speculation(active=True)
        with pytest.raises(EngineGarbage):
            await anext(client.watch())
    async with serving({"/speculation": endless}) as url, client_of(url) as client:
        with pytest.raises(EngineGarbage, match="gave no state: more than 1048576 bytes"):
            await client.speculation(active=True)
    async with client_of(url) as client:
        with pytest.raises(EngineUnreachable, match="can not be reached"):
            await client.speculation(active=True)
        with pytest.raises(EngineUnreachable, match="can not be reached"):
            await anext(client.watch())
    async with rig(serve=True, wait=False, token="secret") as one, client_of(one.url, "wrong") as client:
        with pytest.raises(AgentRefused, match="needs its token"):
            await anext(client.watch())


async def test_an_answer_that_comes_in_pieces_is_one_answer() -> None:
    """As over any network, once it is longer than a packet."""
    async with rig() as one:
        body = msgspec.json.encode(one.state)
    refusal = b'{"error": {"message": "somebody else commands it", "code": "held"}}'

    def in_pieces(whole: bytes, status: int) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(status=status)
            await response.prepare(request)
            for piece in (whole[:9], whole[9:]):
                await response.write(piece)
                await asyncio.sleep(0.01)
            return response

        return answer

    handlers = {"/speculation": in_pieces(body, 202), "/watch": in_pieces(refusal, 409)}
    async with serving(handlers) as url, client_of(url) as client:
        assert (await client.speculation(active=False)).role is Pool.SPECULATIVE
        with pytest.raises(AgentRefused, match="somebody else commands it"):
            await anext(client.watch())


async def test_a_switch_acts_on_the_fleet_step_by_step_and_its_engine_is_not_asked() -> None:
    told = Told()
    async with rig(serve=True) as one, recorded_engine(llamacpp_pages()) as engine:
        async with watching(one.url, engine.url, told):
            await eventually(lambda: len(told.said) >= 3)
            one.agent.speculation(active=False)
            await one.switched()
            await eventually(lambda: isinstance(told.said[-1], NodeReport) and told.said[-1].role is Pool.STANDARD)
        assert engine.paths() == []
    steps = [("down", None) if isinstance(one, EngineError) else (one.role, one.draining) for one in told.said]
    seen = [step for step, before in zip(steps, [None, *steps], strict=False) if step != before]
    assert seen[:3] == [(Pool.SPECULATIVE, False), (Pool.SPECULATIVE, True), ("down", None)]
    assert seen[-1] == (Pool.STANDARD, False)
    down = next(one for one in told.said if isinstance(one, EngineError))
    assert isinstance(down, EngineDown)
    assert str(down).startswith("its agent says, stopping: the agent has stopped the engine")
    assert all(asked_at <= received_at for asked_at, received_at in told.times)


async def test_while_its_agent_is_silent_the_engine_is_polled_and_no_longer_than_that() -> None:
    told, slept = Told(), list[float]()
    states: list[bytes] = []
    served, heard = 0, False

    async def state(_request: web.Request) -> web.Response:
        return web.Response(body=states[0])  # that it can be asked does not make it heard

    async def watch(request: web.Request) -> web.StreamResponse:
        nonlocal served, heard
        if not heard:
            return web.Response(status=503)
        response = web.StreamResponse()
        await response.prepare(request)
        served += 1
        readings = 0
        while served == 1:
            readings += 1
            state = msgspec.structs.replace(read_state(states[0]), readings=readings)
            await response.write(msgspec.json.encode(state) + b"\n")
            await asyncio.sleep(0.01)
        await asyncio.Event().wait()  # the connection stays, and nothing more is said
        return response

    async with rig() as one:
        states.append(msgspec.json.encode(one.state))
    timing = Timing(interval_s=0.02, timeout_s=0.1)
    with capture_logs() as logs:
        async with (
            recorded_engine(llamacpp_pages()) as engine,
            serving({"/state": state, "/watch": watch}) as url,
            watching(url, engine.url, told, timing, slept),
        ):
            await eventually(lambda: any(isinstance(one, NodeReport) for one in told.said))
            assert "/metrics" in engine.paths()  # nothing was there, so the engine was asked
            await eventually(lambda: slept.count(ASK_AGAIN_S) > 2)
            heard = True
            await eventually(lambda: isinstance(told.said[-1], NodeReport) and told.said[-1].role is not None)
            engine.asked.clear()
            count = len(told.said)
            await eventually(lambda: len(told.said) > count + 2)
            assert engine.paths() == []
            served = 2  # it falls silent
            await eventually(lambda: "/metrics" in engine.paths())
    silences = [entry["error"] for entry in logs if entry["event"] == "agent.silent"]
    assert silences[0].endswith("answered with status 503, and not as an agent does")
    assert silences[1:] == ["its agent said nothing for 0.1 s"]  # each silence is told once
    assert sum(entry["event"] == "agent.answers" for entry in logs) == 1


async def test_a_fault_of_its_poller_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def poll(_poller: Poller) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Poller, "poll", poll)
    node, clock = NodeSpec("n", "http://127.0.0.1:1", Pool.SPECULATIVE), asyncio.get_running_loop().time
    poller = Poller(node, Told(), Scraper(node.url), TIMING, clock=clock)

    async def until_polled(_seconds: float) -> None:
        await asyncio.sleep(TIMING.interval_s)

    watch = AgentWatch(node, Told(), AgentClient(node.url), poller, TIMING, clock=clock, sleep=until_polled)
    with pytest.raises(ZeroDivisionError):
        await watch.run()
    poller.close()


async def test_an_agent_that_ends_is_silent_at_once() -> None:
    told = Told()
    async with recorded_engine(llamacpp_pages()) as engine:
        one: Rig
        async with rig(serve=True) as one:
            watch = watching(one.url, engine.url, told)
            heard = await watch.__aenter__()
            await eventually(lambda: heard.heard > 0)
        await eventually(lambda: isinstance(told.said[-1], NodeReport) and told.said[-1].role is None)
        await watch.__aexit__(None, None, None)
    assert "/metrics" in engine.paths()


async def test_the_supervisor_hears_nodes_with_agents_and_polls_the_others() -> None:
    loop = asyncio.get_running_loop()
    async with rig(serve=True) as one, recorded_engine(llamacpp_pages()) as engine:
        fleet = Fleet([], loop.time())
        specs = (
            NodeSpec("heard", one.engine.url, Pool.SPECULATIVE, agent=one.url),
            NodeSpec("polled", engine.url, Pool.SPECULATIVE),
        )
        supervisor = Supervisor(fleet, lambda node: Scraper(node.url), TIMING, clock=loop.time)
        for spec in specs:
            fleet.add(spec, loop.time())
            supervisor.add(spec)
        heard, polled = (fleet.node(spec.name) for spec in specs)
        assert heard is not None
        assert polled is not None
        await eventually(lambda: heard.state == polled.state == "ready")
        one.agent.drain()
        await eventually(lambda: heard.state == "draining")
        one.agent.resume()
        one.agent.speculation(active=False)
        await eventually(lambda: heard.pool is Pool.STANDARD and heard.state == "ready")
        assert polled.pool is Pool.SPECULATIVE
        await supervisor.stop()


async def test_an_engine_that_was_not_asked_again_does_not_look_fresh() -> None:
    async with rig() as one:
        body = msgspec.json.encode(one.state)
    newer = msgspec.json.encode(msgspec.structs.replace(read_state(body), readings=10_000))
    drained = msgspec.json.encode(msgspec.structs.replace(read_state(body), readings=10_000, draining=True))

    async def watch(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"\n".join((body, body, newer, newer, drained, drained, b"")))
        await asyncio.Event().wait()
        return response

    told, slept = Told(), list[float]()
    async with serving({"/watch": watch}) as url, watching(url, "http://127.0.0.1:1", told, slept=slept) as heard:
        await eventually(lambda: heard.heard == 6)
        assert slept.count(BREATH_S) >= 2  # and one that never stops talking is not all that is heard
        said = [isinstance(one, NodeReport) and one.draining for one in told.said]
        assert said == [False, False, True]
