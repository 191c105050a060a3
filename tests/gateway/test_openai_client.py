"""The real `openai` client finds in the gateway what it expects of OpenAI."""

from __future__ import annotations

from pathlib import Path

import openai
import pytest

from gateway_rig import rig
from scripted_node import STREAM_HEAD, answer, chunked, die_after, scripted_node, stream
from slipstream.core.errors import AllFull, ResponseNotFound, UnknownModel
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


async def test_a_recorded_response_unstreamed_and_streamed() -> None:
    whole, streamed = body_of("llamacpp-responses.http"), events_of("llamacpp-responses-stream.http")
    async with (
        scripted_node(answer(body=whole), stream(streamed)) as node,
        rig(node.url) as gateway,
        client_of(gateway.url) as client,
    ):
        response = await client.responses.create(model="m", input="?", instructions="Be brief.")
        assert response.output_text
        events = [event async for event in await client.responses.create(model="m", input="?", stream=True)]
        assert "".join(event.delta for event in events if event.type == "response.output_text.delta")
        assert events[-1].type == "response.completed"
        assert [outcome.output_tokens for outcome in gateway.books.outcomes] == [15, 15]


async def test_a_response_cut_short_ends_in_an_error_event_that_the_client_knows() -> None:
    events = events_of("llamacpp-responses-stream.http")[:6]
    async with (
        scripted_node(die_after(STREAM_HEAD, *map(chunked, events))) as node,
        rig(node.url) as gateway,
        client_of(gateway.url) as client,
    ):
        last = [event async for event in await client.responses.create(model="m", input="?", stream=True)][-1]
        assert last.type == "error"
        assert "lost" in last.message
        assert (last.code, last.sequence_number) == ("upstream_failed", 0)


async def test_a_response_that_no_node_holds_is_not_found() -> None:
    async with rig() as gateway, client_of(gateway.url) as client:
        gateway.books.error = ResponseNotFound("No node holds it.", "previous_response_id")
        with pytest.raises(openai.NotFoundError, match="No node holds it") as not_found:
            await client.responses.create(model="m", input="?", previous_response_id="resp_1")
        assert (not_found.value.code, not_found.value.param) == ("response_not_found", "previous_response_id")
        with pytest.raises(openai.NotFoundError, match="No node holds it"):
            await client.responses.retrieve("resp_1")


async def test_embeddings_as_the_client_asks_for_them() -> None:
    """It asks for base64 unless told otherwise, and decodes that itself."""
    body = (
        b'{"object":"list","model":"m","data":[{"object":"embedding","index":0,"embedding":"AACAPwAAAEA="}],"usage":{}}'
    )
    async with scripted_node(answer(body=body)) as node, rig(node.url) as gateway, client_of(gateway.url) as client:
        answered = await client.embeddings.create(model="m", input=["a"])
        assert answered.data[0].embedding == [1.0, 2.0]
        assert b"base64" in node.calls[0].body
