"""The bench against servers over real sockets: emulated nodes, a gateway before them, and some that are no use."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest

from emulated_client import draft
from live_service import Live, live
from scripted_node import Behaviour, Call, answer, scripted_node, stream
from slipstream.bench.compare import Arm, alternated, compared, warm_up_of
from slipstream.bench.errors import ServerUnusable
from slipstream.bench.holdback import holdback_of
from slipstream.bench.measurement import Measurement, measured
from slipstream.bench.measures import measures_of
from slipstream.bench.parts import parts_of
from slipstream.bench.running import admin_source, engine_source, watched
from slipstream.bench.samples import samples_of
from slipstream.bench.server import Server, Sight, asked, base_url_of, look_at
from slipstream.config import FleetConfig
from slipstream.core.goodput import Target
from slipstream.emulate import EmulatedNode, NodeSettings, emulated
from slipstream.load import PlannedRequest
from slipstream.workload.arrivals import ConstantArrivals
from slipstream.workload.lengths import FixedLengths
from slipstream.workload.mix import CategoryTraffic, Mix, make_plan
from slipstream.workload.plan import Plan

FAST = NodeSettings(ttft_s=0.004, step_s=0.001, output_tokens=1000, slots=32)
IGNORE_EOS = {"ignore_eos": True}


def plan(requests: int, rate: float = 400.0, *, prompt: int = 100, output: int = 6, category: str = "chat") -> Plan:
    traffic = CategoryTraffic(category, 1.0, FixedLengths(prompt), FixedLengths(output))
    return make_plan(Mix(ConstantArrivals(rate), (traffic,), (("", 1.0),), requests=requests), 1)


def server(node: EmulatedNode) -> Server:
    return Server(base_url_of(node.url), "emulated", fields=IGNORE_EOS)


async def looked_at(url: str, model: str | None = None) -> Sight:
    return await look_at(url, model, plan(4), seed=1, headers={}, fields=IGNORE_EOS, timeout_s=30.0)


async def loaded(node: EmulatedNode, plan: Plan, concurrency: int | None = None, warm_up: int = 2) -> Measurement:
    return await measured(server(node), plan, warm_up=warm_up, seed=1, stop=asyncio.Event(), concurrency=concurrency)


async def test_a_plan_is_sent_as_it_stands() -> None:
    async with emulated("vllm", FAST) as node:
        sight = await looked_at(node.url)
        assert sight.server.model == "emulated"
        assert sight.counts_tokens
        measurement = await measured(sight.server, plan(30), warm_up=3, seed=1, stop=asyncio.Event())
    assert [result.error for result in measurement.results] == [None] * 30
    assert [result.position for result in measurement.results] == list(range(30))
    assert {result.output_tokens for result in measurement.results} == {6}
    prompt_tokens = {result.prompt_tokens for result in measurement.results}
    assert prompt_tokens <= {99, 100, 101}  # the made text was fitted to how this server counts
    begun = [result.intended_at - measurement.start_at for result in measurement.results]
    assert begun == pytest.approx(measurement.plan.arrival_s.tolist())
    assert (measurement.begin_s, measurement.end_s) == pytest.approx((3 / 400, 30 / 400))
    samples = samples_of(measurement, Target(e2e_s=60.0))
    assert samples.counted.sum() == 27
    found = measures_of(samples)
    assert found.requests.goodput.value == pytest.approx(400.0)
    assert found.requests.itl.p50.value is not None


async def test_at_fixed_concurrency_the_window_ends_with_the_last_answer() -> None:
    async with emulated("vllm", FAST) as node:
        measurement = await loaded(node, plan(24), concurrency=4)
        assert node.engine.peak_running == 4
    own = [result for result in measurement.results if result.position >= 2]
    assert measurement.end_s == max(result.ended_at for result in own) - measurement.start_at
    assert measurement.begin_s == min(result.sent_at for result in own) - measurement.start_at
    assert len(samples_of(measurement, Target())) == 24


@pytest.mark.parametrize("concurrency", [None, 3])
async def test_who_is_told_to_stop_hangs_up_and_counts_what_had_ended(concurrency: int | None) -> None:
    stop = asyncio.Event()
    ended = 0

    def stop_after_five(_result: object) -> None:
        nonlocal ended
        ended += 1
        if ended == 5:
            stop.set()

    async with emulated("vllm", replace(FAST, ttft_s=0.02)) as node:
        measurement = await measured(
            server(node),
            plan(3000, rate=100.0),
            warm_up=0,
            seed=1,
            stop=stop,
            concurrency=concurrency,
            on_result=stop_after_five,
        )
    assert measurement.interrupted
    assert 5 <= len(measurement.results) < 100
    assert measurement.in_flight > 0
    assert measurement.end_s <= measurement.wall_s


async def test_a_stop_before_the_first_answer_leaves_nothing() -> None:
    stop = asyncio.Event()
    stop.set()
    async with emulated("vllm", FAST) as node:
        measurement = await measured(server(node), plan(3000), warm_up=0, seed=1, stop=stop)
    assert (len(measurement.results), measurement.begin_s, measurement.end_s) == (0, 0.0, 0.0)
    assert measurement.interrupted


async def test_what_goes_wrong_in_the_driver_itself_is_raised() -> None:
    with pytest.raises(ExceptionGroup, match="unhandled errors"):
        await measured(
            Server("http://127.0.0.1:1/v1", "m", fields={"not": object()}),
            plan(3),
            warm_up=0,
            seed=1,
            stop=asyncio.Event(),
        )


def test_a_plan_is_cut_into_parts_that_begin_at_once() -> None:
    whole = plan(23)
    parts = parts_of(whole, 4)
    assert [len(part) for part in parts] == [5, 6, 6, 6]
    assert all(part.arrival_s[0] == 0.0 for part in parts)
    assert np.concatenate([part.quantile for part in parts]).tolist() == whole.quantile.tolist()
    with pytest.raises(ValueError, match="23 requests can not be cut into 24 parts"):
        parts_of(whole, 24)


async def test_two_servers_are_asked_in_turn_and_their_difference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.bench.running.EVERY_S", 0.01)
    order: list[str] = []
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(emulated("vllm", settings))
            for settings in (replace(FAST, step_s=0.004), replace(FAST, step_s=0.012))
        ]
        running = await stack.enter_async_context(engine_source(nodes[1].url, None))
        arms = (Arm("fast", server(nodes[0])), Arm("slow", server(nodes[1]), running))
        pairs = await alternated(
            arms,
            plan(40, rate=200.0),
            parts=4,
            warm_up=1,
            seed=1,
            stop=asyncio.Event(),
            on_result=lambda result: order.append(result.request.messages[0]["content"]),
        )
    assert len(pairs) == 4
    assert len(set(order)) == 80  # no prompt twice, whichever server had it
    began = [(first.start_at, second.start_at) for first, second in pairs]
    assert [first < second for first, second in began] == [True, False, True, False]
    fast, slow = (one.requests.tpot.mean.value for one in compared(pairs, Target(), interrupted=False).measures)
    assert fast is not None
    assert slow is not None
    found = compared(pairs, Target(tpot_s=(fast + slow) / 2), interrupted=False)
    assert found.parts == 4
    assert [one.requests.offered for one in found.measures] == [36, 36]
    assert found.differences.tpot.mean.value is not None
    assert found.differences.tpot.mean.value > 0.004
    assert found.differences.tpot.mean.interval is not None
    assert found.differences.tpot.mean.interval[0] > 0.0
    assert found.differences.attainment.value is not None
    assert found.differences.attainment.value < 0.0
    assert found.differences.goodput.value is not None
    assert found.differences.tokens_per_s.value is None
    assert found.differences.itl.p50.value is not None
    assert list(found.running[0]) == []
    assert max(found.running[1]) > 0


async def test_at_fixed_concurrency_throughput_is_compared_too() -> None:
    async with emulated("vllm", FAST) as node:
        arms = (Arm("a", server(node)), Arm("b", server(node)))
        pairs = await alternated(arms, plan(24), parts=2, warm_up=1, seed=1, stop=asyncio.Event(), concurrency=4)
    assert compared(pairs, Target(), interrupted=False).differences.tokens_per_s.value is not None


async def test_a_comparison_that_is_stopped_leaves_the_part_under_way_out() -> None:
    stop = asyncio.Event()
    stop.set()
    arm = Arm("a", Server("http://127.0.0.1:1/v1", "m"))
    assert await alternated((arm, arm), plan(8), parts=2, warm_up=0, seed=1, stop=stop) == []
    with pytest.raises(ValueError, match="nothing to compare"):
        compared([], Target(), interrupted=True)


def test_a_warm_up_never_takes_a_whole_part() -> None:
    assert (warm_up_of(20, 0.1), warm_up_of(1, 0.9), warm_up_of(4, 0.0)) == (2, 0, 0)


@asynccontextmanager
async def fleet(holdback: float) -> AsyncIterator[Live]:
    async with AsyncExitStack() as stack:
        spec = await stack.enter_async_context(emulated("vllm", draft(output_tokens=1000, ttft_s=0.004, step_s=0.004)))
        std = await stack.enter_async_context(emulated("vllm", replace(FAST, step_s=0.004)))
        config = FleetConfig.model_validate(
            {
                "gateway": {"listen": "127.0.0.1:0"},
                "admin": {"listen": "127.0.0.1:0"},
                "pools": {"speculative": {"ceiling": 64, "short_output_tokens": 2}},
                "routing": {"holdback": holdback},
                "nodes": [
                    {"name": "spec-0", "url": spec.url, "pool": "speculative"},
                    {"name": "std-0", "url": std.url, "pool": "standard"},
                ],
            }
        )
        yield await stack.enter_async_context(live(config))


async def test_behind_a_gateway_those_held_back_are_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.bench.running.EVERY_S", 0.01)
    async with fleet(0.5) as service, admin_source(service.service.admin_url, None) as source:
        assert source is not None
        measurement = await measured(
            Server(service.base_url, "emulated", fields=IGNORE_EOS),
            plan(80, rate=160.0, prompt=120, output=12, category="code"),
            warm_up=4,
            seed=1,
            stop=asyncio.Event(),
            running=source,
        )
    assert max(measurement.running) > 0
    held = holdback_of(samples_of(measurement, Target()))
    assert held is not None
    assert held.speculative_requests + held.held_back_requests == 76
    assert min(held.speculative_requests, held.held_back_requests) > 10
    tpot = held.difference.tpot.mean
    assert tpot.value is not None
    assert tpot.value < 0.0
    assert tpot.interval is not None
    assert tpot.interval[1] < 0.0
    assert held.speculative.tpot.mean.value == pytest.approx(held.held_back.tpot.mean.value + tpot.value)  # type: ignore[operator]  # not None, or the approximation fails


async def test_without_a_gateway_nothing_was_held_back() -> None:
    async with emulated("vllm", FAST) as node:
        assert holdback_of(samples_of(await loaded(node, plan(12)), Target())) is None


@pytest.mark.parametrize("dialect", ["vllm", "sglang", "llamacpp"])
async def test_engines_say_how_many_requests_run(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.bench.running.EVERY_S", 0.01)
    async with AsyncExitStack() as stack:
        async with emulated(dialect, replace(FAST, ttft_s=3600.0)) as node:
            source = await stack.enter_async_context(engine_source(node.url, None))
            assert source is not None
            assert await source() == 0
            stop = asyncio.Event()
            async with watched(source) as seen, asyncio.TaskGroup() as tasks, asyncio.timeout(30):
                tasks.create_task(measured(server(node), plan(3), warm_up=0, seed=1, stop=stop))
                while 3 not in seen:
                    await asyncio.sleep(0.01)
                stop.set()
            assert max(seen) == 3
        assert await source() is None  # nobody is there any more


async def test_who_does_not_say_what_runs_is_not_asked() -> None:
    async with scripted_node(answer(200, b"{}")) as node:
        async with engine_source(node.url, None) as source:
            assert source is None
        async with admin_source(node.url, None) as source:
            assert source is None
    async with watched(None) as seen:
        pass
    assert seen == []


async def test_what_is_not_known_for_a_while_is_left_out() -> None:
    told = iter([3, None, 5])
    over = asyncio.Event()

    async def source() -> int | None:
        running = next(told)
        if running == 5:
            over.set()
        return running

    async with watched(source) as seen, asyncio.timeout(20):
        await over.wait()
    assert seen in ([3], [3, 5])


async def test_an_engine_whose_load_is_not_told_is_not_asked() -> None:
    """Its page of models is vLLM's, and the one of metrics is no such page."""
    models = answer(200, b'{"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 10}]}')
    async with scripted_node(paths(answer(200, b"<html>"), models)) as node, engine_source(node.url, None) as source:
        assert source is None


