"""Messages, responses and embeddings through the gateway to real llama.cpp nodes, by the clients of their makers."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import openai
import pytest

from engine_nodes import EngineNode, polled_config
from live_service import Live, live
from slipstream.config import FleetConfig
from slipstream.core.outcome import Ending

pytestmark = pytest.mark.engine

CODE = "Write a Python function that reverses a string and returns it."
ANSWER_TOKENS = 24

EMBEDDING_SERVER = """
import os, sys
import xllamacpp
from slipstream.embedded.model import find_model
from slipstream.embedded.speculator import parse_speculator
from slipstream.embedded.worker import server_parameters

parameters = server_parameters(find_model(), "small", slots=2, speculator=parse_speculator("none"))
parameters.embedding = True
parameters.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
sys.stdin.read()
os._exit(0)
"""
"""A node of the fleet's kind, but for embeddings. It ends with its standard input."""


@asynccontextmanager
async def embedding_node() -> AsyncIterator[str]:
    """The address of a llama.cpp server that makes embeddings and decodes nothing."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", EMBEDDING_SERVER, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
    finally:
        process.stdin.close()
        await process.wait()


@pytest.fixture
async def fleet(shared_fleet: tuple[EngineNode, ...]) -> AsyncIterator[Live]:
    """Answers are kept shorter than what counts as short by default, to keep the tests quick."""
    config = polled_config(shared_fleet, pools={"speculative": {"short_output_tokens": 8}})
    async with live(config) as service:
        yield service
        await service.drained()


@pytest.fixture
def model(shared_fleet: tuple[EngineNode, ...]) -> str:
    return shared_fleet[0].model


async def test_messages_are_categorised_routed_counted_and_streamed(fleet: Live, model: str) -> None:
    import anthropic  # takes a quarter of the time that all tests take to be found, in every worker

    url = fleet.base_url.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(base_url=url, api_key="clients-own", max_retries=0) as client:
        question: anthropic.types.MessageParam = {"role": "user", "content": [{"type": "text", "text": CODE}]}
        raw = await client.messages.with_raw_response.create(
            model=model, max_tokens=ANSWER_TOKENS, system="Be brief.", messages=[question]
        )
        assert (raw.headers["x-slipstream-category"], raw.headers["x-slipstream-pool"]) == ("code", "speculative")
        whole = await raw.parse()
        assert whole.content[0].type == "text"
        async with client.messages.stream(model=model, max_tokens=ANSWER_TOKENS, messages=[question]) as stream:
            assert "".join([text async for text in stream.text_stream])
            streamed = await stream.get_final_message()
        assert (await client.messages.count_tokens(model=model, messages=[question])).input_tokens > 5
        with pytest.raises(anthropic.NotFoundError) as not_found:
            await client.messages.create(model="another", max_tokens=1, messages=[question])
        assert not_found.value.type == "not_found_error"
    await fleet.drained()
    first, second, count = fleet.placements()
    assert count.decision.pool == "standard"
    for placement, message in ((first, whole), (second, streamed)):
        outcome = placement.outcome
        assert outcome is not None
        assert outcome.ending is Ending.COMPLETED
        assert outcome.output_tokens == message.usage.output_tokens
        assert (outcome.prompt_tokens or 0) >= message.usage.input_tokens > 0
        assert outcome.latency is not None
        assert (outcome.latency.ttft_s is not None) == (message is streamed)


async def test_responses_are_categorised_routed_counted_and_streamed(fleet: Live, model: str) -> None:
    raw = await fleet.client.responses.with_raw_response.create(
        model=model, max_output_tokens=ANSWER_TOKENS, instructions="Be brief.", input=CODE
    )
    assert (raw.headers["x-slipstream-category"], raw.headers["x-slipstream-pool"]) == ("code", "speculative")
    whole = raw.parse()
    assert whole.output_text
    events = [
        event
        async for event in await fleet.client.responses.create(
            model=model, max_output_tokens=ANSWER_TOKENS, input=[{"role": "user", "content": CODE}], stream=True
        )
    ]
    last = events[-1]
    assert last.type == "response.completed"
    await fleet.drained()
    first, second = fleet.placements()
    for placement, response in ((first, whole), (second, last.response)):
        outcome = placement.outcome
        assert outcome is not None
        assert response.usage is not None
        assert (outcome.prompt_tokens, outcome.output_tokens) == (
            response.usage.input_tokens,
            response.usage.output_tokens,
        )
    # llama.cpp's streams say what was drafted in this dialect too.
    assert second.outcome is not None
    assert second.outcome.sample is not None


async def test_a_follow_up_reaches_the_node_that_answered_and_no_other(fleet: Live, model: str) -> None:
    """llama.cpp stores no answers and says so itself: that it is asked, and which node, is what the gateway decides."""
    chat = await fleet.client.responses.create(model=model, max_output_tokens=4, input="Hello!")
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        await fleet.client.responses.create(
            model=model, max_output_tokens=ANSWER_TOKENS, input=CODE, previous_response_id=chat.id
        )
    with pytest.raises(openai.NotFoundError, match="File Not Found"):
        await fleet.client.responses.retrieve(chat.id)
    with pytest.raises(openai.NotFoundError, match="No node is known to hold") as not_found:
        await fleet.client.responses.retrieve("resp_of_somebody_else")
    assert not_found.value.code == "response_not_found"
    await fleet.drained()
    first, follow_up, retrieved = fleet.placements()
    assert retrieved.node.name == follow_up.node.name == first.node.name


async def test_embeddings_go_to_the_standard_pool_and_the_nodes_answer_is_passed_on(fleet: Live, model: str) -> None:
    """These nodes were not started for embeddings, and say so in their own words."""
    with pytest.raises(openai.InternalServerError, match="does not support embeddings") as refused:
        await fleet.client.embeddings.create(model=model, input=[CODE, CODE])
    assert refused.value.response.headers["x-slipstream-pool"] == "standard"
    (placement,) = fleet.placements()
    assert (placement.shape.sequences, placement.shape.decodes) == (2, False)


async def test_a_node_that_only_embeds_is_served_as_the_client_expects() -> None:
    async with embedding_node() as url:
        config = FleetConfig.model_validate(
            {
                "gateway": {"listen": "127.0.0.1:0"},
                "admin": {"listen": "127.0.0.1:0"},
                "nodes": [{"name": "embed-0", "url": url, "pool": "standard", "engine": "llamacpp"}],
            }
        )
        async with live(config) as fleet:
            # The client asks for base64 and decodes that itself.
            answer = await fleet.client.embeddings.create(model="small", input=["a fish", "a swan", "a code review"])
            assert len({len(one.embedding) for one in answer.data}) == 1
            assert len({tuple(one.embedding) for one in answer.data}) == 3
            await fleet.drained()
            (placement,) = fleet.placements()
            assert (placement.shape.sequences, placement.shape.decodes) == (3, False)
            assert placement.outcome is not None
            assert placement.outcome.ending is Ending.COMPLETED
            assert placement.outcome.output_tokens is None
