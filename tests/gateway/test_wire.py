"""The client's side of HTTP/1.1, over real sockets."""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway_rig import Client, eventually, rig
from scripted_node import answer, scripted_node, stall
from slipstream.core.errors import NothingUsable
from slipstream.gateway.limits import Limits

SMALL = Limits(max_body_bytes=1000, max_header_bytes=2000)


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with scripted_node(answer(body=b"1"), answer(body=b"2")) as node, rig(node.url) as gateway:
        async with Client.to(gateway) as client:
            client.post()
            client.get("/health")
            client.post()
            client.get("/nowhere")
            bodies = [(await client.response()).body for _ in range(4)]
        assert bodies[0] == b"1"
        assert bodies[1] == b'{"status":"ok"}'
        assert bodies[2] == b"2"
        assert b"unknown_path" in bodies[3]
        assert len(node.calls) == 2


async def test_thousands_of_pipelined_requests_are_answered_without_recursion() -> None:
    async with rig() as gateway, Client.to(gateway) as client:
        client.send(
            b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 3000
            + b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        data = await client.reader.read()
        assert data.count(b'{"status":"ok"}') == 3001


async def test_requests_pipelined_behind_a_slow_one_wait_and_reading_stops() -> None:
    async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        for _ in range(50):
            client.post()
        assert [(await client.response()).status for _ in range(50)] == [200] * 50


async def test_a_request_in_single_bytes_is_understood() -> None:
    async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        body = b'{"model":"m"}'
        for byte in b"POST /v1/completions?x=1 HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body:
            client.send(bytes([byte]))
            await client.writer.drain()
        assert (await client.response()).status == 200
        assert (node.calls[0].target, node.calls[0].body) == ("/v1/completions?x=1", body)


MALFORMED = [
    b"nonsense\r\n\r\n",
    b"GET\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"PROXY TCP4 10.0.0.9 10.0.0.1 4711 8080\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x0a\x00\x00\x09\x0a\x00\x00\x01\x12\x67\x1f\x90GET / HTTP/1.1\r\n\r\n",
    b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -3\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    b"GET /health HTTP/1.1\r\nHost: x\r\nA: b\r\n c: folded\r\n\r\n",
    b"GET /health HTTP/1.1\nA: b\n\n",
]


@pytest.mark.parametrize("data", MALFORMED, ids=range(len(MALFORMED)))
async def test_what_is_not_http_is_a_400_and_closes(data: bytes) -> None:
    async with rig() as gateway, Client.to(gateway) as client:
        client.send(data)
        response = await client.response()
        assert (response.status, response.error["code"]) == (400, "malformed_request")
        assert response.headers["connection"] == "close"
        assert await client.closed()
        assert gateway.books.rejections[0][1] in ("", "/v1/completions")  # as far as it could be read


async def test_a_malformed_request_behind_a_good_one_does_not_spoil_its_answer() -> None:
    async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post()
        client.send(b"nonsense\r\n\r\n")
        assert (await client.response()).status == 200
        assert (await client.response()).status == 400
        assert await client.closed()


async def test_a_body_announced_over_the_limit_is_refused_before_it_is_read() -> None:
    async with rig(limits=SMALL) as gateway, Client.to(gateway) as client:
        client.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n")
        response = await client.response()
        assert (response.status, response.error["code"]) == (413, "body_too_large")
        assert "1000" in response.error["message"]


async def test_a_client_that_sends_a_body_over_the_limit_can_read_its_refusal() -> None:
    async with rig(limits=SMALL) as gateway, Client.to(gateway) as client:
        client.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n" + b"x" * 5_000_000)
        assert (await client.response()).status == 413
        assert await client.closed()


async def test_a_chunked_body_over_the_limit_is_refused() -> None:
    async with rig(limits=SMALL) as gateway, Client.to(gateway) as client:
        client.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        client.send((b"1f4\r\n" + b"x" * 500 + b"\r\n") * 3)
        assert (await client.response()).status == 413


async def test_a_body_of_exactly_the_limit_is_taken() -> None:
    body = json.dumps({"model": "m", "pad": ""}).encode()
    body = body[:-2] + b"x" * (1000 - len(body)) + b'"}'
    async with scripted_node(answer()) as node, rig(node.url, limits=SMALL) as gateway, Client.to(gateway) as client:
        client.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + body)
        assert (await client.response()).status == 200
        assert node.calls[0].body == body


