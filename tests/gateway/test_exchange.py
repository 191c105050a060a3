"""One request's life over real sockets: forwarding, retries, losses, timeouts, cancellation."""

from __future__ import annotations

import asyncio
import json
import socket
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest

from gateway_rig import Client, eventually, rig
from scripted_node import (
    STREAM_HEAD,
    Behaviour,
    Call,
    answer,
    chunked,
    close,
    die_after,
    raw,
    reset,
    scripted_node,
    stall,
    stream,
)
from slipstream.core.errors import AllFull, NothingUsable, UnknownModel
from slipstream.core.node import NodeSpec
from slipstream.core.outcome import Ending
from slipstream.core.request import Pool
from slipstream.gateway.dialect import DIALECTS
from slipstream.gateway.limits import Limits

DATA = Path(__file__).parent / "data"
ROLE = b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
TOKEN = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":5}}\n\n'
DONE = b"data: [DONE]\n\n"


def path_of(recording: str) -> str:
    """The path whose answer a recording is."""
    kind = recording.split("-")[1]
    return f"/v1/{kind}" if f"/v1/{kind}" in DIALECTS else "/v1/chat/completions"


def unused_url() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


async def test_request_body_and_query_reach_the_node_byte_for_byte_and_its_answer_comes_back_so() -> None:
    body = b'{"model": "m",\n "n": 1e0, "odd": "\\u00e9\\ud83d\\ude00 \xc3\xa9" }'
    reply = b'{"a" : 1.0,\r\n"b":"\xff"}'
    async with scripted_node(answer(body=reply)) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.send(b"POST /v1/chat/completions?a=b&c HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body))
        client.send(body)
        response = await client.response()
        assert response.body == reply
        assert node.calls[0].body == body
        assert node.calls[0].target == "/v1/chat/completions?a=b&c"
        assert node.calls[0].headers["content-length"] == str(len(body))


async def test_a_chunked_request_body_is_forwarded_whole() -> None:
    async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        client.send(chunked(b'{"model":') + chunked(b'"m"}') + b"0\r\nTrailer: x\r\n\r\n")
        assert (await client.response()).status == 200
        assert node.calls[0].body == b'{"model":"m"}'
        assert "trailer" not in node.calls[0].headers


async def test_the_node_sees_allowed_headers_its_own_name_and_key_and_nothing_else_of_the_client() -> None:
    sent = (
        "Authorization: Bearer client-secret\r\nCookie: a=b\r\nX-Api-Key: c\r\nX-Forwarded-For: 1.2.3.4\r\n"
        "X-Conversation-Id: 7\r\nAccept-Encoding: gzip\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\n"
        "Proxy-Authorization: x\r\nX-Slipstream-Category: math\r\n"
        "Content-Type: application/json\r\nAccept: */*\r\nUser-Agent: test/1\r\nTraceparent: 00-ab-cd-01\r\n"
        "Tracestate: a=1\r\nOpenAI-Organization: org\r\nX-Vllm-Priority: 1\r\nX-Session-Id: s\r\nX-Request-Id: r-1\r\n"
    )
    async with scripted_node(answer()) as node, rig(node.url, api_key="node-key") as gateway:
        async with Client.to(gateway) as client:
            client.post(headers=sent)
            assert (await client.response()).headers["x-request-id"] == "r-1"
        headers = node.calls[0].headers
        assert headers.pop("content-length") == "14"
        assert headers == {
            "host": node.url.removeprefix("http://"),
            "authorization": "Bearer node-key",
            "content-type": "application/json",
            "accept": "*/*",
            "user-agent": "test/1",
            "traceparent": "00-ab-cd-01",
            "tracestate": "a=1",
            "openai-organization": "org",
            "x-vllm-priority": "1",
            "x-session-id": "s",
            "x-request-id": "r-1",
        }


async def test_a_node_without_a_key_gets_no_authorization() -> None:
    async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post(headers="Authorization: Bearer client-secret\r\n")
        await client.response()
        assert "authorization" not in node.calls[0].headers


async def test_response_headers_pass_except_hop_by_hop_and_the_gateway_adds_its_own() -> None:
    sent = (
        "Server: engine\r\nX-Custom: 1\r\nKeep-Alive: timeout=5\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 2\r\n"
        "X-Request-Id: node's\r\nX-Slipstream-Node: forged\r\n"
    )
    async with scripted_node(answer(headers=sent)) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post()
        headers = (await client.response()).headers
        request_id = headers.pop("x-request-id")
        assert request_id == gateway.books.placed[0].request_id == node.calls[0].headers["x-request-id"]
        assert headers == {
            "content-type": "application/json",
            "server": "engine",
            "x-custom": "1",
            "content-length": "2",
            "x-slipstream-node": "node-0",
            "x-slipstream-pool": "standard",
            "x-slipstream-category": "code",
            "x-slipstream-reason": "no_speculator",
        }


@pytest.mark.parametrize("sent", ["x" * 129, "a b", "\xe9", ""])
async def test_an_insane_request_id_is_replaced(sent: str) -> None:
    async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.send(f"GET /health HTTP/1.1\r\nHost: x\r\nX-Request-Id: {sent}\r\n\r\n".encode("latin-1"))
        request_id = (await client.response()).headers["x-request-id"]
        assert request_id != sent
        assert request_id.isalnum()


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.glob("*stream*.http")))
@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_a_recorded_stream_comes_through_byte_for_byte_however_it_is_cut(name: str, size: int) -> None:
    body = (DATA / name).read_bytes().replace(b"\r\n", b"\n").partition(b"\n\n")[2]
    wire = b"".join(chunked(event + b"\n\n") for event in body.split(b"\n\n")[:-1]) + b"0\r\n\r\n"
    pieces = [wire[start : start + size] for start in range(0, len(wire), size)]
    if size == 1:
        pieces = [*pieces[:3000], wire[3000:]]
    async with scripted_node(raw(STREAM_HEAD, *pieces)) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post(path_of(name), stream=True)
        response = await client.response()
        assert response.complete
        assert response.body == body
        outcome = gateway.books.outcomes[0]
        assert outcome.ending is Ending.COMPLETED
        assert outcome.latency is not None
        assert outcome.latency.ttft_s is not None
        assert 0 < outcome.latency.ttft_s <= outcome.latency.e2e_s