MODELS = answer(200, b'{"data": [{"id": "m"}]}')
CONTENT = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
DONE = b"data: [DONE]\n\n"


def paths(completion: Behaviour, models: Behaviour = MODELS) -> Behaviour:
    async def behave(call: Call) -> None:
        await (models if call.target == "/v1/models" else completion)(call)

    return behave


@pytest.mark.parametrize(
    ("behaviour", "sentence"),
    [
        (paths(answer(200, b"{}")), "does not answer a request as needed: the answer is not a stream"),
        (paths(stream([DONE])), "ends its streams without any content"),
        (paths(stream([CONTENT])), "the stream ended before the answer was complete"),
        (paths(answer(401, b'{"error": {"message": "no key"}}')), "status 401: no key"),
        (paths(answer(400, b'{"error": {"message": "unknown field"}}')), "needs --no-ignore-eos"),
        (paths(stream([CONTENT]), answer(404, b"{}")), "names no model (status 404): say which with --model"),
        (paths(stream([CONTENT]), answer(200, b"<html>")), "names no model (status 200)"),
        (paths(stream([CONTENT]), answer(200, b'{"data": []}')), "names no model (status 200)"),
    ],
    ids=["not streamed", "no content", "cut short", "refused", "ignore_eos", "no models", "no JSON", "empty"],
)
async def test_a_server_that_can_not_be_measured_is_told(behaviour: Behaviour, sentence: str) -> None:
    async with scripted_node(behaviour) as node:
        with pytest.raises(ServerUnusable) as told:
            await looked_at(node.url)
    assert sentence in str(told.value)


