"""The real `openai` client, the gateway, and real llama.cpp nodes behind it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionUserMessageParam
from prometheus_client.parser import text_string_to_metric_families

from engine_nodes import EngineNode, polled_config
from live_service import COMMAND_ENVIRONMENT, Live, command, eventually, live
from slipstream.core.policy import Reason

pytestmark = pytest.mark.engine

CODE = "Write a Python function that reverses a string and returns it."
CHAT = "Hello! How are you today?"
ANSWER_TOKENS = 24


def user(text: str) -> list[ChatCompletionUserMessageParam]:
    return [{"role": "user", "content": text}]


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


async def test_chat_and_text_completions_streamed_and_not_come_through(fleet: Live, model: str) -> None:
    chat = await fleet.client.chat.completions.create(model=model, messages=user(CHAT), max_tokens=ANSWER_TOKENS)
    assert chat.choices[0].message.content
    assert chat.usage is not None
    assert 1 <= chat.usage.completion_tokens <= ANSWER_TOKENS

    parts = []
    finish_reason = None
    async for chunk in await fleet.client.chat.completions.create(
        model=model, messages=user(CODE), max_tokens=ANSWER_TOKENS, stream=True
    ):
        for choice in chunk.choices:
            parts.append(choice.delta.content or "")
            finish_reason = choice.finish_reason or finish_reason
    assert len([part for part in parts if part]) > 1
    assert finish_reason in ("stop", "length")

    text = await fleet.client.completions.create(model=model, prompt="Once upon a time", max_tokens=ANSWER_TOKENS)
    assert text.choices[0].text

    pieces = [
        chunk.choices[0].text
        async for chunk in await fleet.client.completions.create(
            model=model, prompt="The capital of France", max_tokens=ANSWER_TOKENS, stream=True
        )
        if chunk.choices
    ]
    assert "".join(pieces)
    assert [placement.outcome is not None for placement in fleet.placements()] == [True] * 4


async def test_the_synchronous_client_is_served_as_well(fleet: Live, model: str) -> None:
    def ask() -> tuple[str, str]:
        with openai.OpenAI(base_url=fleet.base_url, api_key="clients-own", max_retries=0) as client:
            whole = client.chat.completions.create(model=model, messages=user(CHAT), max_tokens=ANSWER_TOKENS)
            streamed = client.chat.completions.create(
                model=model, messages=user(CODE), max_tokens=ANSWER_TOKENS, stream=True
            )
            parts = [chunk.choices[0].delta.content or "" for chunk in streamed if chunk.choices]
            return whole.choices[0].message.content or "", "".join(parts)

    assert all(await asyncio.to_thread(ask))


async def test_both_nodes_model_is_listed_once(fleet: Live, model: str) -> None:
    assert [one.id async for one in fleet.client.models.list()] == [model]
    assert (await fleet.client.models.retrieve(model)).id == model
    with pytest.raises(openai.NotFoundError, match="no node of this fleet serves"):
        await fleet.client.chat.completions.create(model="another", messages=user(CHAT))


async def test_code_speculates_and_chat_does_not_and_the_answer_says_so(fleet: Live, model: str) -> None:
    code = await fleet.client.chat.completions.with_raw_response.create(
        model=model, messages=user(CODE), max_tokens=ANSWER_TOKENS
    )
    chat = await fleet.client.chat.completions.with_raw_response.create(
        model=model, messages=user(CHAT), max_tokens=ANSWER_TOKENS
    )
    short = await fleet.client.chat.completions.with_raw_response.create(model=model, messages=user(CODE), max_tokens=4)
    marks = [
        [answer.headers[f"x-slipstream-{name}"] for name in ("node", "pool", "category", "reason")]
        for answer in (code, chat, short)
    ]
    assert marks == [
        ["spec-0", "speculative", "code", "speculative"],
        ["std-0", "standard", "chat", "below_floor"],
        ["std-0", "standard", "code", "short_output"],
    ]
    assert len({answer.headers["x-request-id"] for answer in (code, chat, short)}) == 3


async def test_what_a_category_drafts_is_counted_from_streams_and_whole_answers(fleet: Live, model: str) -> None:
    """A list to be copied is drafted from the prompt; the answers' own figures are the category's."""
    listed = "1. Buy fresh milk\n2. Clean the kitchen floor\n3. Call the dentist\n4. Water the plants on the balcony"
    message = f"Write Python code:\n```python\nitems = '''{listed}'''\n```\nRepeat this code and add two more items."
    before = (await fleet.shown("spec-0"))["drafted"]
    whole: Any = await fleet.client.chat.completions.create(
        model=model, messages=user(message), max_tokens=48, temperature=0
    )
    async for _ in await fleet.client.chat.completions.create(
        model=model, messages=user(message), max_tokens=48, temperature=0, stream=True
    ):
        pass
    await fleet.drained()
    samples = [placement.outcome.sample for placement in fleet.placements() if placement.outcome is not None]
    assert [placement.node.name for placement in fleet.placements()] == ["spec-0", "spec-0"]
    assert samples[0] is not None
    assert samples[1] is not None
    assert samples[0].drafted == whole.timings["draft_n"] > 0
    category = await fleet.category("code")
    assert category["evidence_requests"] == 2
    assert category["drafted"] == samples[0].drafted + samples[1].drafted
    assert category["accepted"] == samples[0].accepted + samples[1].accepted
    assert category["requests"] == {"by_pool": {"speculative": 2}, "by_reason": {"speculative": 2}}
    # The engine's own counters, read by polling, agree with what the answers said.
    report = fleet.node("spec-0")
    await eventually(
        lambda: (
            report.report is not None
            and report.report.counters is not None
            and (report.report.counters.drafted or 0) - before == category["drafted"]
        )
    )
    assert (await fleet.shown("spec-0"))["tau"] >= 1
    assert (await fleet.shown("std-0"))["tau"] is None


async def test_decisions_can_be_read_with_the_other_nodes_reasons(fleet: Live, model: str) -> None:
    answers = [
        await fleet.client.chat.completions.with_raw_response.create(
            model=model, messages=user(text), max_tokens=ANSWER_TOKENS
        )
        for text in (CODE, CHAT)
    ]
    code_id, chat_id = (answer.headers["x-request-id"] for answer in answers)
    newest, oldest = (await fleet.admin("/decisions"))["decisions"]
    assert (newest["request_id"], newest["node"], newest["reason"]) == (chat_id, "std-0", Reason.BELOW_FLOOR)
    assert (oldest["request_id"], oldest["node"], oldest["ending"]) == (code_id, "spec-0", "completed")
    assert oldest["output_tokens"] <= ANSWER_TOKENS
    (attempt,) = (await fleet.admin(f"/decisions/{chat_id}"))["attempts"]
    assert {one["node"]: one["reason"] for one in attempt["candidates"]} == {
        "spec-0": Reason.BELOW_FLOOR,
        "std-0": Reason.BELOW_FLOOR,
    }
    assert {one["node"]: one["chosen"] for one in attempt["candidates"]} == {"spec-0": False, "std-0": True}


async def test_metrics_can_be_parsed_and_count_what_happened(fleet: Live, model: str) -> None:
    for text in (CODE, CODE, CHAT):
        async for _ in await fleet.client.chat.completions.create(
            model=model, messages=user(text), max_tokens=ANSWER_TOKENS, stream=True
        ):
            pass
    await fleet.drained()
    async with fleet.session.get(fleet.service.admin_url + "/metrics") as response:
        families = {family.name: family for family in text_string_to_metric_families(await response.text())}
    requests = {
        (sample.labels["category"], sample.labels["pool"], sample.labels["reason"]): sample.value
        for sample in families["slipstream_requests"].samples
        if sample.name == "slipstream_requests_total" and sample.value
    }
    assert requests == {("code", "speculative", "speculative"): 2, ("chat", "standard", "below_floor"): 1}
    firsts = {
        (sample.labels["category"], sample.labels["pool"]): sample.value
        for sample in families["slipstream_ttft_seconds"].samples
        if sample.name.endswith("_count") and sample.value
    }
    assert firsts == {("code", "speculative"): 2, ("chat", "standard"): 1}
    assert all(name.startswith("slipstream_") for name in families)


async def run(*arguments: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *command(*arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=COMMAND_ENVIRONMENT,
    )
    output, errors = await process.communicate()
    return process.returncode, output.decode(), errors.decode()


async def test_a_terminal_is_enough_to_see_it(fleet: Live, model: str) -> None:
    answer = await fleet.client.chat.completions.with_raw_response.create(
        model=model, messages=user(CODE), max_tokens=ANSWER_TOKENS
    )
    request_id, url = answer.headers["x-request-id"], fleet.service.admin_url
    reports = await asyncio.gather(
        run("status", "--json", "--url", url),
        run("status", "--url", url),
        run("explain", request_id, "--url", url),
        run("explain", "no-such-request", "--url", url),
    )
    shown = json.loads(reports[0][1])
    assert [node["name"] for node in shown["nodes"]] == ["spec-0", "std-0"]
    assert {node["state"] for node in shown["nodes"]} == {"ready"}
    assert "spec-0" in reports[1][1]
    assert max(map(len, reports[1][1].splitlines())) <= 80
    assert "to spec-0 (speculative), because speculative" in reports[2][1]
    assert [status for status, _, _ in reports] == [0, 0, 0, 1]
    assert reports[3][2].startswith("no decision on a request 'no-such-request' is remembered")
