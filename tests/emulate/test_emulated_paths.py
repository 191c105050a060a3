"""Paths beside completions: each in its own dialect, with the same generation, counters and faults behind it."""

from __future__ import annotations

import asyncio
import json
from itertools import product
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from emulated_client import Answer, ask, clear_faults, draft, events_in, fault, outline, prompt_for, shape, state
from gateway_rig import eventually
from live_service import live
from slipstream.config import FleetConfig
from slipstream.core.outcome import Ending
from slipstream.emulate import EmulatedNode, emulated
from slipstream.emulate.words import text_of

RECORDED = Path(__file__).parents[1] / "gateway" / "data"
MESSAGES = "/v1/messages"
DIALECTS = ["vllm", "llamacpp", "sglang"]
PROMPT_TOKENS = 2
RESPONSES = "/v1/responses"
EMBEDDINGS = "/v1/embeddings"
LAST = {MESSAGES: "message_stop", RESPONSES: "response.completed"}


def recorded(name: str) -> bytes:
    return (RECORDED / name).read_bytes().replace(b"\r\n", b"\n").partition(b"\n\n")[2]


async def post(node: EmulatedNode, path: str, body: bytes) -> Answer:
    """A body as it is."""
    async with aiohttp.ClientSession() as session, session.post(node.url + path, data=body) as response:
        return Answer(response.status, {}, await response.read())


def told_text(events: list[Any]) -> str:
    return "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta")


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_message_has_text_tokens_and_why_it_ends(dialect: str) -> None:
    async with emulated(dialect, draft()) as node:
        cut, whole = await ask(node, MESSAGES, max_tokens=20, system="Be brief."), await ask(node, MESSAGES)
        seen = node.record.requests[0]
    assert cut.json["content"] == [{"type": "text", "text": text_of(0, 20)}]
    assert (cut.json["stop_reason"], whole.json["stop_reason"]) == ("max_tokens", "end_turn")
    assert (cut.json["usage"]["output_tokens"], whole.json["usage"]["output_tokens"]) == (20, 30)
    assert cut.json["usage"]["input_tokens"] == seen.prompt_tokens == whole.json["usage"]["input_tokens"] + 3


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_streamed_message_has_the_same_and_ends_with_its_own_event(dialect: str) -> None:
    async with emulated(dialect, draft()) as node:
        answer = await ask(node, MESSAGES, max_tokens=20, stream=True)
    events = events_in(answer.body)
    assert told_text(events) == text_of(0, 20)
    types = [event["type"] for event in events]
    assert (types[:2], types[-3:]) == (
        ["message_start", "content_block_start"],
        ["content_block_stop", "message_delta", "message_stop"],
    )
    start, closing = events[0]["message"]["usage"], events[-2]
    assert (start["input_tokens"], start["output_tokens"]) == (0 if dialect == "sglang" else PROMPT_TOKENS, 0)
    assert closing["delta"]["stop_reason"] == "max_tokens"
    assert closing["usage"]["output_tokens"] == 20
    if dialect != "llamacpp":
        assert closing["usage"]["input_tokens"] == PROMPT_TOKENS


async def test_messages_of_llamacpp_have_the_names_of_the_recorded_ones() -> None:
    async with emulated("llamacpp", draft()) as node:
        whole, streamed = await ask(node, MESSAGES), await ask(node, MESSAGES, stream=True)
    assert shape(whole.json) == shape(json.loads(recorded("llamacpp-messages.http")))
    assert outline(events_in(streamed.body)) == outline(events_in(recorded("llamacpp-messages-stream.http")))


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_openais_own_client_reads_a_response(dialect: str) -> None:
    async with emulated(dialect, draft()) as node, openai.AsyncOpenAI(base_url=f"{node.url}/v1", api_key="-") as client:
        whole = await client.responses.create(model="emulated", input="Hello!", instructions="Be brief.")
        call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
        said: list[Any] = [{"role": "user", "content": [{"type": "input_text", "text": "Hello!"}]}, call]
        cut = await client.responses.create(model="emulated", input=said, max_output_tokens=20)
    assert whole.usage is not None
    assert cut.usage is not None
    assert (whole.output_text, cut.output_text) == (text_of(0, 30), text_of(0, 20))
    assert (whole.usage.output_tokens, cut.usage.output_tokens) == (30, 20)
    assert (whole.usage.input_tokens, cut.usage.input_tokens) == (PROMPT_TOKENS + 3, PROMPT_TOKENS)
    assert (whole.status, cut.status) == ("completed", "incomplete" if dialect == "vllm" else "completed")


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_streamed_response_is_built_up_and_ends_whole(dialect: str) -> None:
    async with emulated(dialect, draft()) as node, openai.AsyncOpenAI(base_url=f"{node.url}/v1", api_key="-") as client:
        stream = await client.responses.create(model="emulated", input="Hello!", max_output_tokens=20, stream=True)
        events = [event async for event in stream]
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.usage is not None
    assert (last.response.output_text, last.response.usage.output_tokens) == (text_of(0, 20), 20)
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert "".join(event.delta for event in deltas) == text_of(0, 20)
    if dialect != "llamacpp":
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert {(event.output_index, event.content_index) for event in deltas} == {(0, 0)}
    assert (getattr(last, "timings", None) is not None) is (dialect == "llamacpp")