async def test_a_streams_last_payloads_are_read_for_statistics_and_give_tpot() -> None:
    behaviour = stream([ROLE, TOKEN, TOKEN, TOKEN, USAGE, DONE])
    async with scripted_node(behaviour) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post(stream=True)
        assert (await client.response()).body == ROLE + TOKEN * 3 + USAGE + DONE
        assert gateway.books.payloads == [tuple(event[6:-2] for event in (TOKEN, TOKEN, USAGE))]
        outcome = gateway.books.outcomes[0]
        assert (outcome.prompt_tokens, outcome.output_tokens) == (3, 5)
        assert outcome.latency is not None
        assert outcome.latency.tpot_s is not None


async def test_ttft_is_timed_at_the_first_content_not_at_the_role() -> None:
    content = asyncio.Event()

    async def behave(call) -> None:  # type: ignore[no-untyped-def]  # a Behaviour by use
        call.writer.write(STREAM_HEAD + chunked(ROLE))
        await content.wait()
        call.writer.write(chunked(TOKEN) + chunked(DONE) + b"0\r\n\r\n")

    async with scripted_node(behave) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post(stream=True)
        await client.response(head_only=True)
        released_at = gateway.gateway.now()
        content.set()
        await eventually(lambda: len(gateway.books.settled) == 1)
        latency = gateway.books.outcomes[0].latency
        assert latency is not None
        assert latency.ttft_s is not None
        assert latency.ttft_s > 0
        assert latency.e2e_s >= latency.ttft_s
        assert released_at > 0


async def test_an_unstreamed_answer_has_no_ttft_and_its_body_is_read_for_statistics() -> None:
    body = b'{"usage":{"prompt_tokens":1,"completion_tokens":2}}'
    async with scripted_node(answer(body=body)) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post()
        await client.response()
        assert gateway.books.payloads == [(body,)]
        outcome = gateway.books.outcomes[0]
        assert (outcome.ending, outcome.status, outcome.output_tokens) == (Ending.COMPLETED, 200, 2)
        assert outcome.latency is not None
        assert outcome.latency.ttft_s is None
        assert outcome.latency.e2e_s > 0


@pytest.mark.parametrize(("status", "ending"), [(400, Ending.REFUSED), (404, Ending.REFUSED), (500, Ending.REFUSED)])
async def test_a_nodes_error_passes_through_unread_and_is_not_retried(status: int, ending: Ending) -> None:
    error = (DATA / "vllm-error-404.http").read_bytes().replace(b"\r\n", b"\n").partition(b"\n\n")[2]
    async with scripted_node(answer(status, error)) as node, rig(node.url, node.url) as gateway:
        async with Client.to(gateway) as client:
            client.post()
            response = await client.response()
        assert (response.status, response.body) == (status, error)
        assert [(o.ending, o.status, o.latency) for o in gateway.books.outcomes] == [(ending, status, None)]
        assert gateway.books.payloads == []


async def test_connections_to_nodes_are_reused() -> None:
    async with scripted_node(answer(), stream([TOKEN, DONE]), answer()) as node, rig(node.url) as gateway:
        for _ in range(5):
            async with Client.to(gateway) as client:
                client.post()
                assert (await client.response()).complete
        assert node.connections == 1


@pytest.mark.parametrize("headers", ["Connection: close\r\n", ""])
async def test_a_node_that_closes_after_its_answer_is_dialled_again(headers: str) -> None:
    async with scripted_node(answer(headers=headers, close=True)) as node, rig(node.url) as gateway:
        for _ in range(3):
            async with Client.to(gateway) as client:
                client.post()
                assert (await client.response()).status == 200
        assert node.connections == 3
        assert len(gateway.books.placed) == 3


async def test_a_pooled_connection_found_dead_is_replaced_invisibly() -> None:
    async with scripted_node(answer(), close(), answer(body=b'"second"')) as node, rig(node.url) as gateway:
        async with Client.to(gateway) as client:
            client.post()
            await client.response()
            client.post()
            response = await client.response()
        assert (response.status, response.body) == (200, b'"second"')
        assert len(gateway.books.placed) == 2
        assert [outcome.ending for outcome in gateway.books.outcomes] == [Ending.COMPLETED] * 2


async def test_a_fresh_connection_found_dead_is_not_dialled_twice() -> None:
    async with (
        scripted_node(answer(), close(), close()) as node,
        rig(node.url) as gateway,
        Client.to(gateway) as client,
    ):
        client.post()
        await client.response()
        client.post()
        response = await client.response()
        assert response.status == 502
        assert response.error["code"] == "upstream_failed"
        assert len(node.calls) == 3
        assert gateway.books.outcomes[1].ending is Ending.UPSTREAM_LOST


