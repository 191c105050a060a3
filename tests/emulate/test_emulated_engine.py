"""Slots, queue, counters and chance of the emulated engine."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from random import Random
from typing import Any

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulated_client import CHAT, ask, draft, payloads, state, text_in
from gateway_rig import eventually
from slipstream.core.acceptance import mean_acceptance_length_of
from slipstream.core.node import SpeculatorKind
from slipstream.emulate import CanNotEmulate, EmulatedNode, NodeSettings, emulated
from slipstream.emulate.alphas import Alphas, accepted_tokens, parse_alphas
from slipstream.emulate.dialects import DIALECTS
from slipstream.emulate.generation import Generation
from slipstream.emulate.pacing import Job, Pacing, Step
from slipstream.emulate.request import COMPLETIONS, Problem, read_completion
from slipstream.emulate.words import text_of

MESSAGES = [{"role": "user", "content": "Hello!"}]


def endless(_job: Job) -> Iterator[Step]:
    """A request that never gets its first token."""
    while True:
        yield Step(3600.0)


async def hang(node: EmulatedNode, **fields: Any) -> asyncio.StreamWriter:
    """A request that is left unanswered, over a connection of its own."""
    host, _, port = node.url.removeprefix("http://").partition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps({"messages": MESSAGES, "model": "emulated"} | fields).encode()
    writer.write(f"POST {CHAT} HTTP/1.1\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    return writer


async def test_requests_wait_in_order_when_slots_are_full() -> None:
    async with emulated("vllm", NodeSettings(slots=2), pacing=endless) as node:
        writers = []
        for number in range(5):
            writers.append(await hang(node))
            await eventually(lambda number=number: node.record.in_flight == number + 1)  # type: ignore[misc]  # bound
        assert (node.engine.running, node.engine.waiting) == (2, 3)
        running = node.engine.generations()
        writers[0].close()
        await eventually(lambda: node.engine.waiting == 2)
        assert node.engine.running == 2
        assert node.engine.generations()[0] is running[1]
        writers[4].close()
        await eventually(lambda: node.engine.waiting == 1)
        assert (await state(node))["aborted"] == 2
        for writer in writers:
            writer.close()
        await eventually(lambda: node.record.in_flight == 0)
        assert (node.engine.running, node.engine.waiting) == (0, 0)
        assert node.record.outcomes == {"aborted": 5}
        assert node.engine.counters.aborted == 5


async def test_choices_take_a_slot_each() -> None:
    async with emulated("vllm", NodeSettings(slots=4), pacing=endless) as node:
        one, two = await hang(node, n=3), await hang(node, n=2)
        await eventually(lambda: node.record.in_flight == 2)
        assert (node.engine.running, node.engine.waiting) == (3, 2)
        one.close()
        await eventually(lambda: node.engine.running == 2)
        two.close()


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("dialect", ["vllm", "llamacpp", "sglang"])
async def test_a_full_queue_refuses(dialect: str, status: int) -> None:
    limits = NodeSettings(slots=1, queue_limit=1, queue_status=status)
    async with emulated(dialect, limits, pacing=endless) as node:
        writers = [await hang(node) for _ in range(2)]
        await eventually(lambda: node.engine.waiting == 1)
        answer = await ask(node)
        assert answer.status == status
        assert "full" in answer.body.decode()
        assert (await state(node))["refused"] == 1
        assert (node.record.in_flight, node.engine.waiting) == (2, 1)
        for writer in writers:
            writer.close()


async def test_the_same_seed_draws_the_same_whatever_comes_between() -> None:
    async def drawn(seed: int, *, mixed: bool) -> list[int]:
        async with emulated("vllm", draft(seed=seed)) as node:
            for _ in range(5):
                await ask(node, headers={"x-emulate-category": "code"})
                if mixed:
                    await ask(node, headers={"x-emulate-category": "chat"})
            return [seen.accepted or 0 for seen in node.record.requests if seen.category == "code"]

    first = await drawn(7, mixed=False)
    assert await drawn(7, mixed=True) == first
    assert await drawn(8, mixed=False) != first


@pytest.mark.parametrize(
    ("content", "header", "category"),
    [
        ("Write a Python function that sorts a list.", None, "code"),
        ("Hello! How are you?", None, "chat"),
        ("Write a Python function that sorts a list.", "translation", "translation"),
    ],
)
async def test_a_category_comes_from_the_header_or_from_the_prompt(
    content: str, header: str | None, category: str
) -> None:
    async with emulated("vllm", draft()) as node:
        headers = None if header is None else {"x-emulate-category": header}
        await ask(node, headers=headers, messages=[{"role": "user", "content": [{"type": "text", "text": content}]}])
        assert (await state(node))["requests"][0]["category"] == category


async def test_answers_end_by_themselves_or_at_the_limit() -> None:
    async with emulated("vllm", draft(output_tokens=20)) as node:
        answers = [await ask(node), await ask(node, max_tokens=7), await ask(node, max_completion_tokens=50)]
        answers.append(await ask(node, max_tokens=50, ignore_eos=True))
    ends = [(one.json["usage"]["completion_tokens"], one.json["choices"][0]["finish_reason"]) for one in answers]
    assert ends == [(20, "stop"), (7, "length"), (20, "stop"), (50, "length")]


@pytest.mark.parametrize(
    "fields",
    [{"messages": []}, {"max_tokens": 0}, {"n": 0}, {"messages": "x"}, {"stream": "yes"}],
    ids=lambda fields: str(fields),
)
@pytest.mark.parametrize("dialect", ["vllm", "llamacpp", "sglang"])
async def test_impossible_fields_are_refused(dialect: str, fields: dict[str, Any]) -> None:
    async with emulated(dialect, draft()) as node:
        answer = await ask(node, **fields)
    assert answer.status == 400


@pytest.mark.parametrize("dialect", ["vllm", "llamacpp", "sglang"])
@pytest.mark.parametrize("stream", [False, True])
async def test_the_openai_client_reads_each_dialect(dialect: str, stream: bool) -> None:
    async with (
        emulated(dialect, draft()) as node,
        openai.AsyncOpenAI(base_url=f"{node.url}/v1", api_key="none", max_retries=0) as client,
    ):
        assert [model.id async for model in client.models.list()] == ["emulated"]
        if stream:
            parts = [
                chunk
                async for chunk in await client.chat.completions.create(
                    model="emulated",
                    messages=[{"role": "user", "content": "Hi"}],
                    stream=True,
                    stream_options={"include_usage": True},
                )
            ]
            text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
            usage = parts[-1].usage
        else:
            answer = await client.chat.completions.create(
                model="emulated", messages=[{"role": "user", "content": "Hi"}]
            )
            text, usage = answer.choices[0].message.content or "", answer.usage
        completion = await client.completions.create(model="emulated", prompt=["a", "b"])
    assert text == text_of(0, 30)
    assert usage is not None
    assert usage.completion_tokens == 30
    assert [choice.text for choice in completion.choices] == [text_of(0, 30)] * 2


async def test_chunks_of_vllm_are_steps_and_those_of_llamacpp_tokens() -> None:
    drafts = draft(alphas=Alphas(1.0), k=4, output_tokens=21)
    events = {}
    for dialect in DIALECTS:
        async with emulated(dialect, drafts) as node:
            answer = await ask(node, stream=True)
        told = payloads(answer.body)
        events[dialect] = sum(bool(one["choices"][0]["delta"].get("content")) for one in told if one["choices"])
    assert events == {"vllm": 5, "llamacpp": 21, "sglang": 5}  # the prefill's token and 4 steps of 5


steps = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)).map(lambda pair: (max(pair), min(pair))), min_size=1)


def scripted(script: list[tuple[int, int]]) -> Pacing:
    def pacing(_job: Job) -> Iterator[Step]:
        yield Step(0.0)
        while True:
            for drafted, accepted in script:
                yield Step(0.0, drafted, accepted)

    return pacing


@settings(max_examples=60, deadline=None)
@given(script=steps, tokens=st.integers(1, 80), dialect=st.sampled_from(sorted(DIALECTS)), chat=st.booleans())
def test_any_schedule_writes_the_same_text(
    script: list[tuple[int, int]], tokens: int, dialect: str, chat: bool
) -> None:
    body = b'{"messages":[{"role":"user","content":"x"}],"prompt":"x","stream":true}'
    path = CHAT if chat else COMPLETIONS
    request = read_completion(path, body)
    chance = Random(1)
    generation = Generation(request, "id", "m", 1, "chat", tokens, True, 1, 6, chance, 0.0)
    script_steps = scripted(script)(Job("chat", 1, tokens, chance))
    speaks = DIALECTS[dialect].answers[path]
    told: list[Any] = []
    while not generation.finished:
        before, step = generation.emitted, next(script_steps)
        generation.emitted = min(before + 1 + step.accepted, tokens)
        if step.drafted:
            generation.drafted.append(step.drafted)
            generation.accepted.append(step.accepted)
        told += speaks.stream(generation, before, NodeSettings())
    assert text_in(told) == text_of(0, tokens)
    reasons = [choice["finish_reason"] for event in told for choice in event["choices"]]
    assert [reason for reason in reasons if reason] == ["stop"]


@given(alpha=st.floats(0, 1), drafted=st.integers(0, 8), seed=st.integers())
def test_never_more_is_accepted_than_drafted(alpha: float, drafted: int, seed: int) -> None:
    assert 0 <= accepted_tokens(alpha, drafted, Random(seed)) <= drafted


@pytest.mark.parametrize("alpha", [0.4, 0.85])
def test_acceptance_has_the_mean_length_of_its_alpha(alpha: float) -> None:
    chance = Random(1)
    mean = 1 + sum(accepted_tokens(alpha, 4, chance) for _ in range(20000)) / 20000
    assert mean == pytest.approx(mean_acceptance_length_of(alpha, 4), rel=0.02)


def test_a_spread_keeps_the_mean() -> None:
    chance, alphas = Random(1), Alphas(0.7, spread=0.1)
    drawn = [alphas.draw("code", chance) for _ in range(5000)]
    mean = sum(drawn) / len(drawn)
    deviation = (sum((one - mean) ** 2 for one in drawn) / len(drawn)) ** 0.5
    assert mean == pytest.approx(0.7, abs=0.01)
    assert deviation == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.7", Alphas(0.7)),
        ("code=0.85, chat=0.4", Alphas(0.6, {"code": 0.85, "chat": 0.4})),
        ("0.5,code=0.9", Alphas(0.5, {"code": 0.9})),
    ],
)
def test_acceptance_is_read(text: str, expected: Alphas) -> None:
    assert parse_alphas(text) == expected


@pytest.mark.parametrize("text", ["", "code", "code=", "=0.5", "1.5", "code=-1", "nan"])
def test_what_is_no_acceptance_is_said_so(text: str) -> None:
    with pytest.raises(ValueError, match=r"acceptance|category"):
        parse_alphas(text)


@pytest.mark.parametrize(
    "fields",
    [
        {"model": ""},
        {"slots": 0},
        {"k": 0},
        {"queue_limit": -1},
        {"queue_status": 500},
        {"proposing_share": 2.0},
        {"request_statistics": "some"},
        {"request_statistics": "summary"},
        {"step_s": -1.0},
        {"step_s": math.nan},
        {"ttft_s": math.inf},
    ],
    ids=lambda fields: str(fields),
)
def test_settings_that_can_not_be_are_said_so(fields: dict[str, Any]) -> None:
    with pytest.raises(CanNotEmulate):
        NodeSettings(**fields)


async def test_only_vllm_can_be_told_to_give_statistics() -> None:
    with pytest.raises(CanNotEmulate, match="only vllm"):
        async with emulated("llamacpp", draft(request_statistics="summary")):
            pass
    with pytest.raises(CanNotEmulate, match="no dialect"):
        async with emulated("other"):
            pass


def test_lookup_drafts_in_half_of_the_steps_unless_told() -> None:
    assert NodeSettings(speculator=SpeculatorKind.NGRAM).share_proposing == 0.5
    assert NodeSettings(speculator=SpeculatorKind.DRAFT).share_proposing == 1.0
    assert NodeSettings().share_proposing == 0.0


@pytest.mark.parametrize(
    ("prompt", "tokens", "choices"),
    [("x" * 40, 11, 1), (["a", "b"], 2, 2), ([1, 2, 3], 3, 1), ([[1, 2], [3, 4, 5]], 5, 2)],
)
def test_prompts_may_be_texts_or_tokens(prompt: object, tokens: int, choices: int) -> None:
    request = read_completion("/v1/completions", json.dumps({"prompt": prompt}).encode())
    assert (request.prompt_tokens, request.choices) == (tokens, choices)


def test_a_completion_needs_a_prompt() -> None:
    with pytest.raises(Problem, match="prompt"):
        read_completion("/v1/completions", b"{}")


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
async def test_usage_runs_along_when_asked(dialect: str) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    async with emulated(dialect, draft()) as node:
        events = payloads((await ask(node, stream=True, stream_options=options)).body)
    counts = [event["usage"]["completion_tokens"] for event in events if event.get("usage")]
    assert counts == sorted(counts)
    assert counts[-1] == 30
    assert len(counts) > 5


def test_a_spread_that_no_distribution_has_is_said_so() -> None:
    with pytest.raises(ValueError, match=r"spread around 0\.9 must be under 0\.3"):
        parse_alphas("0.5,code=0.9", spread=0.4)
