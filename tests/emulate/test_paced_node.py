"""A node that the engine model paces, over sockets: answers, pages and faults are those of any emulated node."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from emulated_client import ask, clear_faults, draft, fault, fetch, payloads, state, text_in
from gateway_rig import eventually
from slipstream.costmodel.profiles import LinearCosts, Provenance
from slipstream.costmodel.steps import step_rows
from slipstream.emulate import NodeSettings, Pace, emulated
from slipstream.emulate.alphas import Alphas
from slipstream.emulate.words import text_of
from slipstream.engines.vllm import VLLM

MADE = Provenance("made", "1", "none", "m", "2026")
PACE = Pace(step_rows(LinearCosts(MADE, step_s=0.002, token_s=1e-5)), kv_tokens=4096)
SLOW = Pace(step_rows(LinearCosts(MADE, step_s=3600.0, token_s=0.0)))
DIALECTS = ["vllm", "llamacpp", "sglang"]


def paced(**settings: Any) -> NodeSettings:
    return draft(**{"pace": PACE} | settings)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_answers_and_counters_are_whole(dialect: str) -> None:
    async with emulated(dialect, paced()) as node:
        streamed, whole, several = await asyncio.gather(ask(node, stream=True), ask(node), ask(node, n=3))
        told = await state(node)
    assert text_in(payloads(streamed.body)) == text_of(0, 30)
    assert whole.json["usage"]["completion_tokens"] == 30
    assert [choice["message"]["content"] for choice in several.json["choices"]] == [text_of(0, 30)] * 3
    counters = node.engine.counters
    assert (told["completed"], told["running"], counters.generated_tokens) == (3, 0, 150)
    assert sum(one["drafted"] for one in told["requests"]) == counters.drafted
    assert told["lateness"]["steps"] > 0


async def test_pages_tell_the_load_of_the_engine() -> None:
    async with emulated("vllm", paced(pace=SLOW, slots=2)) as node:
        asking = [asyncio.create_task(ask(node)) for _ in range(3)]
        await eventually(lambda: node.record.in_flight == 3)
        (page,) = VLLM.load
        report = page.read(await fetch(node, "/metrics"))
        assert (report.running, report.waiting) == (1, 2)  # those that came within the first step wait for its end
        for task in asking:
            task.cancel()
        await eventually(lambda: node.record.outcomes["aborted"] == 3)
        assert node.engine.waiting == 0


async def test_the_cache_of_a_profile_is_what_sglang_tells() -> None:
    async with emulated("sglang", paced()) as node:
        (rank,) = json.loads(await fetch(node, "/v1/loads"))["loads"]
        assert rank["max_total_num_tokens"] == 4096
        assert b"max_total_num_tokens" in await fetch(node, "/metrics")
        answer = await ask(node, max_tokens=5000, ignore_eos=True)
    assert answer.status == 400


@pytest.mark.parametrize("stream", [True, False])
async def test_a_stall_keeps_the_slot_until_it_ends(stream: bool) -> None:
    async with emulated("vllm", paced(slots=1)) as node:
        await fault(node, "stall", after_events=0)
        stalled = asyncio.create_task(ask(node, stream=stream))
        await eventually(lambda: any(one.emitted for one in node.engine.generations()))
        other = asyncio.create_task(ask(node))
        await eventually(lambda: node.engine.waiting == 1)
        assert (node.engine.running, stalled.done()) == (1, False)
        await clear_faults(node)
        assert {(await stalled).status, (await other).status} == {200}
        assert node.record.outcomes == {"completed": 2}


async def test_it_dies_and_answers_the_next() -> None:
    async with emulated("vllm", paced(slots=1)) as node:
        await fault(node, "die", after_events=3)
        with pytest.raises(aiohttp.ClientPayloadError):
            await ask(node, stream=True)
        assert (await ask(node)).status == 200
        assert node.record.outcomes == {"died": 1, "completed": 1}


async def test_slots_of_those_who_left_drain_slowly() -> None:
    async with emulated("vllm", paced(slots=1, output_tokens=10_000, alphas=Alphas(0.1), pace=Pace(PACE.rows))) as node:
        await fault(node, "slow_drain", seconds=3600)
        asking = asyncio.create_task(ask(node))
        await eventually(lambda: node.engine.running == 1)
        asking.cancel()
        await eventually(lambda: node.record.outcomes["aborted"] == 1)
        waiting = asyncio.create_task(ask(node))
        await eventually(lambda: node.engine.waiting == 1)
        assert node.engine.running == 1
        waiting.cancel()


async def test_500_streams_run_at_once() -> None:
    settings = NodeSettings(slots=500, pace=Pace(step_rows(LinearCosts(MADE, step_s=0.1, token_s=0.0))))
    async with emulated("vllm", settings) as node:
        host, _, port = node.url.removeprefix("http://").partition(":")
        connections = [await asyncio.open_connection(host, int(port)) for _ in range(500)]  # so that all ask at once
        answers = await asyncio.gather(*(stream(*connection, 40) for connection in connections))
        assert node.engine.peak_running == 500
    assert {answer.count(b"data: ") for answer in answers} == {42}  # the role, the tokens and the end


async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tokens: int) -> bytes:
    body = json.dumps(
        {"messages": [{"role": "user", "content": "x"}], "stream": True, "max_tokens": tokens, "ignore_eos": True}
    ).encode()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    )
    answer = await reader.read()
    writer.close()
    return answer
