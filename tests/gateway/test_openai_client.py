"""The real `openai` client finds in the gateway what it expects of OpenAI."""

from __future__ import annotations

from pathlib import Path

import openai
import pytest

from gateway_rig import rig
from scripted_node import STREAM_HEAD, answer, chunked, die_after, scripted_node, stream
from slipstream.core.errors import AllFull, UnknownModel
from slipstream.core.outcome import Ending

DATA = Path(__file__).parent / "data"
QUESTION: openai.types.chat.ChatCompletionUserMessageParam = {"role": "user", "content": "?"}


def body_of(name: str) -> bytes:
    return (DATA / name).read_bytes().replace(b"\r\n", b"\n").partition(b"\n\n")[2]


def events_of(name: str) -> list[bytes]:
    return [event + b"\n\n" for event in body_of(name).split(b"\n\n")[:-1]]


def client_of(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="client-secret", max_retries=0)


@pytest.mark.parametrize("engine", ["vllm", "llamacpp"])
async def test_a_recorded_answer_unstreamed_and_streamed(engine: str) -> None:
    whole, streamed = body_of(f"{engine}-chat.http"), events_of(f"{engine}-chat-stream-usage.http")
    async with scripted_node(answer(body=whole), stream(streamed)) as node, rig(node.url) as gateway:
        async with client_of(gateway.url) as client:
            completion = await client.chat.completions.create(model="m", messages=[QUESTION])
            assert completion.choices[0].message.content
            assert completion.usage is not None
            chunks = [
                chunk
                async for chunk in await client.chat.completions.create(
                    model="m", messages=[QUESTION], stream=True, stream_options={"include_usage": True}
                )
            ]
            assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
            assert chunks[-1].usage is not None
            tokens = [completion.usage.completion_tokens, chunks[-1].usage.completion_tokens]
            assert [outcome.output_tokens for outcome in gateway.books.outcomes] == tokens
        assert "authorization" not in node.calls[0].headers


async def test_a_text_completion_streamed() -> None:
    async with scripted_node(stream(events_of("vllm-completions-stream.http"))) as node, rig(node.url) as gateway:
        async with client_of(gateway.url) as client:
            stream_ = await client.completions.create(model="m", prompt="?", stream=True)
            assert "".join([chunk.choices[0].text async for chunk in stream_])
        latency = gateway.books.outcomes[0].latency
        assert latency is not None
        assert latency.ttft_s is not None


async def test_models_are_listed() -> None:
    async with rig() as gateway, client_of(gateway.url) as client:
        assert [model.id async for model in client.models.list()] == ["m", "org/other"]
        assert (await client.models.retrieve("org/other")).id == "org/other"


async def test_errors_are_of_the_clients_own_kinds() -> None:
    async with rig() as gateway, client_of(gateway.url) as client:
        gateway.books.error = UnknownModel("No node serves 'm'.", "model")
        with pytest.raises(openai.NotFoundError) as not_found:
            await client.chat.completions.create(model="m", messages=[QUESTION])
        assert (not_found.value.code, not_found.value.param) == ("model_not_found", "model")
        gateway.books.error = AllFull("Every node is full.", 3)
        with pytest.raises(openai.RateLimitError, match="Every node is full"):
            await client.chat.completions.create(model="m", messages=[QUESTION])


async def test_a_stream_cut_short_raises_in_the_client() -> None:
    event = events_of("vllm-chat-stream.http")[1]
    async with scripted_node(die_after(STREAM_HEAD + chunked(event))) as node, rig(node.url) as gateway:
        async with client_of(gateway.url) as client:
            stream_ = await client.chat.completions.create(model="m", messages=[QUESTION], stream=True)
            with pytest.raises(openai.APIError, match="lost"):
                async for _ in stream_:
                    pass
        assert gateway.books.outcomes[0].ending is Ending.UPSTREAM_LOST