async def test_idle_connections_are_closed_before_the_node_would() -> None:
    async with scripted_node(answer()) as node, rig(node.url, limits=Limits(node_keep_alive_s=0.05)) as gateway:
        async with Client.to(gateway) as client:
            client.post()
            await client.response()
        assert node.open_connections == 1
        await eventually(lambda: node.open_connections == 0)


async def test_the_connection_of_a_request_that_outlasts_its_nodes_configuration_is_closed_with_it() -> None:
    held = asyncio.Event()

    async def late(call: Call) -> None:
        await held.wait()
        await answer()(call)

    async with (
        scripted_node(late, answer()) as node,
        rig(node.url, limits=Limits(node_keep_alive_s=0.05)) as gateway,
        Client.to(gateway) as client,
        Client.to(gateway) as other,
    ):
        client.post()
        await eventually(lambda: node.open_connections == 1)
        gateway.books.nodes[0] = replace(gateway.books.nodes[0], max_in_flight=3)
        other.post()
        assert (await other.response()).status == 200
        held.set()
        assert (await client.response()).status == 200
        await eventually(lambda: node.open_connections == 0)


@pytest.mark.parametrize("behaviour", [close(), reset()])
async def test_a_node_lost_before_its_first_byte_is_replaced_by_another(behaviour: Behaviour) -> None:
    async with scripted_node(behaviour) as dead, scripted_node(answer()) as alive, rig(dead.url, alive.url) as gateway:
        async with Client.to(gateway) as client:
            client.post()
            response = await client.response()
        assert response.status == 200
        assert response.headers["x-slipstream-node"] == "node-1"
        assert [(o.ending, o.status) for o in gateway.books.outcomes] == [
            (Ending.UPSTREAM_LOST, None),
            (Ending.COMPLETED, 200),
        ]


async def test_a_node_that_does_not_listen_is_replaced_by_another() -> None:
    async with scripted_node(answer()) as alive, rig(unused_url(), alive.url) as gateway, Client.to(gateway) as client:
        client.post()
        assert (await client.response()).headers["x-slipstream-node"] == "node-1"
        assert gateway.books.outcomes[0].ending is Ending.UNREACHABLE


async def test_at_most_two_further_nodes_are_tried() -> None:
    async with rig(*(unused_url() for _ in range(5))) as gateway, Client.to(gateway) as client:
        client.post()
        response = await client.response()
        assert response.status == 502
        assert "node-2" in response.error["message"]
        assert [placement.node.name for placement in gateway.books.placed] == ["node-0", "node-1", "node-2"]


async def test_with_no_other_node_the_failure_is_told() -> None:
    async with rig(unused_url()) as gateway, Client.to(gateway) as client:
        client.post()
        response = await client.response()
        assert response.status == 502
        assert "node-0" in response.error["message"]


@pytest.mark.parametrize("status", [429, 503])
async def test_a_full_node_is_replaced_by_another(status: int) -> None:
    async with (
        scripted_node(answer(status)) as full,
        scripted_node(answer()) as free,
        rig(full.url, free.url) as gateway,
    ):
        async with Client.to(gateway) as client:
            client.post()
            assert (await client.response()).headers["x-slipstream-node"] == "node-1"
        assert [(o.ending, o.status) for o in gateway.books.outcomes] == [
            (Ending.FULL, status),
            (Ending.COMPLETED, 200),
        ]


OVERLOADED = b'{"error":{"message":"The queue is full.","type":"x","code":503}}'


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("nodes", [1, 2, 3, 4])
async def test_when_all_are_full_the_client_gets_429_which_says_so_in_the_last_ones_words(
    status: int, nodes: int
) -> None:
    full = answer(status, OVERLOADED, "Retry-After: 7\r\n")
    async with scripted_node(full) as node, rig(*[node.url] * nodes) as gateway, Client.to(gateway) as client:
        client.post()
        response = await client.response()
        last = f"node-{min(nodes, 3) - 1}"
        assert (response.status, response.error["code"], response.headers["retry-after"]) == (429, "all_full", "7")
        assert response.error["message"] == (
            f"No node can take the request now; the last to refuse it was '{last}', with {status}: The queue is full."
        )
        assert [(o.ending, o.status) for o in gateway.books.outcomes] == [(Ending.FULL, status)] * min(nodes, 3)
        assert [(type(error), path) for error, path in gateway.books.rejections] == [(AllFull, "/v1/chat/completions")]
        client.get("/health")
        assert (await client.response()).status == 200


async def test_without_retries_a_refusal_is_all_full_and_no_other_node_is_asked() -> None:
    async with (
        scripted_node(answer(503, OVERLOADED)) as full,
        scripted_node(answer()) as free,
        rig(full.url, free.url, limits=Limits(retries=0)) as gateway,
    ):
        async with Client.to(gateway) as client:
            client.post()
            response = await client.response()
        assert (response.status, response.error["code"], response.headers["retry-after"]) == (429, "all_full", "1")
        assert free.calls == []


@pytest.mark.parametrize("retries", [1, 2])
async def test_full_then_dead_is_all_full_in_the_full_ones_words(retries: int) -> None:
    async with (
        scripted_node(answer(429, OVERLOADED, "Retry-After: 7\r\n")) as full,
        rig(full.url, unused_url(), limits=Limits(retries=retries)) as gateway,
    ):
        async with Client.to(gateway) as client:
            client.post()
            response = await client.response()
        assert (response.status, response.error["code"], response.headers["retry-after"]) == (429, "all_full", "7")
        assert "'node-0'" in response.error["message"]
        assert [outcome.ending for outcome in gateway.books.outcomes] == [Ending.FULL, Ending.UNREACHABLE]


