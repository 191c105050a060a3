"""Servers that can not be calibrated, each said in a sentence."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from aiohttp import web

from calibrated_nodes import PLAN, calibrated, known, node_settings, two_nodes
from emulated_client import ask, fault
from gateway_rig import eventually
from slipstream.calibrate.errors import NodeBusy, NodeUnusable
from slipstream.calibrate.node import known_node
from slipstream.calibrate.plan import Point
from slipstream.calibrate.waves import Asker, measured_wave
from slipstream.core.node import SpeculatorKind
from slipstream.emulate import emulated

MODELS = {"data": [{"id": "m"}]}
TOKEN = {"choices": [{"index": 0, "delta": {"content": "a"}}]}
ONE = replace(PLAN, batch_sizes=(1,), output_tokens=16)


def stream(*payloads: object) -> web.Response:
    events = "".join(f"data: {json.dumps(payload)}\n\n" for payload in payloads) + "data: [DONE]\n\n"
    return web.Response(text=events, content_type="text/event-stream")


@asynccontextmanager
async def served(answer: web.Response | None = None, models: object = MODELS) -> AsyncIterator[str]:
    """A server that no engine is known by. One answer is enough: nothing more is asked after it."""
    app = web.Application()

    async def name_models(_request: web.Request) -> web.Response:
        return web.json_response(models)

    async def complete(request: web.Request) -> web.Response:
        await request.read()
        assert answer is not None
        return answer

    app.router.add_get("/v1/models", name_models)
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda: web.json_response({"choices": []}), "the answer is not a stream"),
        (lambda: stream({"choices": []}), "without any content"),
        (lambda: stream(TOKEN, TOKEN), "sends no usage"),
        (lambda: web.json_response({"error": {"message": "no such model"}}, status=404), "status 404: no such model"),
    ],
    ids=["no stream", "no content", "no usage", "an error"],
)
async def test_answers_that_can_not_be_timed(answer: object, sentence: str) -> None:
    assert callable(answer)
    async with served(answer()) as url:
        with pytest.raises(NodeUnusable, match=sentence):
            await calibrated([url, url], ONE, shared=True)


async def test_a_server_that_does_not_say_what_it_runs_needs_to_be_shared() -> None:
    async with served() as url:
        with pytest.raises(NodeBusy, match="does not say what it runs"):
            await calibrated([url, url], ONE)


@pytest.mark.parametrize("models", [{"data": []}, {"data": [{}]}, "nothing"])
async def test_a_server_without_a_model(models: object) -> None:
    async with served(models=models) as url:
        with pytest.raises(NodeUnusable, match="names no model"):
            await known_node(url)
        async with known(f"{url}/v1/", model="mine") as (node,):
            assert (node.model, node.base_url, node.engine_name, node.fields) == ("mine", f"{url}/v1", None, {})


@pytest.mark.parametrize(
    ("url", "sentence"), [("http://127.0.0.1:1", "can not be reached"), ("ftp://x", "not the address")]
)
async def test_an_address_where_nothing_answers(url: str, sentence: str) -> None:
    with pytest.raises(NodeUnusable, match=sentence):
        await known_node(url)


@pytest.mark.parametrize(
    ("dialect", "fields"),
    [
        ("llamacpp", {"ignore_eos": True, "cache_prompt": False}),
        ("vllm", {"ignore_eos": True}),
        ("sglang", {"ignore_eos": True, "return_spec_tokens_details": True}),
    ],
)
async def test_what_is_asked_for_and_known_of_each_engine(dialect: str, fields: dict[str, object]) -> None:
    async with emulated(dialect, node_settings(drafts=True)) as node, known(node.url, api_key="secret") as (found,):
        assert found.engine_name == dialect
        assert found.fields.keys() == fields.keys()
        assert found.headers == {"authorization": "Bearer secret"}
        assert found.facts.version is not None
        report = await found.reading()
        assert report is not None
        assert report.sequences == 0


async def test_what_drafts_can_be_told() -> None:
    async with two_nodes() as (_, node), known(node.url, speculator_kind=SpeculatorKind.NGRAM) as (found,):
        assert found.speculator.fingerprint == "ngram"


async def test_counters_that_went_back_tell_nothing() -> None:
    """An engine that was started again between two looks."""
    asker = Asker(16, 1, 4.0)
    async with two_nodes() as (_, node), known(node.url) as (found,):
        first = await measured_wave(found, Asker(80, 1, 4.0), Point(16, 1), ("code",), drafts=True, shared=False)
        assert first.counted is not None
        assert first.counted.output_tokens == 80
        resetting = asyncio.create_task(measured_wave(found, asker, Point(16, 1), ("code",), drafts=True, shared=False))
        await eventually(lambda: node.engine.running == 1)
        node.engine.reset_counters()
        assert (await resetting).counted is None


async def test_who_comes_beside_is_noticed() -> None:
    async with two_nodes() as (_, node), known(node.url) as (found,):
        wave = asyncio.create_task(
            measured_wave(found, Asker(200, 1, 4.0), Point(16, 1), ("code",), drafts=True, shared=False)
        )
        await eventually(lambda: node.engine.running == 1)
        others = [asyncio.create_task(ask(node, stream=True, max_tokens=5000, ignore_eos=True)) for _ in range(2)]
        with pytest.raises(NodeBusy, match="where 1 are ours"):
            await wave
        for other in others:
            other.cancel()


async def test_a_node_whose_pages_fall_silent_is_not_taken_for_idle() -> None:
    async with two_nodes("vllm") as (_, node), known(node.url) as (found,):
        await fault(node, "refuse", seconds=60.0)
        with pytest.raises(NodeBusy, match="does not answer"):
            await found.quiet(shared=False)
        assert await found.quiet(shared=True) is None
