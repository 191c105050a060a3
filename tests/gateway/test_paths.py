"""Messages, responses, embeddings and all that is passed through, over real sockets: each in its own dialect."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway_rig import Client, eventually, rig
from scripted_node import STREAM_HEAD, answer, chunked, die_after, raw, scripted_node, stall, stream
from slipstream.core.errors import AllFull, NothingUsable, SlipstreamError, UnknownModel
from slipstream.core.outcome import Ending
from slipstream.gateway.limits import Limits
from slipstream.gateway.passthrough import passed_through_shape

DATA = Path(__file__).parent / "data"
MESSAGES, RESPONSES, EMBEDDINGS = "/v1/messages", "/v1/responses", "/v1/embeddings"


def body_of(name: str) -> bytes:
    return (DATA / name).read_bytes().replace(b"\r\n", b"\n").partition(b"\n\n")[2]


def events_of(name: str) -> list[bytes]:
    return [event + b"\n\n" for event in body_of(name).split(b"\n\n")[:-1]]


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


@pytest.mark.parametrize(
    ("path", "name", "tokens"), [(MESSAGES, "llamacpp-messages", (30, 15)), (RESPONSES, "llamacpp-responses", (30, 15))]
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_recorded_answer_comes_through_and_its_tokens_are_counted(
    path: str, name: str, tokens: tuple[int, int], streamed: bool
) -> None:
    body = body_of(f"{name}-stream.http" if streamed else f"{name}.http")
    behaviour = stream(events_of(f"{name}-stream.http")) if streamed else answer(body=body)
    async with scripted_node(behaviour) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post(path, {"model": "m", "stream": streamed})
        response = await client.response()
        assert (response.body, response.complete) == (body, True)
        (outcome,) = gateway.books.outcomes
        assert outcome.ending is Ending.COMPLETED
        assert (outcome.prompt_tokens, outcome.output_tokens) == tokens
        assert outcome.latency is not None
        assert (outcome.latency.ttft_s is not None) == streamed


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_id_of_a_response_is_remembered_with_its_node(streamed: bool) -> None:
    behaviour = (
        stream(events_of("llamacpp-responses-stream.http"))
        if streamed
        else answer(body=body_of("llamacpp-responses.http"))
    )
    async with scripted_node(behaviour) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post(RESPONSES, {"model": "m", "stream": streamed})
        body = (await client.response()).body
        ((name, answer_id),) = gateway.books.remembered
        assert name == "node-0"
        assert answer_id.startswith("resp_")
        assert f'"id":"{answer_id}"'.encode() in body


async def test_the_id_is_known_before_the_answer_is_whole_so_that_it_can_be_cancelled() -> None:
    created = event("response.created", response={"id": "resp_1"})
    behaviour = stall(STREAM_HEAD, chunked(created))
    async with scripted_node(behaviour) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post(RESPONSES, {"model": "m", "stream": True})
        await eventually(lambda: gateway.books.remembered == [("node-0", "resp_1")])
        assert not gateway.books.settled


async def test_an_error_of_the_node_has_no_id_to_remember() -> None:
    async with scripted_node(answer(400, b'{"id":"resp_1"}')) as node, rig(node.url) as gateway:
        async with Client.to(gateway) as client:
            client.post(RESPONSES, {"model": "m"})
            assert (await client.response()).status == 400
        assert gateway.books.remembered == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/responses/resp_1"),
        ("DELETE", "/v1/responses/resp_1"),
        ("POST", "/v1/responses/resp_1/cancel"),
        ("GET", "/v1/responses/resp_1/input_items?limit=3"),
    ],
)
async def test_what_concerns_one_response_is_placed_by_its_id(method: str, path: str) -> None:
    async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.get(path, method, headers="Content-Length: 0\r\n" if method == "POST" else "")
        assert (await client.response()).status == 200
        assert (node.calls[0].method, node.calls[0].target) == (method, path)
        (placement,) = gateway.books.placed
        assert placement.shape.previous_response == "resp_1"
        assert not placement.shape.decodes


ANTHROPIC_TYPES = [
    (UnknownModel("x"), 404, "not_found_error"),
    (AllFull("x"), 429, "rate_limit_error"),
    (NothingUsable("x"), 503, "overloaded_error"),
]


@pytest.mark.parametrize(("error", "status", "kind"), ANTHROPIC_TYPES)
@pytest.mark.parametrize("path", [MESSAGES, "/v1/messages/count_tokens"])
async def test_errors_under_messages_have_anthropics_shape(
    path: str, error: SlipstreamError, status: int, kind: str
) -> None:
    async with rig() as gateway, Client.to(gateway) as client:
        gateway.books.error = error
        client.post(path)
        response = await client.response()
        assert response.status == status
        assert json.loads(response.body) == {"type": "error", "error": {"type": kind, "message": "x"}}


async def test_what_can_not_be_read_is_told_in_the_paths_shape() -> None:
    async with rig() as gateway, Client.to(gateway) as client:
        for path in (MESSAGES, RESPONSES, EMBEDDINGS):
            client.send(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n{{".encode())
            response = await client.response()
            assert response.status == 400
            assert (response.error["type"], json.loads(response.body).get("type")) == (
                "invalid_request_error",
                "error" if path == MESSAGES else None,
            )
        client.get(MESSAGES)
        response = await client.response()
        assert (response.status, response.headers["allow"]) == (405, "POST, OPTIONS")
        assert response.error["type"] == "invalid_request_error"


HALF_STREAMS = [
    (MESSAGES, [event("message_start", message={}), event("content_block_delta", delta={"text": "a"})], None),
    (RESPONSES, [event("response.output_text.delta", delta="a", sequence_number=4)], 5),
]


@pytest.mark.parametrize(("path", "events", "number"), HALF_STREAMS)
@pytest.mark.parametrize("end", [b"", b"0\r\n\r\n"])
async def test_a_stream_without_its_terminator_ends_in_an_error_event_of_its_dialect(
    path: str, events: list[bytes], number: int | None, end: bytes
) -> None:
    half = b"event: content_block_de"
    behaviour = die_after(STREAM_HEAD, *map(chunked, events), chunked(half), end)
    async with scripted_node(behaviour) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post(path, {"model": "m", "stream": True})
        response = await client.response()
        assert response.complete
        sent, _, last = response.body.rpartition(b"event: error\n")
        assert sent == b"".join(events)
        data = json.loads(last.removeprefix(b"data: "))
        assert data["type"] == "error"
        assert data.get("sequence_number") == number
        assert gateway.books.outcomes[0].ending is Ending.UPSTREAM_LOST


@pytest.mark.parametrize(
    ("path", "last", "ending"),
    [
        (MESSAGES, event("message_stop"), Ending.COMPLETED),
        (MESSAGES, event("error", error={"type": "overloaded_error", "message": "x"}), Ending.REFUSED),
        (RESPONSES, event("response.completed", response={"id": "r"}), Ending.COMPLETED),
        (RESPONSES, event("response.incomplete", response={"id": "r"}), Ending.COMPLETED),
        (RESPONSES, event("response.failed", response={"id": "r"}), Ending.REFUSED),
        (RESPONSES, event("error", message="x"), Ending.REFUSED),
    ],
)
@pytest.mark.parametrize("end", [b"", b"0\r\n\r\n"])
async def test_a_node_lost_behind_its_terminator_has_said_all(
    path: str, last: bytes, ending: Ending, end: bytes
) -> None:
    behaviour = die_after(STREAM_HEAD, chunked(event("ping")), chunked(last), end)
    async with scripted_node(behaviour) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post(path, {"model": "m", "stream": True})
        response = await client.response()
        assert (response.body, response.complete) == (event("ping") + last, True)
        assert gateway.books.outcomes[0].ending is ending


async def test_ttft_of_messages_is_timed_at_the_first_text_not_at_the_start() -> None:
    go = asyncio.Event()

    async def behave(call: Any) -> None:
        await raw(STREAM_HEAD, chunked(event("message_start", message={}) + event("content_block_start")))(call)
        await go.wait()
        await raw(chunked(event("content_block_delta", delta={"text": "a"}) + event("message_stop")), b"0\r\n\r\n")(
            call
        )

    async with scripted_node(behave) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post(MESSAGES, {"model": "m", "stream": True})
        await client.reader.readuntil(b"content_block_start")
        seen_at = asyncio.get_running_loop().time()
        go.set()
        await eventually(lambda: bool(gateway.books.settled))
        placement, outcome = gateway.books.settled[0]
        assert outcome.latency is not None
        assert outcome.latency.ttft_s is not None
        assert placement.decision.at + outcome.latency.ttft_s >= seen_at - 0.002


async def test_embeddings_come_through_untouched_and_unread() -> None:
    body = b'{"object":"list","data":[{"embedding":"AACAPw=="}],"usage":{"prompt_tokens":2,"completion_tokens":0}}'
    fields = {"model": "m", "input": ["a", "b"], "encoding_format": "base64"}
    async with scripted_node(answer(body=body)) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post(EMBEDDINGS, fields)
        assert (await client.response()).body == body
        assert json.loads(node.calls[0].body) == fields
        assert gateway.books.payloads == []
        assert gateway.books.outcomes[0].output_tokens is None


@pytest.mark.parametrize("before", [b"", b"\n", b" \t\r\n"])
def test_a_body_that_is_passed_through_finds_its_model_behind_blanks(before: bytes) -> None:
    assert passed_through_shape("/v1/rerank", before + b'{"model":"org/other"}', "chat").model == "org/other"


@pytest.mark.parametrize(("stream", "streamed"), [(b"true", True), (b"false", False), (b"1", False), (b'"yes"', False)])
def test_a_body_that_is_passed_through_has_its_model_whatever_its_stream_is(stream: bytes, streamed: bool) -> None:
    shape = passed_through_shape("/v1/rerank", b'{"stream": %b ,"model":"m"}' % stream, "chat")
    assert (shape.model, shape.streamed) == ("m", streamed)


async def test_a_long_body_that_is_passed_through_finds_its_model_as_a_short_one_does() -> None:
    async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post("/v1/rerank", {"model": "org/other", "documents": ["x" * 300_000]})
        assert (await client.response()).status == 200
        assert [(p.shape.model, p.shape.decodes) for p in gateway.books.placed] == [("org/other", False)]
        assert len(node.calls[0].body) > 300_000


@pytest.mark.parametrize("path", ["/v1/x/..;/sleep", "/v1/x%0d%0aa", "/v1/%2e%2e/sleep", "/v1/x/../../sleep"])
async def test_paths_that_lead_out_of_v1_reach_no_node(path: str) -> None:
    async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post(path)
        response = await client.response()
        assert (response.status, response.error["code"]) == (404, "unknown_path")
        assert node.calls == []


async def test_a_head_that_comes_byte_by_byte_is_no_answer_in_time() -> None:
    limits = Limits(first_byte_unstreamed_s=0.4, first_byte_streamed_s=0.4)

    async def behave(call: Any) -> None:
        call.writer.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not call.writer.is_closing():
            call.writer.write(b"x")
            await call.writer.drain()
            await asyncio.sleep(0.02)

    async with scripted_node(behave) as node, rig(node.url, limits=limits) as gateway, Client.to(gateway) as client:
        client.post()
        assert (await client.response()).status == 504
        assert gateway.books.outcomes[0].ending is Ending.TIMED_OUT


async def test_a_refusal_that_comes_byte_by_byte_is_taken_for_one_in_time() -> None:
    async def behave(call: Any) -> None:
        call.writer.write(b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 9999\r\n\r\n")
        while not call.writer.is_closing():
            call.writer.write(b"x")
            await call.writer.drain()
            await asyncio.sleep(0.02)

    limits = Limits(idle_s=0.3)
    async with scripted_node(behave) as node, rig(node.url, limits=limits) as gateway, Client.to(gateway) as client:
        client.post()
        assert (await asyncio.wait_for(client.response(), 10)).status == 429
        assert gateway.books.outcomes[0].ending is Ending.FULL


async def test_interim_answers_without_end_are_no_answer_in_time() -> None:
    limits = Limits(first_byte_unstreamed_s=0.4)

    async def behave(call: Any) -> None:
        while not call.writer.is_closing():
            call.writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
            await call.writer.drain()
            await asyncio.sleep(0.02)

    async with scripted_node(behave) as node, rig(node.url, limits=limits) as gateway, Client.to(gateway) as client:
        client.post()
        assert (await client.response()).status == 504


@pytest.mark.parametrize(
    ("status", "framing", "rest"),
    [
        (204, "Content-Length: 5\r\n", b""),
        (204, "Content-Length: 5\r\n", b"hello"),
        (204, "Transfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
        (304, "Content-Length: 5\r\n", b""),
        (204, "", b""),
    ],
)
async def test_an_answer_that_has_no_body_is_not_waited_for_whatever_its_head_says(
    status: int, framing: str, rest: bytes
) -> None:
    empty = raw(f"HTTP/1.1 {status} X\r\n{framing}\r\n".encode() + rest)
    async with scripted_node(empty, answer(body=b"[1]")) as node, rig(node.url) as gateway:
        async with Client.to(gateway) as client:
            client.get("/v1/files/7", "DELETE")
            response = await client.response()
            assert (response.status, response.body) == (status, b"")
            assert not {"transfer-encoding"} & response.headers.keys()
            assert "content-length" not in response.headers or status == 304
            client.post()
            assert (await client.response()).body == b"[1]"
        assert [outcome.ending for outcome in gateway.books.outcomes] == [Ending.COMPLETED] * 2


async def test_a_refusal_that_is_never_whole_is_one_all_the_same() -> None:
    refusing = stall(b"HTTP/1.1 503 X\r\nContent-Length: 10\r\n\r\nabc")
    async with (
        scripted_node(refusing) as full,
        scripted_node(answer(body=b"[1]")) as other,
        rig(full.url, other.url, limits=Limits(idle_s=0.3)) as gateway,
        Client.to(gateway) as client,
    ):
        client.post()
        assert (await client.response()).body == b"[1]"
        await eventually(lambda: full.calls[0].gone.is_set())
        assert [outcome.ending for outcome in gateway.books.outcomes] == [Ending.FULL, Ending.COMPLETED]