@pytest.mark.parametrize(
    "data",
    [
        b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 3000,
        b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 3000 + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 600 + b"\r\n",
        b"GET /" + b"x" * 3000,
        b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 3000 + b"\r\n\r\n",
    ],
)
async def test_headers_over_the_limit_are_a_431_and_close(data: bytes) -> None:
    async with rig(limits=SMALL) as gateway, Client.to(gateway) as client:
        client.send(data)
        if data.count(b"GET") == 2:
            assert (await client.response()).status == 200
        response = await client.response()
        assert (response.status, response.error["code"]) == (431, "headers_too_large")
        assert await client.closed()


@pytest.mark.parametrize(("over", "status"), [(0, 200), (1, 431)])
@pytest.mark.parametrize(
    "start", [b"GET /health HTTP/1.1\r\nHost: x\r\n", b"OPTIONS /v1/models?a=b HTTP/1.1\r\nHost: x\r\n"]
)
async def test_however_a_head_comes_the_limit_is_the_same(start: bytes, over: int, status: int) -> None:
    size = SMALL.max_header_bytes + over
    head = start + b"X: " + b"x" * (size - len(start) - len("X: \r\n\r\n")) + b"\r\n\r\n"
    assert len(head) == size
    before = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    async with rig(limits=SMALL) as gateway:
        for pieces in (
            [head],
            [head[:-1], head[-1:]],
            [head[:900], head[900:]],
            [before + head],
            [before + head[:9], head[9:]],
        ):
            async with Client.to(gateway) as client:
                for piece in pieces:
                    client.send(piece)
                    await client.writer.drain()
                    await asyncio.sleep(0)
                if before in pieces[0]:
                    assert (await client.response()).status == 200
                assert (await client.response()).status // 100 == status // 100, pieces


async def test_a_long_body_does_not_count_as_headers() -> None:
    limits = Limits(max_header_bytes=500)
    async with scripted_node(answer()) as node, rig(node.url, limits=limits) as gateway, Client.to(gateway) as client:
        client.post(padding="x" * 5000)
        assert (await client.response()).status == 200


async def test_expect_continue_is_answered_before_the_body() -> None:
    async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\nExpect: 100-continue\r\n\r\n")
        assert (await client.response(head_only=True)).status == 100
        client.send(b'{"model":"m"}')
        assert (await client.response()).status == 200
        assert "expect" not in node.calls[0].headers


async def test_expect_continue_waits_for_the_answer_before_it() -> None:
    async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post()
        client.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\nExpect: 100-continue\r\n\r\n")
        assert (await client.response()).status == 200
        assert (await client.response(head_only=True)).status == 100
        client.send(b'{"model":"m"}')
        assert (await client.response()).status == 200


async def test_a_body_sent_without_waiting_needs_no_continue() -> None:
    async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post(headers="Expect: 100-continue\r\n")
        assert (await client.response()).status == 200


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 13\r\n\r\n%b", b"Transfer-Encoding: chunked\r\n\r\nd\r\n%b\r\n0\r\n\r\n"]
)
@pytest.mark.parametrize("whole", [True, False])
async def test_an_offer_to_upgrade_is_declined_by_answering_in_http_1_1(framing: bytes, whole: bool) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    data = head + framing % b'{"model":"m"}' + b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    async with scripted_node(answer(body=b"1")) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        for piece in [data] if whole else [data[index : index + 1] for index in range(len(data))]:
            client.send(piece)
            await client.writer.drain()
        assert (await client.response()).body == b"1"
        assert (await client.response()).body == b'{"status":"ok"}'
        assert node.calls[0].body == b'{"model":"m"}'
        assert "upgrade" not in node.calls[0].headers


