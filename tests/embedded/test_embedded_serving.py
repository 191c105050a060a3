"""What a running embedded fleet serves, asked with the `openai` client."""

from __future__ import annotations

import asyncio
import re
import socket
from contextlib import ExitStack

import aiohttp
import openai
import pytest
from openai.types.chat import ChatCompletionUserMessageParam

from engine_nodes import EngineNode, engine_nodes
from slipstream.embedded.model import find_model
from slipstream.embedded.worker import DRAFT_K

pytestmark = pytest.mark.engine

EDIT = (
    "Copy this list and add two more items:\n1. Buy fresh milk\n2. Clean the kitchen floor\n"
    "3. Call the dentist about the appointment\n4. Water the plants on the balcony"
)


def client_of(node: EngineNode) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{node.url}/v1", api_key="none", max_retries=0)


def user(text: str) -> list[ChatCompletionUserMessageParam]:
    return [{"role": "user", "content": text}]


async def get(node: EngineNode, path: str) -> aiohttp.ClientResponse:
    async with aiohttp.ClientSession() as session, session.get(node.url + path) as response:
        response.raise_for_status()
        await response.read()
        return response


async def counter(node: EngineNode, name: str) -> int:
    page = await (await get(node, "/metrics")).text()
    found = re.search(rf"^llamacpp:{name} (\d+)$", page, re.MULTILINE)
    assert found is not None
    return int(found[1])


async def test_every_node_answers_unstreamed(shared_fleet: tuple[EngineNode, ...]) -> None:
    for node in shared_fleet:
        async with client_of(node) as client:
            answer = await client.chat.completions.create(
                model=node.model, messages=user("Say hello."), max_tokens=8, temperature=0
            )
        assert answer.choices[0].message.content
        assert answer.model == node.model == "SmolLM2-135M-Instruct.Q4_1"
        assert answer.usage is not None
        assert 1 <= answer.usage.completion_tokens <= 8


async def test_every_node_answers_streamed(shared_fleet: tuple[EngineNode, ...]) -> None:
    for node in shared_fleet:
        async with client_of(node) as client:
            stream = await client.chat.completions.create(
                model=node.model, messages=user("Count to five."), max_tokens=8, temperature=0, stream=True
            )
            parts = [chunk.choices[0].delta.content async for chunk in stream if chunk.choices]
        assert len([part for part in parts if part]) > 1


async def test_slots_show_which_node_speculates(shared_fleet: tuple[EngineNode, ...]) -> None:
    shown = {node.name: await (await get(node, "/slots")).json() for node in shared_fleet}
    assert [slot["speculative"] for slot in shown["spec-0"]] == [True] * 8
    assert [slot["speculative"] for slot in shown["std-0"]] == [False] * 8
    assert {slot["n_ctx"] for slot in shown["spec-0"]} == {1024}


async def test_slots_share_a_cache_of_which_none_has_more_than_its_part(shared_fleet: tuple[EngineNode, ...]) -> None:
    async with client_of(shared_fleet[0]) as client:
        with pytest.raises(openai.BadRequestError, match=r"exceeds the available context size \(1024 tokens\)"):
            await client.chat.completions.create(model="m", messages=user("word " * 1024), max_tokens=1)


async def test_a_short_answer_that_repeats_its_prompt_is_drafted_on_the_speculative_node_only(
    shared_fleet: tuple[EngineNode, ...],
) -> None:
    tokens_per_step = {}
    for node in shared_fleet:
        before = await counter(node, "spec_decode_num_accepted_tokens_total")
        async with client_of(node) as client:
            answer = await client.chat.completions.create(
                model=node.model, messages=user(EDIT), max_tokens=64, temperature=0
            )
        accepted = await counter(node, "spec_decode_num_accepted_tokens_total") - before
        assert answer.usage is not None
        tokens_per_step[node.name] = answer.usage.completion_tokens / (answer.usage.completion_tokens - accepted)
    assert tokens_per_step["spec-0"] > 1.8
    assert tokens_per_step["std-0"] == 1


async def test_a_burst_of_connections_that_stay_open_does_not_keep_metrics_from_being_read(
    shared_fleet: tuple[EngineNode, ...],
) -> None:
    node = shared_fleet[0]
    with ExitStack() as connections:
        for _ in range(24):
            connection = connections.enter_context(socket.create_connection(("127.0.0.1", node.port)))
            connection.sendall(b"GET /health HTTP/1.1\r\nhost: node\r\n\r\n")
        async with asyncio.timeout(4):  # llama.cpp keeps an idle connection, and its thread, for 5 s
            assert await counter(node, "requests_processing") == 0


async def test_a_draft_model_drafts_k_tokens_at_a_time() -> None:
    with engine_nodes(standard=0, slots=1, speculator=f"draft:{find_model()}") as (node,):
        async with client_of(node) as client:
            await client.chat.completions.create(
                model=node.model, messages=user("Who was Julius Caesar?"), max_tokens=24, temperature=0
            )
        page = await (await get(node, "/metrics")).text()
    positions = re.findall(r'accepted_tokens_per_pos_total\{position="(\d+)"\} [1-9]', page)
    assert [int(position) for position in positions] == list(range(DRAFT_K))