async def test_responses_of_llamacpp_have_the_names_of_the_recorded_ones() -> None:
    async with emulated("llamacpp", draft()) as node:
        whole, streamed = await ask(node, RESPONSES), await ask(node, RESPONSES, stream=True)
    told, real = events_in(streamed.body), events_in(recorded("llamacpp-responses-stream.http"))
    assert outline(map(in_order, told)) == outline(map(in_order, real))
    assert shape(in_order(whole.json)) == shape(in_order(json.loads(recorded("llamacpp-responses.http"))))


def in_order(value: Any) -> Any:
    """With its names in one order: the server has more than one for the same thing."""
    return json.loads(json.dumps(value, sort_keys=True))


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_same_input_has_the_same_vector_and_no_token_is_generated(dialect: str) -> None:
    texts, numbers = ["a fish", "a swan", "a fish"], [[1, 2, 3], [1, 2, 4]]
    async with emulated(dialect, draft()) as node, openai.AsyncOpenAI(base_url=f"{node.url}/v1", api_key="-") as client:
        packed = await client.embeddings.create(model="emulated", input=texts)  # the client asks for base64
        plain = await client.embeddings.create(model="emulated", input=texts, encoding_format="float")
        of_numbers = await client.embeddings.create(model="emulated", input=numbers)
        of_one = await client.embeddings.create(model="emulated", input=numbers[1])
        counters, seen = node.engine.counters, node.record.requests[0]
        assert (counters.prompt_tokens, counters.generated_tokens) == (6 + 6 + 6 + 3, 0)
        assert (seen.outcome, seen.prompt_tokens, seen.output_tokens) == ("completed", 6, 0)
        assert node.engine.peak_running == 3
    vectors = [one.embedding for one in plain.data]
    assert vectors[0] == vectors[2] != vectors[1]
    assert sum(number * number for number in vectors[0]) == pytest.approx(1.0)
    assert [one.embedding for one in packed.data] == [pytest.approx(vector, abs=1e-6) for vector in vectors]
    assert of_one.data[0].embedding == of_numbers.data[1].embedding != of_numbers.data[0].embedding
    assert (plain.usage.prompt_tokens, plain.usage.total_tokens) == (6, 6)


async def test_embeddings_of_llamacpp_have_the_names_of_the_recorded_ones() -> None:
    """Recorded from b11549 with mean pooling; of the vectors two numbers are left."""
    real = (
        b'{"model":"small","object":"list","usage":{"prompt_tokens":5,"total_tokens":5},"data":[{"embedding":'
        b'[0.0063,-0.0110],"index":0,"object":"embedding"},{"embedding":[-0.0217,0.0103],"index":1,"object":"embedding"}]}'
    )
    async with emulated("llamacpp", draft()) as node:
        assert shape((await ask(node, EMBEDDINGS)).json) == shape(json.loads(real))


async def test_faults_are_for_embeddings_too() -> None:
    async with emulated("sglang", draft()) as node:
        await fault(node, "status", status=503)
        assert (await ask(node, EMBEDDINGS)).status == 503
        await fault(node, "die", after_events=1)
        with pytest.raises(aiohttp.ClientPayloadError):
            await ask(node, EMBEDDINGS)
        await fault(node, "stall", after_events=0)
        stalled = asyncio.create_task(ask(node, EMBEDDINGS))
        await eventually(lambda: node.engine.counters.stopped == 2)
        assert (await state(node))["in_flight"] == 1
        await clear_faults(node)
        assert (await stalled).status == 200
        assert node.record.outcomes == {"refused": 1, "died": 1, "completed": 1}


UNREADABLE, INCOMPLETE = b'{"messages":', b'{"model": "emulated"}'
ELSEWHERE = json.dumps({"model": "x", "max_tokens": 5, "messages": [{"role": "user", "content": "?"}]}).encode()
FOLLOW_UP = json.dumps({"model": "emulated", "input": "?", "previous_response_id": "resp_1"}).encode()