async def test_an_upgrade_without_a_body_is_declined_too() -> None:
    async with rig() as gateway, Client.to(gateway) as client:
        client.get("/health", headers="Connection: Upgrade\r\nUpgrade: websocket\r\n")
        client.get("/health")
        assert (await client.response()).status == 200
        assert (await client.response()).status == 200


async def test_connect_is_refused() -> None:
    async with rig() as gateway, Client.to(gateway) as client:
        client.send(b"CONNECT example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await client.response()).status == 404


async def test_connection_close_is_honoured() -> None:
    async with rig() as gateway, Client.to(gateway) as client:
        client.get("/health", headers="Connection: close\r\n")
        assert (await client.response()).headers["connection"] == "close"
        assert await client.closed()


async def test_an_idle_client_is_closed() -> None:
    limits = Limits(client_keep_alive_s=0.1)
    async with rig(limits=limits) as gateway, Client.to(gateway) as client:
        client.get("/health")
        await client.response()
        assert await client.closed()


async def test_a_client_that_does_not_read_gets_no_further_answers_and_is_dropped() -> None:
    async with rig(limits=Limits(write_s=0.2)) as gateway, Client.to(gateway) as client:
        client.stop_reading()
        client.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n" * 200_000)
        await eventually(lambda: gateway.gateway.open_connections == 1)
        await eventually(lambda: gateway.gateway.open_connections == 0)


async def test_own_endpoints_say_what_is_served() -> None:
    async with scripted_node(stall()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.get("/v1/models")
        listed = json.loads((await client.response()).body)
        assert listed["object"] == "list"
        assert [card["id"] for card in listed["data"]] == ["m", "org/other"]
        client.get("/v1/models/org%2Fother")
        assert json.loads((await client.response()).body)["id"] == "org/other"
        client.get("/v1/models/org/other")
        assert json.loads((await client.response()).body)["id"] == "org/other"
        client.get("/v1/models/none")
        assert (await client.response()).error["code"] == "model_not_found"
        client.get("/ready")
        assert json.loads((await client.response()).body) == {"status": "ready", "usable_nodes": 1}


async def test_not_ready_without_a_usable_node_but_healthy() -> None:
    async with rig() as gateway, Client.to(gateway) as client:
        gateway.books.error = NothingUsable("x")
        client.get("/ready")
        response = await client.response()
        assert (response.status, response.error["code"]) == (503, "nothing_usable")
        client.get("/health")
        assert (await client.response()).status == 200
        assert gateway.books.rejections == []


async def test_head_has_the_head_of_get_and_no_body() -> None:
    async with rig() as gateway, Client.to(gateway) as client:
        client.get("/health", "HEAD")
        assert (await client.response(head_only=True)).headers["content-length"] == "15"
        client.get("/health")
        assert (await client.response()).body == b'{"status":"ok"}'


async def test_options_lists_methods() -> None:
    async with rig() as gateway, Client.to(gateway) as client:
        client.get("/v1/chat/completions", "OPTIONS")
        response = await client.response()
        assert (response.status, response.headers["allow"]) == (204, "POST, OPTIONS")
        client.get("/nowhere", "OPTIONS")
        assert (await client.response()).status == 404


async def test_a_wrong_method_names_the_right_ones() -> None:
    async with rig() as gateway, Client.to(gateway) as client:
        client.get("/v1/chat/completions")
        response = await client.response()
        assert (response.status, response.headers["allow"]) == (405, "POST, OPTIONS")
        assert "POST" in response.error["message"]


async def test_an_unreadable_body_is_told_and_the_connection_stays_usable() -> None:
    async with rig() as gateway, Client.to(gateway) as client:
        client.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n{")
        assert (await client.response()).error["code"] == "invalid_body"
        client.get("/health")
        assert (await client.response()).status == 200