async def test_dead_then_full_is_all_full() -> None:
    async with scripted_node(answer(503)) as full, rig(unused_url(), full.url) as gateway, Client.to(gateway) as client:
        client.post()
        response = await client.response()
        assert (response.status, response.error["code"]) == (429, "all_full")
        assert "'node-1', with 503." in response.error["message"]


async def test_of_two_full_nodes_the_last_one_is_named() -> None:
    async with (
        scripted_node(answer(429, b'{"message":"first"}', "Retry-After: 7\r\n")) as one,
        scripted_node(answer(503, b'{"message":"second"}')) as other,
        rig(one.url, other.url) as gateway,
        Client.to(gateway) as client,
    ):
        client.post()
        response = await client.response()
        assert response.error["message"].endswith("'node-1', with 503: second")
        assert response.headers["retry-after"] == "1"


async def test_full_then_failing_is_the_failure_as_the_node_wrote_it() -> None:
    async with (
        scripted_node(answer(429, OVERLOADED)) as full,
        scripted_node(answer(500, b"broken")) as broken,
        rig(full.url, broken.url) as gateway,
        Client.to(gateway) as client,
    ):
        client.post()
        response = await client.response()
        assert (response.status, response.body) == (500, b"broken")


async def test_a_chunked_refusal_is_read_whole() -> None:
    head = b"HTTP/1.1 503 X\r\nTransfer-Encoding: chunked\r\n\r\n"
    full = raw(head, chunked(OVERLOADED[:9]), chunked(OVERLOADED[9:]), b"0\r\n\r\n")
    async with scripted_node(full) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post()
        response = await client.response()
        assert (response.status, response.complete) == (429, True)
        assert response.error["message"].endswith(": The queue is full.")


@pytest.mark.parametrize("retries", [0, 2])
async def test_a_refusal_too_long_to_hold_is_the_answer(retries: int) -> None:
    body = b"x" * 300_000
    async with (
        scripted_node(answer(503, body)) as full,
        scripted_node(answer()) as free,
        rig(full.url, free.url, limits=Limits(retries=retries)) as gateway,
    ):
        async with Client.to(gateway) as client:
            client.post()
            response = await client.response()
        assert (response.status, response.body) == (503, body)
        assert [outcome.ending for outcome in gateway.books.outcomes] == [Ending.FULL]


async def test_a_node_lost_while_it_refuses_is_replaced_by_another() -> None:
    partial = die_after(b"HTTP/1.1 503 X\r\nContent-Length: 10\r\n\r\nabc")
    async with scripted_node(partial) as full, scripted_node(answer()) as free, rig(full.url, free.url) as gateway:
        async with Client.to(gateway) as client:
            client.post()
            assert (await client.response()).status == 200
        assert [outcome.ending for outcome in gateway.books.outcomes] == [Ending.FULL, Ending.COMPLETED]


async def test_the_only_node_lost_while_it_refuses_is_all_full() -> None:
    partial = die_after(b"HTTP/1.1 503 X\r\nRetry-After: 3\r\nContent-Length: 100\r\n\r\n" + OVERLOADED[:9])
    async with scripted_node(partial) as full, rig(full.url) as gateway, Client.to(gateway) as client:
        client.post()
        response = await client.response()
        assert (response.status, response.error["code"], response.headers["retry-after"]) == (429, "all_full", "3")
        assert response.error["message"].endswith("'node-0', with 503.")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (UnknownModel("No node serves 'm'.", "model"), 404, "model_not_found"),
        (AllFull("Every node is full.", 3), 429, "all_full"),
        (NothingUsable("No node is up.", 5), 503, "nothing_usable"),
    ],
)
async def test_what_can_not_be_placed_is_told(error: Exception, status: int, code: str) -> None:
    async with rig() as gateway, Client.to(gateway) as client:
        gateway.books.error = error  # type: ignore[assignment]  # one of ours by the table above
        client.post()
        response = await client.response()
        assert (response.status, response.error["code"], response.error["message"]) == (status, code, str(error))
        assert response.headers.get("retry-after") == {404: None, 429: "3", 503: "5"}[status]
        assert gateway.books.rejections == [(error, "/v1/chat/completions")]
        assert gateway.books.decisions == 1


@pytest.mark.parametrize(
    "wire",
    [
        STREAM_HEAD + chunked(TOKEN) + chunked(b"data: {half"),
        STREAM_HEAD + chunked(TOKEN) + b"1f\r\ndata: {half",
        STREAM_HEAD + chunked(TOKEN) + b"zz\r\n",
        STREAM_HEAD + chunked(TOKEN) + chunked(b"data: {half") + b"0\r\n\r\n",
        STREAM_HEAD + chunked(TOKEN) + b"0\r\n\r\n",
        STREAM_HEAD + chunked(TOKEN[:-1]) + chunked(TOKEN[-1:]),
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + TOKEN + b"data: {half",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 1000\r\n\r\n" + TOKEN + b"data:",
    ],
)
async def test_a_stream_cut_short_ends_in_an_error_event_without_its_half_event_and_without_done(wire: bytes) -> None:
    async with scripted_node(die_after(wire)) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post(stream=True)
        response = await client.response()
        assert response.complete
        assert response.body.startswith(TOKEN)
        event = response.body.removeprefix(TOKEN)
        assert event.startswith(b'data: {"error":{')
        assert event.endswith(b"\n\n")
        assert json.loads(event[6:])["error"]["code"] == "upstream_failed"
        assert b"[DONE]" not in event
        assert [(o.ending, o.status, o.latency) for o in gateway.books.outcomes] == [(Ending.UPSTREAM_LOST, 200, None)]
        client.get("/health")
        assert (await client.response()).status == 200