@pytest.mark.parametrize(
    ("dialect", "path", "body", "status", "error"),
    [
        ("vllm", MESSAGES, UNREADABLE, 400, {"error": {"type": "Bad Request", "code": 400}}),
        ("vllm", MESSAGES, INCOMPLETE, 400, {"error": {"param": "max_tokens"}}),
        ("vllm", MESSAGES, ELSEWHERE, 404, {"type": "error", "error": {"type": "NotFoundError"}}),
        ("sglang", MESSAGES, UNREADABLE, 400, {"object": "error", "code": 400}),
        ("llamacpp", MESSAGES, UNREADABLE, 400, {"error": {"type": "invalid_request_error", "code": 400}}),
        ("llamacpp", MESSAGES, INCOMPLETE, 500, {"error": {"type": "server_error", "code": 500}}),
        ("vllm", RESPONSES, UNREADABLE, 400, {"error": {"type": "Bad Request", "code": 400}}),
        ("vllm", RESPONSES, INCOMPLETE, 400, {"error": {"param": "input"}}),
        ("vllm", RESPONSES, FOLLOW_UP, 404, {"error": {"type": "invalid_request_error", "code": 404}}),
        ("vllm", EMBEDDINGS, INCOMPLETE, 400, {"error": {"param": "input"}}),
        ("sglang", EMBEDDINGS, INCOMPLETE, 400, {"object": "error", "param": "input"}),
        ("llamacpp", EMBEDDINGS, UNREADABLE, 400, {"error": {"type": "invalid_request_error", "code": 400}}),
        ("sglang", RESPONSES, FOLLOW_UP, 404, {"error": {"type": "invalid_request_error", "code": 404}}),
        ("llamacpp", RESPONSES, FOLLOW_UP, 400, {"error": {"type": "invalid_request_error", "code": 400}}),
    ],
)
async def test_errors_have_the_form_of_the_path(
    dialect: str, path: str, body: bytes, status: int, error: dict[str, Any]
) -> None:
    async with emulated(dialect, draft()) as node:
        answer = await post(node, path, body)
    assert answer.status == status
    assert told_of(error, answer.json) == error


def told_of(names: dict[str, Any], told: Any) -> Any:
    """What is told under these names."""
    return {
        name: told_of(value, told[name]) if isinstance(value, dict) else told[name] for name, value in names.items()
    }


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
async def test_a_full_queue_refuses_messages_in_their_form(dialect: str) -> None:
    async with emulated(dialect, draft(slots=1, queue_limit=0)) as node:
        await fault(node, "stall", after_events=0)
        first = asyncio.create_task(ask(node, MESSAGES))
        await eventually(lambda: node.engine.running == 1)
        refused = await ask(node, MESSAGES)
        await clear_faults(node)
        assert (await first).status == 200
    assert (refused.status, refused.json["type"]) == (503, "error")


@pytest.mark.parametrize("path", LAST)
async def test_faults_are_for_every_path(path: str) -> None:
    async with emulated("vllm", draft()) as node:
        await fault(node, "status", status=429, requests=1)
        assert (await ask(node, path)).status == 429
        await fault(node, "die", after_events=3)
        with pytest.raises(aiohttp.ClientPayloadError):
            await ask(node, path, stream=True)
        await fault(node, "stall", after_events=2)
        stalled = asyncio.create_task(ask(node, path, stream=True))
        await eventually(lambda: any(one.emitted for one in node.engine.generations()))
        await clear_faults(node)
        assert events_in((await stalled).body)[-1]["type"] == LAST[path]
        told = await state(node)
    assert (told["refused"], told["died"], told["completed"], told["in_flight"]) == (1, 1, 1, 0)
    assert {one["path"] for one in told["requests"]} == {path}


async def test_the_gateway_passes_each_path_through_and_counts_its_tokens() -> None:
    async with emulated("vllm", draft()) as node:
        config = {
            "gateway": {"listen": "127.0.0.1:0"},
            "admin": {"listen": "127.0.0.1:0"},
            "nodes": [{"name": "only", "url": node.url, "pool": "speculative", "engine": "vllm"}],
        }
        async with live(FleetConfig.model_validate(config)) as fleet:
            for path, stream in product(LAST, (False, True)):
                body = {"model": "emulated", "stream": stream, **prompt_for(path)}
                async with fleet.session.post(fleet.service.gateway_url + path, json=body) as response:
                    assert response.status == 200
                    assert (LAST[path].encode() in await response.read()) is stream
            vectors = await fleet.client.embeddings.create(model="emulated", input=["a", "b"])
            await fleet.drained()
            *placements, embedding = fleet.placements()
    assert len(vectors.data) == embedding.shape.sequences == 2
    assert embedding.outcome is not None
    assert embedding.outcome.ending is Ending.COMPLETED
    outcomes = [placement.outcome for placement in placements]
    for outcome in outcomes:
        assert outcome is not None
        assert (outcome.ending, outcome.prompt_tokens, outcome.output_tokens) == (Ending.COMPLETED, PROMPT_TOKENS, 30)
    assert len(outcomes) == 2 * len(LAST)
