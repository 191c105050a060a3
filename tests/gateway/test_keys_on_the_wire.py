"""Requests are let in by their key, within its limits; the key goes no further than the gateway."""

from __future__ import annotations

import dataclasses
import json

import pytest

from gateway_rig import Client, Response, eventually, rig
from scripted_node import Behaviour, answer, chunked, close, die_after, scripted_node, stall, stream
from slipstream.core.errors import TooManyInFlight
from slipstream.core.keys import KeyPolicy, digest_of
from slipstream.core.request import PinSource, Pool, TrafficClass
from slipstream.gateway.keys import KeyRing
from slipstream.gateway.limits import Limits
from slipstream.gateway.passthrough import passed_through_shape

SECRET = "sk-test-0123456789abcdefghijklmnopqrstuvwxyz"
BEARER = f"Authorization: Bearer {SECRET}\r\n"
OTHER = "sk-other-0123456789abcdefghijklmnopqrstuvwxyz"
BIG = "x" * 300_000
EVENTS = [b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n', b"data: [DONE]\n\n"]


def ring(max_in_flight: int | None = None, per_minute: int | None = None, previous: KeyRing | None = None) -> KeyRing:
    policy = KeyPolicy("team-a", max_in_flight=max_in_flight, requests_per_minute=per_minute)
    return KeyRing([(digest_of(SECRET.encode()), policy), (digest_of(OTHER.encode()), KeyPolicy("b"))], previous)


def assert_refused(response: Response, code: str = "invalid_api_key") -> None:
    assert (response.status, response.error["code"]) == (401 if code == "invalid_api_key" else 429, code)
    assert response.headers["x-request-id"]
    assert SECRET not in str(response)


@pytest.mark.parametrize(
    "headers",
    [
        "",
        "Authorization: Bearer \r\n",
        "Authorization: Bearer\r\n",
        f"Authorization: {SECRET}\r\n",
        f"Authorization: Basic {SECRET}\r\n",
        f"Authorization: Bearer {SECRET}x\r\n",
        f"Authorization: Bearer {SECRET[:-1]}\r\n",
        f"Authorization: Bearer {SECRET.upper()}\r\n",
        f"Authorization: Bearer {SECRET} {SECRET}\r\n",
        f"X-Api-Key: {SECRET[1:]}\r\n",
        f"X-Api-Key: {SECRET}\r\nAuthorization: Bearer wrong\r\n",
        f"Cookie: {SECRET}\r\n",
        "Authorization: Bearer \xff\xfe\r\n",
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/files"])
async def test_without_a_known_key_no_request_is_let_in(headers: str, path: str) -> None:
    async with scripted_node(answer()) as node, rig(node.url, keys=ring()) as gateway, Client.to(gateway) as client:
        body = b'{"model":"m"}'
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
        client.send(head.encode("latin-1") + body)
        response = await client.response()
        assert response.status == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.headers["x-request-id"]
        fields = json.loads(response.body)
        if path == "/v1/messages":
            assert (fields["type"], fields["error"]["type"]) == ("error", "authentication_error")
        else:
            assert fields["error"]["code"] == "invalid_api_key"
        assert SECRET[1:-1] not in str(response)
        assert not node.calls
        client.post(headers=BEARER)  # the connection goes on: another request may bear a key
        assert (await client.response()).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        f"authorization: Bearer {SECRET}\r\n",
        f"AUTHORIZATION: bearer   {SECRET} \r\n",
        f"X-Api-Key: {SECRET}\r\n",
        f"x-api-key: wrong\r\nAuthorization: Bearer {SECRET}\r\n",
        f"Authorization: Basic abc\r\nX-Api-Key: {SECRET}\r\n",
        f"Authorization: Bearer {OTHER}\r\n",
    ],
)
async def test_a_known_key_is_let_in_and_no_node_sees_it(headers: str) -> None:
    async with scripted_node(answer()) as node, rig(node.url, keys=ring()) as gateway, Client.to(gateway) as client:
        for path in ("/v1/chat/completions", "/v1/messages", "/v1/files"):
            client.post(path, headers=headers)
            response = await client.response()
            assert response.status == 200
            assert SECRET not in str(response)
        assert len(node.calls) == 3
        for call in node.calls:
            assert {"authorization", "x-api-key"}.isdisjoint(call.headers)
            assert SECRET not in str(call.headers)


async def test_health_and_methods_are_open_and_models_are_not() -> None:
    async with scripted_node(answer()) as node, rig(node.url, keys=ring()) as gateway, Client.to(gateway) as client:
        for method, path, status in (
            ("GET", "/health", 200),
            ("GET", "/ready", 200),
            ("OPTIONS", "/v1/chat/completions", 204),
            ("GET", "/v1/models", 401),
            ("GET", "/v1/models/m", 401),
        ):
            client.get(path, method)
            assert (await client.response()).status == status, path
        client.get("/v1/models", headers=BEARER)
        assert (await client.response()).status == 200


async def test_without_keys_everyone_is_let_in_whatever_they_bear() -> None:
    async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        for headers in ("", BEARER):
            client.post(headers=headers)
            assert (await client.response()).status == 200
        assert "authorization" not in node.calls[-1].headers


async def test_a_key_taken_away_is_refused_on_connections_that_had_used_it() -> None:
    keys = ring()
    async with scripted_node(answer()) as node, rig(node.url, keys=keys) as gateway, Client.to(gateway) as client:
        for _ in range(3):  # the same head again and again, so that it is not read each time
            client.post(headers=BEARER)
            assert (await client.response()).status == 200
        others = KeyRing([(digest_of(OTHER.encode()), KeyPolicy("b"))], keys)
        gateway.gateway.configure(dataclasses.replace(gateway.ports, keys=others), Limits())
        client.post(headers=BEARER)
        assert_refused(await client.response())
        gateway.gateway.configure(dataclasses.replace(gateway.ports, keys=None), Limits())
        client.post(headers=BEARER)
        assert (await client.response()).status == 200


def test_what_is_in_flight_counts_on_when_a_key_was_taken_away_and_comes_back() -> None:
    before = ring(max_in_flight=1)
    key = before.find(SECRET.encode())
    assert key is not None
    lease = key.admit(0.0)
    without = KeyRing([(digest_of(OTHER.encode()), KeyPolicy("b"))], before)
    back = ring(max_in_flight=1, previous=without).find(SECRET.encode())
    assert back is not None
    with pytest.raises(TooManyInFlight):
        back.admit(0.0)
    lease.end()
    back.admit(0.0)


async def test_what_is_in_flight_counts_on_when_a_key_gets_another_policy() -> None:
    keys = ring(max_in_flight=2)
    async with (
        scripted_node(stall(), answer()) as node,
        rig(node.url, keys=keys) as gateway,
        Client.to(gateway) as first,
        Client.to(gateway) as second,
    ):
        first.post(headers=BEARER)
        await eventually(lambda: len(node.calls) == 1)
        smaller = ring(max_in_flight=1, previous=keys)
        gateway.gateway.configure(dataclasses.replace(gateway.ports, keys=smaller), Limits())
        second.post(headers=BEARER)
        assert_refused(await second.response(), "key_in_flight_limit")
        first.writer.close()
        await eventually(lambda: smaller.keys[0].usage.in_flight == 0)
        second.post(headers=BEARER)
        assert (await second.response()).status == 200


async def test_no_more_sequences_are_in_flight_than_the_key_may_have() -> None:
    keys = ring(max_in_flight=1)
    async with (
        scripted_node(stall(), answer()) as node,
        rig(node.url, keys=keys) as gateway,
        Client.to(gateway) as first,
        Client.to(gateway) as second,
    ):
        first.post(headers=BEARER)
        await eventually(lambda: len(node.calls) == 1)
        second.post(headers=BEARER)
        response = await second.response()
        assert_refused(response, "key_in_flight_limit")
        assert response.headers["retry-after"] == "1"
        assert response.error["type"] == "rate_limit_error"
        second.post(headers=f"Authorization: Bearer {OTHER}\r\n")  # another's limit is another's
        assert (await second.response()).status == 200


async def test_what_the_gateway_answers_itself_is_no_sequence_and_what_can_never_be_is_said_first() -> None:
    keys = ring(max_in_flight=1)
    async with (
        scripted_node(stall()) as node,
        rig(node.url, keys=keys) as gateway,
        Client.to(gateway) as first,
        Client.to(gateway) as second,
    ):
        first.post(headers=BEARER)
        await eventually(lambda: len(node.calls) == 1)
        for path in ("/v1/models", "/v1/models/m"):
            second.get(path, headers=BEARER)
            assert (await second.response()).status == 200, path
        second.post(headers=BEARER, n=2)
        response = await second.response()
        assert (response.status, response.error["param"]) == (400, "n")
        second.post(headers=BEARER)
        assert_refused(await second.response(), "key_in_flight_limit")
        usage = keys.keys[0].usage
        assert (usage.in_flight, usage.admitted) == (1, 3)


async def test_the_models_count_as_requests() -> None:
    async with (
        scripted_node() as node,
        rig(node.url, keys=ring(per_minute=1)) as gateway,
        Client.to(gateway) as client,
    ):
        client.get("/v1/models", headers=BEARER)
        assert (await client.response()).status == 200
        client.get("/v1/models", headers=BEARER)
        assert_refused(await client.response(), "key_rate_limit")


async def test_no_more_requests_come_than_the_key_may_send() -> None:
    async with (
        scripted_node(answer()) as node,
        rig(node.url, keys=ring(per_minute=2)) as gateway,
        Client.to(gateway) as client,
    ):
        statuses = []
        for _ in range(4):
            client.post(headers=BEARER)
            response = await client.response()
            statuses.append(response.status)
        assert statuses == [200, 200, 429, 429]
        assert_refused(response, "key_rate_limit")
        assert 1 <= int(response.headers["retry-after"]) <= 30
        assert "'team-a' is limited to 2 requests per minute" in response.error["message"]
        assert len(node.calls) == 2


@pytest.mark.parametrize("padding", ["", BIG], ids=["small", "read off the loop"])
async def test_a_request_for_several_answers_counts_for_as_many(padding: str) -> None:
    keys = ring(max_in_flight=3)
    async with (
        scripted_node(stall()) as node,
        rig(node.url, keys=keys) as gateway,
        Client.to(gateway) as first,
        Client.to(gateway) as second,
    ):
        first.post(headers=BEARER, n=2, padding=padding)
        await eventually(lambda: len(node.calls) == 1)
        assert keys.keys[0].usage.in_flight == 2
        second.post(headers=BEARER, n=2, padding=padding)
        assert_refused(await second.response(), "key_in_flight_limit")
        second.post(headers=BEARER, n=4, padding=padding)
        response = await second.response()
        assert (response.status, response.error["code"], response.error["param"]) == (400, "invalid_field", "n")


ENDINGS: dict[str, tuple[Behaviour, ...]] = {
    "answered": (answer(),),
    "streamed": (stream(EVENTS),),
    "refused by the node": (answer(400),),
    "full": (answer(429),),
    "retried": (answer(503), close(), answer()),
    "never answered": (close(),),
    "cut short": (die_after(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"),),
    "stream cut short": (die_after(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + EVENTS[0]),),
    "timed out": (stall(),),
}


@pytest.mark.parametrize("behaviours", ENDINGS.values(), ids=ENDINGS.keys())
async def test_however_a_request_ends_its_share_is_free_again(behaviours: tuple[Behaviour, ...]) -> None:
    keys = ring(max_in_flight=1)
    limits = Limits(first_byte_unstreamed_s=0.2)
    async with (
        scripted_node(*behaviours) as node,
        rig(node.url, node.url, node.url, limits=limits, keys=keys) as gateway,
    ):
        for number in range(1, 4):
            async with Client.to(gateway) as client:
                client.post(headers=BEARER)
                response = await client.response()
                assert response.status in (200, 400, 429, 502, 504)
                assert response.status != 429 or response.error["code"] == "all_full"
            await eventually(lambda: keys.keys[0].usage.in_flight == 0)
            assert keys.keys[0].usage.admitted == number


@pytest.mark.parametrize("started", [True, False], ids=["mid-stream", "before the first byte"])
async def test_a_client_that_leaves_takes_its_share_along(started: bool) -> None:
    keys = ring(max_in_flight=1)

    async def begin(call: object) -> None:
        if started:
            await stream(EVENTS[:1], end=b"")(call)  # type: ignore[arg-type]  # it is a Call
        await stall()(call)  # type: ignore[arg-type]

    async with scripted_node(begin) as node, rig(node.url, keys=keys) as gateway:
        for number in range(1, 6):
            async with Client.to(gateway) as client:
                client.post(headers=BEARER, stream=True)
                if started:
                    await client.reader.readuntil(b"content")
                else:
                    await eventually(lambda number=number: len(node.calls) == number)  # type: ignore[misc]
                assert keys.keys[0].usage.in_flight == 1
            await eventually(lambda: keys.keys[0].usage.in_flight == 0)


async def test_pipelined_requests_are_let_in_one_after_the_other() -> None:
    keys = ring(max_in_flight=1)
    async with scripted_node(answer()) as node, rig(node.url, keys=keys) as gateway, Client.to(gateway) as client:
        for _ in range(5):
            client.post(headers=BEARER)
        assert [(await client.response()).status for _ in range(5)] == [200] * 5
        await eventually(lambda: keys.keys[0].usage.in_flight == 0)


@pytest.mark.parametrize("framing", ["Content-Length: 1000000\r\n", "Transfer-Encoding: chunked\r\n"])
@pytest.mark.parametrize("expect", ["", "Expect: 100-continue\r\n"])
async def test_the_body_of_a_stranger_is_not_waited_for(framing: str, expect: str) -> None:
    async with rig(keys=ring()) as gateway, Client.to(gateway) as client:
        client.send(f"POST /v1/messages HTTP/1.1\r\nHost: x\r\n{framing}{expect}\r\n".encode())
        response = await client.response()
        assert response.status == 401
        assert json.loads(response.body)["error"]["type"] == "authentication_error"
        assert response.headers["connection"] == "close"
        assert await client.closed()
        assert gateway.books.rejections[0][1] == "/v1/messages"


@pytest.mark.parametrize("chunks", [False, True])
async def test_the_long_body_of_someone_known_is_read(chunks: bool) -> None:
    async with scripted_node(answer()) as node, rig(node.url, keys=ring()) as gateway, Client.to(gateway) as client:
        body = json.dumps({"model": "m", "padding": BIG}).encode()
        if chunks:
            client.send(
                f"POST /v1/completions HTTP/1.1\r\nHost: x\r\n{BEARER}Transfer-Encoding: chunked\r\n\r\n".encode()
            )
            client.send(chunked(body) + b"0\r\n\r\n")
        else:
            client.post("/v1/completions", headers=BEARER, padding=BIG)
        assert (await client.response()).status == 200
        assert len(node.calls[0].body) >= len(BIG)


def test_digests_that_begin_alike_are_told_apart() -> None:
    digest = digest_of(SECRET.encode())
    twin = digest[:-1] + bytes([digest[-1] ^ 1])
    for digests in ([digest, twin], [twin, digest]):
        keys = KeyRing([(one, KeyPolicy(one.hex())) for one in digests])
        found = keys.find(SECRET.encode())
        assert found is not None
        assert found.digest == digest
    assert KeyRing([(twin, KeyPolicy("twin"))]).find(SECRET.encode()) is None


def test_a_policy_holds_for_what_is_passed_through_unread() -> None:
    policy = KeyPolicy("jobs", traffic_class=TrafficClass.BULK, pinned_pool=Pool.STANDARD)
    held = (TrafficClass.BULK, Pool.STANDARD, PinSource.KEY)
    for one, expected in ((policy, held), (None, (TrafficClass.INTERACTIVE, None, None))):
        shape = passed_through_shape("/v1/files", b"{}", "chat", one)
        assert (shape.traffic_class, shape.pinned_pool, shape.pinned_by) == expected