async def test_an_overlong_half_event_is_separated_from_the_error_event() -> None:
    start = b"data: " + b"x" * (1100 * 1024)
    async with scripted_node(die_after(STREAM_HEAD + chunked(start))) as node, rig(node.url) as gateway:
        async with Client.to(gateway) as client:
            client.post(stream=True)
            response = await client.response()
        assert response.body.startswith(start + b'\n\ndata: {"error"')


@pytest.mark.parametrize("tail", [b"", b"0\r\n\r\n"])
async def test_a_node_lost_after_the_terminator_has_answered_completely(tail: bytes) -> None:
    wire = STREAM_HEAD + chunked(TOKEN) + chunked(b"data: [DONE]") + tail
    async with scripted_node(die_after(wire)) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post(stream=True)
        response = await client.response()
        assert (response.body, response.complete) == (TOKEN + b"data: [DONE]", True)
        assert gateway.books.outcomes[0].ending is Ending.COMPLETED


@pytest.mark.parametrize(
    ("path", "start"),
    [
        ("/v1/responses", b'event: error\ndata: {"type":"error","code":"upstream_failed","message":'),
        ("/v1/messages", b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":'),
        ("/v1/completions", b'data: {"error":{"message":'),
    ],
)
async def test_the_error_event_speaks_its_paths_dialect(path: str, start: bytes) -> None:
    async with (
        scripted_node(die_after(STREAM_HEAD + chunked(TOKEN))) as node,
        rig(node.url) as gateway,
        Client.to(gateway) as client,
    ):
        client.post(path, stream=True)
        assert (await client.response()).body.startswith(TOKEN + start)


async def test_a_passed_through_stream_needs_no_done() -> None:
    event = b"event: transcript.text.done\ndata: {}\n\n"
    async with scripted_node(stream([event])) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post("/v1/audio/transcriptions", stream=True)
        response = await client.response()
        assert (response.body, response.complete) == (event, True)
        assert gateway.books.outcomes[0].ending is Ending.COMPLETED
        assert gateway.books.payloads in ([], [(b"{}",)])


@pytest.mark.parametrize(
    "wire",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{half",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
        b"HTTP/1.1 101 Switching\r\nUpgrade: a\r\nConnection: upgrade\r\n\r\n",
    ],
)
async def test_an_unstreamed_answer_cut_short_is_a_502_and_not_repeated_elsewhere(wire: bytes) -> None:
    async with scripted_node(die_after(wire)) as node, rig(node.url, node.url) as gateway, Client.to(gateway) as client:
        client.post()
        response = await client.response()
        assert (response.status, response.error["code"]) == (502, "upstream_failed")
        assert [outcome.ending for outcome in gateway.books.outcomes] == [Ending.UPSTREAM_LOST]
        client.get("/health")
        assert (await client.response()).status == 200


@pytest.mark.parametrize(
    "head",
    [
        b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"Content-Length: 900000\r\n\r\nabc",
        b"Content-Length: 900000\r\n\r\n" + b"x" * 500_000,
    ],
)
async def test_an_unstreamed_answer_lost_behind_its_head_is_visibly_incomplete(head: bytes) -> None:
    async with scripted_node(die_after(b"HTTP/1.1 200 OK\r\n" + head)) as node, rig(node.url) as gateway:
        async with Client.to(gateway) as client:
            client.post()
            response = await client.response()
            assert response.status == 200
            assert not response.complete
            assert await client.closed()
        assert gateway.books.outcomes[0].ending is Ending.UPSTREAM_LOST


async def test_a_body_that_ends_with_the_connection_is_complete() -> None:
    async with scripted_node(die_after(b"HTTP/1.1 200 OK\r\nX: 1\r\n\r\nab", b"cd")) as node, rig(node.url) as gateway:
        async with Client.to(gateway) as client:
            client.post()
            response = await client.response()
        assert (response.body, response.complete) == (b"abcd", True)
        assert gateway.books.outcomes[0].ending is Ending.COMPLETED


async def test_interim_answers_are_skipped() -> None:
    wire = b"HTTP/1.1 100 Continue\r\nX-Early: 1\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"
    final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    async with scripted_node(raw(wire, final)) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post()
        response = await client.response()
        assert (response.status, response.body) == (200, b"ok")
        assert "link" not in response.headers


@pytest.mark.parametrize("status", [204, 304])
async def test_answers_without_a_body_have_no_framing(status: int) -> None:
    bare = raw(b"HTTP/1.1 %d X\r\nX: 1\r\n\r\n" % status)
    async with scripted_node(bare) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.send(b"DELETE /v1/files/1 HTTP/1.1\r\nHost: x\r\n\r\n")
        response = await client.response()
        assert (response.status, response.complete) == (status, True)
        assert "transfer-encoding" not in response.headers
        client.get("/health")
        assert (await client.response()).status == 200


async def test_excess_bytes_behind_an_answer_end_the_connection_not_the_next_request() -> None:
    good = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    async with (
        scripted_node(raw(good + good), answer()) as node,
        rig(node.url) as gateway,
        Client.to(gateway) as client,
    ):
        for _ in range(2):
            client.post()
            response = await client.response()
            assert (response.status, response.body) == (200, b"{}")
        assert node.connections == 2


async def test_bytes_nobody_asked_for_end_an_idle_connection() -> None:
    async def behave(call) -> None:  # type: ignore[no-untyped-def]  # a Behaviour by use
        await answer()(call)
        await asyncio.sleep(0.02)
        call.writer.write(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        await call.reader.read(1)

    async with scripted_node(behave, answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post()
        await client.response()
        await eventually(lambda: node.open_connections == 0)
        client.post()
        assert (await client.response()).status == 200


@pytest.mark.parametrize(
    ("limits", "behaviour", "streamed"),
    [
        (Limits(first_byte_streamed_s=0.1), stall(), True),
        (Limits(first_byte_unstreamed_s=0.1), stall(), False),
        (Limits(idle_s=0.1), stall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"), False),
    ],
)
async def test_a_silent_node_is_a_504_and_is_left(limits: Limits, behaviour: Behaviour, streamed: bool) -> None:
    async with scripted_node(behaviour) as node, rig(node.url, node.url, limits=limits) as gateway:
        async with Client.to(gateway) as client:
            client.post(stream=streamed)
            response = await client.response()
            assert (response.status, response.error["code"]) == (504, "upstream_timeout")
            await eventually(lambda: node.calls[0].gone.is_set())
        assert [outcome.ending for outcome in gateway.books.outcomes] == [Ending.TIMED_OUT]


async def test_a_stream_that_falls_silent_ends_in_an_error_event() -> None:
    behaviour = stall(STREAM_HEAD + chunked(TOKEN))
    async with scripted_node(behaviour) as node, rig(node.url, limits=Limits(idle_s=0.1)) as gateway:
        async with Client.to(gateway) as client:
            client.post(stream=True)
            response = await client.response()
            assert response.body.startswith(TOKEN + b'data: {"error":{')
            assert b"upstream_timeout" in response.body
            await eventually(lambda: node.calls[0].gone.is_set())
        assert gateway.books.outcomes[0].ending is Ending.TIMED_OUT


async def test_a_node_that_accepts_no_connection_in_time_is_replaced() -> None:
    with socket.socket() as full:  # its backlog is full, so that further connections hang
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        fillers = []
        for _ in range(3):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
            fillers.append(filler)
        async with scripted_node(answer()) as node, rig(url, node.url, limits=Limits(connect_s=0.1)) as gateway:
            async with Client.to(gateway) as client:
                client.post()
                assert (await client.response()).headers["x-slipstream-node"] == "node-1"
            assert gateway.books.outcomes[0].ending is Ending.UNREACHABLE
        for filler in fillers:
            filler.close()


async def test_a_node_that_does_not_read_a_long_request_times_out() -> None:
    over = asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport that reads as well
        await over.wait()
        writer.close()

    async with await asyncio.start_server(deaf, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        limits = Limits(write_s=0.1, first_byte_unstreamed_s=60)
        async with rig(url, limits=limits) as gateway, Client.to(gateway) as client:
            client.post(padding="x" * 24_000_000)
            response = await client.response()
            assert response.status == 504
            assert gateway.books.outcomes[0].ending is Ending.TIMED_OUT
        over.set()


BEFORE_AND_AFTER: list[tuple[str, tuple[bytes, ...], bool]] = [
    ("before the first byte, unstreamed", (), False),
    ("before the first byte, streamed", (), True),
    ("mid-stream", (STREAM_HEAD + chunked(TOKEN),), True),
    ("in an unstreamed body", (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab",), False),
    ("in a refusal", (b"HTTP/1.1 429 X\r\nContent-Length: 9\r\n\r\nab",), False),
]


@pytest.mark.parametrize(
    ("sent", "streamed"), [row[1:] for row in BEFORE_AND_AFTER], ids=[row[0] for row in BEFORE_AND_AFTER]
)
@pytest.mark.parametrize("rough", [False, True])
async def test_when_the_client_leaves_the_node_sees_it(sent: tuple[bytes, ...], streamed: bool, rough: bool) -> None:
    async with scripted_node(stall(*sent)) as node, rig(node.url, node.url) as gateway, Client.to(gateway) as client:
        client.post(stream=streamed)
        await eventually(lambda: len(node.calls) == 1)
        if sent and streamed:
            await client.response(head_only=True)
        if rough:
            client.writer.transport.abort()
        else:
            client.writer.close()
        await asyncio.wait_for(node.calls[0].gone.wait(), 5)
        await eventually(lambda: len(gateway.books.settled) == 1)
        assert gateway.books.outcomes[0].ending is Ending.CLIENT_GONE
        assert gateway.books.outcomes[0].latency is None


async def test_a_client_that_leaves_while_the_node_is_dialled_is_settled() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = []
        for _ in range(3):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
            fillers.append(filler)
        async with rig(f"http://127.0.0.1:{full.getsockname()[1]}") as gateway, Client.to(gateway) as client:
            client.post()
            await eventually(lambda: len(gateway.books.placed) == 1)
            client.writer.close()
            await eventually(lambda: len(gateway.books.settled) == 1)
            assert gateway.books.outcomes[0].ending is Ending.CLIENT_GONE
        for filler in fillers:
            filler.close()


async def test_a_slow_reader_holds_the_node_back_and_still_gets_everything() -> None:
    event = b"data: " + b"x" * 50_000 + b"\n\n"
    count, written = 400, 0

    async def behave(call) -> None:  # type: ignore[no-untyped-def]  # a Behaviour by use
        nonlocal written
        call.writer.write(STREAM_HEAD)
        for _ in range(count):
            call.writer.write(chunked(event))
            await call.writer.drain()
            written += 1
        call.writer.write(chunked(DONE) + b"0\r\n\r\n")

    async with scripted_node(behave) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.stop_reading()
        client.post(stream=True)
        seen = -1
        while written != seen or not written:  # until the node stands still
            seen = written
            await asyncio.sleep(0.1)
        assert written < count
        client.read_on()
        response = await client.response()
        assert response.body == event * count + DONE
        assert gateway.books.outcomes[0].ending is Ending.COMPLETED


async def test_a_client_that_never_reads_is_left_and_its_node_with_it() -> None:
    event = chunked(b"data: " + b"x" * 50_000 + b"\n\n")

    async def behave(call) -> None:  # type: ignore[no-untyped-def]  # a Behaviour by use
        call.writer.write(STREAM_HEAD)
        try:
            while True:
                call.writer.write(event)
                await call.writer.drain()
        finally:
            call.gone.set()

    async with (
        scripted_node(behave) as node,
        rig(node.url, limits=Limits(write_s=0.2)) as gateway,
        Client.to(gateway) as client,
    ):
        client.stop_reading()
        client.post(stream=True)
        await eventually(lambda: len(gateway.books.settled) == 1)
        assert gateway.books.outcomes[0].ending is Ending.CLIENT_GONE
        await asyncio.wait_for(node.calls[0].gone.wait(), 5)


async def test_http_1_0_clients_get_a_body_that_ends_with_the_connection() -> None:
    async with scripted_node(stream([TOKEN, DONE])) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.send(b'POST /v1/chat/completions HTTP/1.0\r\nContent-Length: 28\r\n\r\n{"model":"m","stream": true}')
        response = await client.response()
        assert "transfer-encoding" not in response.headers
        assert response.headers["connection"] == "close"
        assert (response.body, response.complete) == (TOKEN + DONE, True)


async def test_other_paths_are_passed_through_with_method_query_and_model() -> None:
    async with scripted_node(answer(body=b"[1]")) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post("/v1/rerank?x=1", {"model": "org/other", "query": "a"})
        assert (await client.response()).body == b"[1]"
        client.send(b"DELETE /v1/files/7 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        assert (await client.response()).body == b"[1]"
        client.post("/v1/tokenize", {"model": 7})
        await client.response()
        assert [(call.method, call.target) for call in node.calls] == [
            ("POST", "/v1/rerank?x=1"),
            ("DELETE", "/v1/files/7"),
            ("POST", "/v1/tokenize"),
        ]
        assert [(p.shape.model, p.shape.category) for p in gateway.books.placed] == [
            ("org/other", "chat"),
            ("", "chat"),
            ("", "chat"),
        ]
        assert gateway.books.payloads == []


async def test_head_is_passed_through_without_a_body() -> None:
    head = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
    async with scripted_node(head, answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.get("/v1/files/7", "HEAD")
        response = await client.response(head_only=True)
        assert response.headers["content-length"] == "5"
        client.get("/health")
        assert (await client.response()).status == 200
        assert node.calls[0].method == "HEAD"


async def test_a_proxys_whole_url_is_forwarded_as_path_and_query() -> None:
    async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.send(b'POST http://h/v1/completions?q=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n{"model":"m"}')
        assert (await client.response()).status == 200
        assert node.calls[0].target == "/v1/completions?q=1"


async def test_a_long_body_is_read_off_the_loop_and_forwarded() -> None:
    async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post(padding="x" * 400_000)
        assert (await client.response()).status == 200
        assert len(node.calls[0].body) > 400_000
        client.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 400000\r\n\r\n" + b"x" * 400_000)
        assert (await client.response()).error["code"] == "invalid_body"


async def test_a_node_configured_anew_is_reached_at_its_new_address() -> None:
    async with (
        scripted_node(answer(body=b"1")) as old,
        scripted_node(answer(body=b"2")) as new,
        rig(old.url) as gateway,
        Client.to(gateway) as client,
    ):
        client.post()
        assert (await client.response()).body == b"1"
        gateway.books.nodes[0] = NodeSpec("node-0", new.url, Pool.STANDARD)
        client.post()
        assert (await client.response()).body == b"2"
        await eventually(lambda: old.open_connections == 0)


async def test_closing_lets_a_running_exchange_end_and_ends_idle_connections() -> None:
    go_on = asyncio.Event()

    async def behave(call) -> None:  # type: ignore[no-untyped-def]  # a Behaviour by use
        call.writer.write(STREAM_HEAD + chunked(TOKEN))
        await go_on.wait()
        call.writer.write(chunked(DONE) + b"0\r\n\r\n")

    async with (
        scripted_node(behave) as node,
        rig(node.url) as gateway,
        Client.to(gateway) as idle,
        Client.to(gateway) as busy,
    ):
        busy.post(stream=True)
        await eventually(lambda: len(node.calls) == 1)
        closing = asyncio.create_task(gateway.gateway.close(1000.0))
        assert await idle.closed()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(gateway.host, gateway.port)
        go_on.set()
        assert (await busy.response()).body == TOKEN + DONE
        await closing


async def test_closing_aborts_what_does_not_end_in_time() -> None:
    async with (
        scripted_node(stall(STREAM_HEAD + chunked(TOKEN))) as node,
        rig(node.url) as gateway,
        Client.to(gateway) as client,
    ):
        client.post(stream=True)
        await client.response(head_only=True)
        await gateway.gateway.close(0.05)
        await asyncio.wait_for(node.calls[0].gone.wait(), 5)
        assert gateway.books.outcomes[0].ending is Ending.STOPPED


@pytest.mark.parametrize(
    ("path", "events"),
    [
        ("/v1/chat/completions", (TOKEN, USAGE, DONE)),
        ("/v1/messages", (b'event: message_stop\ndata: {"type":"message_stop"}\n\n',)),
        ("/v1/responses", (b'data: {"type":"response.completed","response":{"id":"r"}}\n\n',)),
    ],
)
async def test_a_client_that_leaves_once_a_stream_has_said_that_it_ends_was_served(
    path: str, events: tuple[bytes, ...]
) -> None:
    sent = stall(STREAM_HEAD, *map(chunked, events))  # the last chunk, which only HTTP needs, is still to come
    async with scripted_node(sent) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post(path, stream=True)
        heard = b""
        while events[-1] not in heard:
            heard += await client.reader.read(65536)
        client.writer.close()
        await eventually(lambda: len(gateway.books.histories) == 1)
        outcome = gateway.books.outcomes[0]
        assert outcome.ending is Ending.COMPLETED
        assert outcome.latency is not None
        assert outcome.output_tokens == (5 if USAGE in events else None)
        assert gateway.books.histories[0].status == 200
        await asyncio.wait_for(node.calls[0].gone.wait(), 5)


async def test_a_client_that_leaves_behind_an_errors_last_event_was_refused() -> None:
    head = STREAM_HEAD.replace(b"200 OK", b"400 Bad Request")
    async with (
        scripted_node(stall(head, chunked(DONE))) as node,
        rig(node.url) as gateway,
        Client.to(gateway) as client,
    ):
        client.post(stream=True)
        heard = b""
        while DONE not in heard:
            heard += await client.reader.read(65536)
        client.writer.close()
        await eventually(lambda: len(gateway.books.histories) == 1)
        assert gateway.books.outcomes[0].ending is Ending.REFUSED


FAILED = [
    ("/v1/chat/completions", b'data: {"error":{"code":500,"message":"no room","type":"server_error"}}\n\n', 500),
    ("/v1/chat/completions", b'data: {"error":{"code":400,"message":"too long"}}\n\ndata: [DONE]\n\n', 400),
    ("/v1/completions", b'data: {"error":{"code":"odd","message":"no room"}}\n\ndata: [DONE]\n\n', 200),
    ("/v1/completions", b'data: {"error":"no room"}', 200),
    ("/v1/messages", b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n', 200),
    ("/v1/responses", b'data: {"type":"error","code":"server_error","message":"no room"}\n\n', 200),
    ("/v1/responses", b'data: {"type":"response.failed","response":{"error":{"code":"x"}}}\n\n', 200),
]


@pytest.mark.parametrize(("path", "last", "status"), FAILED)
async def test_a_nodes_own_error_event_ends_its_stream_and_is_no_answer(path: str, last: bytes, status: int) -> None:
    events = [TOKEN, last]
    async with scripted_node(stream(events)) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post(path, stream=True)
        response = await client.response()
        assert (response.body, response.complete) == (b"".join(events), True)
        outcomes = [(one.ending, one.status, one.latency) for one in gateway.books.outcomes]
        assert outcomes == [(Ending.REFUSED, status, None)]


@pytest.mark.parametrize(
    ("path", "last"),
    [
        ("/v1/chat/completions", b'data: {"choices":[{"delta":{"content":"\\"error\\""}}]}\n\ndata: [DONE]\n\n'),
        ("/v1/chat/completions", b'data: {"choices":[],"error":null}\n\ndata: [DONE]\n\n'),
        ("/v1/responses", b'data: {"type":"response.completed","response":{"error":null}}\n\n'),
    ],
)
async def test_a_stream_that_only_speaks_of_errors_is_an_answer(path: str, last: bytes) -> None:
    async with scripted_node(stream([last])) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post(path, stream=True)
        assert (await client.response()).body == last
        assert [outcome.ending for outcome in gateway.books.outcomes] == [Ending.COMPLETED]


@pytest.mark.parametrize("on_trial", [True, False])
async def test_a_stream_that_lasts_speaks_for_a_node_on_trial_before_it_ends(on_trial: bool) -> None:
    later = 0.0
    sent = stall(STREAM_HEAD, chunked(TOKEN))
    async with (
        scripted_node(sent) as node,
        rig(node.url, clock=lambda: monotonic() + later) as gateway,
        Client.to(gateway) as client,
    ):
        client.post(stream=True)
        await eventually(lambda: len(gateway.books.placed) == 1)
        placement = gateway.books.placed[0]
        if on_trial:
            placement.state.circuit.trial = placement
        heard = b""
        while TOKEN not in heard:
            heard += await client.reader.read(65536)
        assert gateway.books.answering_well == []
        later = 10.0
        if on_trial:
            await eventually(lambda: gateway.books.answering_well == [placement])
        client.writer.close()
        await eventually(lambda: len(gateway.books.settled) == 1)
        assert gateway.books.answering_well == [placement] * on_trial


@pytest.mark.parametrize("kind", [b"Text/Event-Stream", b"TEXT/EVENT-STREAM;charset=UTF-8"])
async def test_a_stream_is_one_however_its_type_is_spelled(kind: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n" % kind
    wire = head + chunked(TOKEN) + chunked(b"data: {half")
    async with scripted_node(die_after(wire)) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post(stream=True)
        response = await client.response()
        assert response.complete
        assert response.body.startswith(TOKEN + b'data: {"error":{')
