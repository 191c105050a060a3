"""The real `anthropic` client finds in the gateway what it expects of Anthropic.

It is imported where it is used: that takes a quarter of the time that all tests take to be found, in every worker.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway_rig import rig
from scripted_node import STREAM_HEAD, answer, chunked, die_after, scripted_node, stream
from slipstream.core.errors import AllFull, NothingUsable, SlipstreamError, UnknownModel, UpstreamTimeout
from slipstream.core.outcome import Ending

if TYPE_CHECKING:
    import anthropic

DATA = Path(__file__).parent / "data"
QUESTION: anthropic.types.MessageParam = {"role": "user", "content": "?"}


def body_of(name: str) -> bytes:
    return (DATA / name).read_bytes().replace(b"\r\n", b"\n").partition(b"\n\n")[2]


def events_of(name: str) -> list[bytes]:
    return [event + b"\n\n" for event in body_of(name).split(b"\n\n")[:-1]]


def client_of(url: str) -> anthropic.AsyncAnthropic:
    import anthropic

    return anthropic.AsyncAnthropic(base_url=url, api_key="client-secret", max_retries=0)


async def test_a_recorded_message_unstreamed_and_streamed() -> None:
    whole, streamed = body_of("llamacpp-messages.http"), events_of("llamacpp-messages-stream.http")
    async with scripted_node(answer(body=whole), stream(streamed)) as node, rig(node.url) as gateway:
        async with client_of(gateway.url) as client:
            message = await client.messages.create(model="m", max_tokens=24, messages=[QUESTION])
            assert message.content[0].type == "text"
            async with client.messages.stream(model="m", max_tokens=24, messages=[QUESTION]) as stream_:
                assert "".join([text async for text in stream_.text_stream])
                usage = (await stream_.get_final_message()).usage
            assert [outcome.output_tokens for outcome in gateway.books.outcomes] == [
                message.usage.output_tokens,
                usage.output_tokens,
            ]
        headers = node.calls[0].headers
        assert "x-api-key" not in headers
        assert headers["anthropic-version"]


async def test_tokens_are_counted_by_the_node() -> None:
    async with scripted_node(answer(body=b'{"input_tokens":33}')) as node, rig(node.url) as gateway:
        async with client_of(gateway.url) as client:
            assert (await client.messages.count_tokens(model="m", messages=[QUESTION])).input_tokens == 33
        assert node.calls[0].target == "/v1/messages/count_tokens"


@pytest.mark.parametrize(
    ("error", "raised", "kind"),
    [
        (UnknownModel("No node serves 'm'."), "NotFoundError", "not_found_error"),
        (AllFull("Every node is full."), "RateLimitError", "rate_limit_error"),
        (NothingUsable("No node is up."), "InternalServerError", "overloaded_error"),
        (UpstreamTimeout("Nothing came."), "InternalServerError", "timeout_error"),
    ],
)
async def test_errors_are_of_the_clients_own_kinds(error: SlipstreamError, raised: str, kind: str) -> None:
    import anthropic

    async with rig() as gateway, client_of(gateway.url) as client:
        gateway.books.error = error
        with pytest.raises(getattr(anthropic, raised), match=str(error)) as caught:
            await client.messages.create(model="m", max_tokens=1, messages=[QUESTION])
        assert caught.value.type == kind


async def test_a_stream_cut_short_raises_in_the_client() -> None:
    import anthropic

    events = events_of("llamacpp-messages-stream.http")[:4]
    async with scripted_node(die_after(STREAM_HEAD, *map(chunked, events))) as node, rig(node.url) as gateway:
        async with client_of(gateway.url) as client:
            stream_ = await client.messages.create(model="m", max_tokens=24, messages=[QUESTION], stream=True)
            with pytest.raises(anthropic.APIStatusError, match="lost"):
                async for _ in stream_:
                    pass
        assert gateway.books.outcomes[0].ending is Ending.UPSTREAM_LOST