async def test_a_server_without_usage_can_be_looked_at_all_the_same() -> None:
    async with scripted_node(paths(stream([CONTENT, DONE]), answer(404, b"{}"))) as node:
        sight = await looked_at(f"{node.url}/v1/", model="mine")
        assert sight.server.model == "mine"
        assert not sight.counts_tokens
        sent = json.loads(node.calls[-1].body)
    assert sent["ignore_eos"] is True


async def test_nobody_there_is_told(unused_tcp_port: int) -> None:
    with pytest.raises(ServerUnusable, match=r"nothing answers at http://127\.0\.0\.1:\d+/v1: Connection refused$"):
        await looked_at(f"http://127.0.0.1:{unused_tcp_port}")


async def test_a_server_that_never_answers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.bench.server.MODELS_TIMEOUT_S", 0.05)

    async def silent(call: Call) -> None:
        await call.gone.wait()

    async with scripted_node(silent) as node:
        with pytest.raises(ServerUnusable, match=r"did not answer within 0\.05 s"):
            await looked_at(node.url)


def test_prompts_are_asked_for_as_the_plan_says() -> None:
    request_at = asked(
        Server("http://x/v1", "m", fields=IGNORE_EOS, characters_per_token=4.0), plan(3, category="code"), 1
    )
    request = request_at(2)
    assert isinstance(request, PlannedRequest)
    assert (request.label, request.max_tokens, request.fields) == ("code", 6, IGNORE_EOS)
    assert len(request.messages[0]["content"]) == 400
